"""Noisy counts of an ordered column, smoothed over runs of adjoining cells.

The model: the true counts are constant over runs. A run ends after each cell with probability
p, and its level is normal around 0 with standard deviation s; p and s are unknown, each one of
a few values. The posterior mean over all 2^(n - 1) ways to cut n cells into runs, all p and all
s, each weighted by its likelihood given the noisy counts, is computed exactly by a forward and a
backward recursion (Barry and Hartigan 1992; Fearnhead 2006). Where adjoining cells have nothing
to do with one another, runs of one cell are likeliest, and the counts hardly change.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.inference.shrinkage import Estimates

Floats = NDArray[np.float64]

# The values that p may have: a break after every 50th cell to one after nearly every cell.
_BREAKS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 0.95])
# The values that s may have, in multiples of the mean count.
_LEVELS = np.array([0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0])

# Cells of a stretch. Work grows with the square of a stretch, so longer columns have shorter ones.
_LONGEST_STRETCH = 512
_SHORTEST_STRETCH = 64
# Runs in all stretches of a column, about half the cells times the length of a stretch.
_SEGMENTS = 2**19


def smooth_counts(noisy: Floats, variance: float, total: float) -> Estimates:
    """Posterior means of the counts and their variances, shape (cells,); noise has `variance`.

    total: an estimate of the sum of the counts, which sets the scale of the levels; at least 1
    is used. Time and memory grow with the square of the cells up to 512. Longer columns are cut
    into stretches that are smoothed one by one.
    """
    means, variances = np.empty(noisy.size), np.empty(noisy.size)
    spreads = (_LEVELS * max(total, 1.0) / max(noisy.size, 1)) ** 2
    stretches = math.ceil(noisy.size / _stretch(noisy.size)) if noisy.size else 0
    for part in np.array_split(np.arange(noisy.size), stretches or 1):
        if part.size:
            place = slice(part[0], part[-1] + 1)
            _smooth(noisy[place], variance, spreads, _BREAKS, means[place], variances[place])
    return Estimates(means, variances)


def _stretch(cells: int) -> int:
    return min(max(2 * _SEGMENTS // max(cells, 1), _SHORTEST_STRETCH), _LONGEST_STRETCH)


@compiled
def _smooth(
    noisy: Floats,
    variance: float,
    spreads: Floats,
    breaks: Floats,
    means: Floats,
    variances: Floats,
) -> None:
    count = noisy.size
    evidence = np.empty((count, count))
    level = np.empty((count, count))
    square = np.empty((count, count))
    _runs(noisy, variance, spreads, evidence, level, square)
    forward, backward = np.empty((breaks.size, count + 1)), np.empty((breaks.size, count + 1))
    for k in range(breaks.size):
        _recur(evidence, math.log(breaks[k]), math.log1p(-breaks[k]), forward[k], backward[k])
    best = forward[:, count].max()
    weights = np.exp(forward[:, count] - best)
    weights /= weights.sum()
    # A run adds to all of its cells. Differences are stored at its ends, and summed up below, so
    # that a run takes the same time whatever its length.
    first, second = np.zeros(count + 1), np.zeros(count + 1)
    for k in range(breaks.size):
        if weights[k] < 1e-12:
            continue
        log_break, log_stay = math.log(breaks[k]), math.log1p(-breaks[k])
        for i in range(count):
            start = forward[k, i] - forward[k, count] + (log_break if i > 0 else 0.0)
            for j in range(i, count):
                log = start + evidence[i, j] + (j - i) * log_stay + backward[k, j + 1]
                log += log_break if j + 1 < count else 0.0
                if log > -40.0:
                    probability = weights[k] * math.exp(log)
                    first[i] += probability * level[i, j]
                    first[j + 1] -= probability * level[i, j]
                    second[i] += probability * square[i, j]
                    second[j + 1] -= probability * square[i, j]
    mean = power = 0.0
    for cell in range(count):
        mean += first[cell]
        power += second[cell]
        means[cell] = mean
        # Rounding must not make a variance 0: no mean is more certain than that of all cells.
        variances[cell] = max(power - mean * mean, variance / count)


@compiled
def _runs(
    noisy: Floats, variance: float, spreads: Floats, evidence: Floats, level: Floats, square: Floats
) -> None:
    """For the run from cell i to cell j: the log likelihood of its noisy counts, and the
    posterior means of its level and of the square of its level."""
    for i in range(noisy.size):
        # Mean and sum of squares are updated cell by cell (Welford 1962).
        mean = scatter = 0.0
        for j in range(i, noisy.size):
            length = j - i + 1
            step = noisy[j] - mean
            mean += step / length
            scatter += step * (noisy[j] - mean)
            best = -np.inf
            for spread in spreads:
                best = max(best, _fit(mean, length, variance, spread))
            total = first = second = 0.0
            for spread in spreads:
                likelihood = math.exp(_fit(mean, length, variance, spread) - best)
                kept = spread / (spread + variance / length)
                total += likelihood
                first += likelihood * kept * mean
                second += likelihood * ((kept * mean) ** 2 + kept * variance / length)
            evidence[i, j] = (
                best
                + math.log(total / spreads.size)
                - 0.5 * length * math.log(2 * math.pi * variance)
                - 0.5 * scatter / variance
            )
            level[i, j] = first / total
            square[i, j] = second / total


@compiled
def _fit(mean: float, length: int, variance: float, spread: float) -> float:
    """Log likelihood of a run's mean, without the terms that do not depend on `spread`."""
    ratio = 1 + length * spread / variance
    return -0.5 * math.log(ratio) - 0.5 * length * mean * mean / (variance * ratio)


@compiled
def _recur(
    evidence: Floats, log_break: float, log_stay: float, forward: Floats, backward: Floats
) -> None:
    """Log likelihoods of the first j cells (forward) and of those from i on (backward)."""
    count = evidence.shape[0]
    terms = np.empty(count)
    forward[0] = 0.0
    for j in range(count):
        for i in range(j + 1):
            terms[i] = forward[i] + evidence[i, j] + (j - i) * log_stay
            if i > 0:
                terms[i] += log_break
        forward[j + 1] = _log_sum(terms[: j + 1])
    backward[count] = 0.0
    for i in range(count - 1, -1, -1):
        for j in range(i, count):
            terms[j] = backward[j + 1] + evidence[i, j] + (j - i) * log_stay
            if j + 1 < count:
                terms[j] += log_break
        backward[i] = _log_sum(terms[i:])


@compiled
def _log_sum(logs: Floats) -> float:
    best = logs.max()
    total = 0.0
    for log in logs:
        if log > best - 45.0:
            total += math.exp(log - best)
    return float(best + math.log(total))
