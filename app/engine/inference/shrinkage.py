"""Noisy counts shrunk towards the counts that independent columns would have.

The model: a count is negative binomial around its expectation, the product of the relative
frequencies of each column. Frequencies and spread are estimated from the noisy counts themselves
(empirical Bayes; Robbins 1956, Fay and Herriot 1979). So with little noise the noisy counts stay,
with much noise the expectations take their place, and a large count among empty ones changes
little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.inference.projection import onto_simplex

Floats = NDArray[np.float64]

# Posterior sums take this many steps to each side: where noise is wide, not every count is summed.
_STEPS_TO_REACH = 64
# Moments may give no positive estimate. This spread is practically a Poisson law.
_LEAST_SPREAD = 1e-6
# Without noise the scale is 0, and the likelihood would divide by it.
_LEAST_SCALE = 1e-6
# 60 halvings leave nothing of an interval in doubles (53 bits).
_BISECTIONS = 60


@dataclass(frozen=True, slots=True)
class CountNoise:
    """The noise, the same on all counts.

    `scale` is b of a discrete Laplace or sigma of a discrete Gaussian distribution.
    """

    law: Literal["laplace", "gaussian"]
    scale: float
    variance: float

    def reach(self, counts: int) -> int:
        """A bound on the largest noise among `counts` counts, with probability 95 %."""
        # A union bound over the counts, since exp(-3) < 0.05.
        log = math.log(counts) + 3
        reach = self.scale * (log if self.law == "laplace" else math.sqrt(2 * log))
        return math.ceil(reach) + 1


@dataclass(frozen=True, slots=True)
class Estimates:
    """Posterior means of counts and their variances, both of the shape of the counts."""

    means: Floats
    variances: Floats

    def with_total(self, total: float) -> Floats:
        """The non-negative counts of sum `total` that are nearest to the means.

        Uncertain means move most: the distance is sum (x - mean)^2 / variance. The projection is
        max(mean - c variance, 0), where one c gives the total. Counts with variance 0 stay.
        """
        if total <= 0:
            return np.zeros(self.means.shape)
        surplus = float(self.means.sum()) - total
        room = float(self.variances.sum())
        if room <= 0:
            return onto_simplex(self.means, total)
        if surplus <= 0:
            return _scaled(self.means - self.variances * (surplus / room), total)
        low, high = 0.0, surplus / room
        while self._lowered(high).sum() > total and high < 1e12:
            low, high = high, 2 * high
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            is_low = self._lowered(middle).sum() > total
            low, high = (middle, high) if is_low else (low, middle)
        lowered = self._lowered(low)
        return _scaled(lowered, total) if lowered.any() else onto_simplex(self.means, total)

    def _lowered(self, shift: float) -> Floats:
        return np.maximum(self.means - shift * self.variances, 0.0)


def _scaled(counts: Floats, total: float) -> Floats:
    """Rescaled to the total, which rounding error has missed slightly."""
    scaled: Floats = counts * (total / counts.sum())
    return scaled


def shrink_counts(noisy: NDArray[np.int64], noise: CountNoise, total: float) -> Estimates:
    """Estimates of the counts behind `noisy`, which has one axis for each column.

    total: the best estimate of their sum; all estimates are 0 if it is not positive. No mean is
    further from its noisy count than `noise.reach` of this number of counts.
    """
    if total <= 0 or not noisy.size:
        return Estimates(np.zeros(noisy.shape), np.zeros(noisy.shape))
    expected = independent_counts(noisy, noise.variance, total)
    return _posterior(noisy, expected, spread(noisy, expected, noise.variance), noise)


def independent_counts(noisy: NDArray[np.int64], variance: float, total: float) -> Floats:
    """The expected counts if the columns were independent; equal counts if there is one column.

    The one-way sums of a column are shrunk towards their mean, the more the larger their noise
    is (James and Stein 1961). Then they are projected onto non-negative counts of sum `total`.
    """
    if noisy.ndim < 2:
        return np.full(noisy.shape, total / noisy.size)
    expected = np.asarray(total, dtype=np.float64)
    for axis in range(noisy.ndim):
        sums = _sums(noisy, axis).astype(np.float64)
        noise = variance * (noisy.size / sums.size)
        expected = np.multiply.outer(expected, _shrunk_to_mean(sums, noise, total) / total)
    return expected


def _sums(values: NDArray[Any], axis: int) -> NDArray[Any]:
    sums: NDArray[Any] = values.sum(axis=tuple(a for a in range(values.ndim) if a != axis))
    return sums


def _shrunk_to_mean(sums: Floats, variance: float, total: float) -> Floats:
    mean = total / sums.size
    observed = float(((sums - mean) ** 2).sum()) / max(sums.size - 1, 1)
    kept = max(0.0, 1 - variance / observed) if observed > 0 else 0.0
    return onto_simplex(mean + (sums - mean) * kept, total)


def spread(noisy: NDArray[np.int64], expected: Floats, variance: float) -> float:
    """The squared spread b^2, by the method of moments.

    A true count of expectation p has variance p + b^2 p^2. Estimating the frequencies uses one
    degree of freedom for each value of a column but one, and the total uses one more.
    """
    taken = 1 + (sum(noisy.shape) - noisy.ndim if noisy.ndim > 1 else 0)
    free = max(noisy.size - taken, 0)
    surplus = float(((noisy - expected) ** 2).sum()) - variance * free - float(expected.sum())
    return max(surplus / float((expected**2).sum()), _LEAST_SPREAD)


def _posterior(
    noisy: NDArray[np.int64], expected: Floats, spread: float, noise: CountNoise
) -> Estimates:
    means, variances = np.empty(noisy.size), np.empty(noisy.size)
    reach = noise.reach(noisy.size)
    _posteriors(
        noisy.ravel(),
        expected.ravel(),
        1 / spread,
        max(noise.scale, _LEAST_SCALE),
        noise.law == "laplace",
        reach,
        max(1, reach // _STEPS_TO_REACH),
        means,
        variances,
    )
    return Estimates(means.reshape(noisy.shape), variances.reshape(noisy.shape))


@compiled
def _posteriors(
    noisy: Any,
    expected: Any,
    size: Any,
    scale: Any,
    is_laplace: Any,
    reach: Any,
    step: Any,
    means: Any,
    variances: Any,
) -> None:
    """Posterior means and variances, by sums over the true counts within reach of each noisy one.

    Where the noise is wide, only every `step`-th count is summed. `size` is the parameter of the
    negative binomial distribution, whose variance is p + p^2 / size.
    """
    logs = np.empty(2 * (reach // step) + 3)
    for cell in range(len(noisy)):
        observed = noisy[cell]
        least, most = max(observed - reach, 0), max(observed + reach, 0)
        if expected[cell] <= 0 or most == least:
            means[cell], variances[cell] = least, 0.0
            continue
        odds = math.log(expected[cell] / (size + expected[cell]))
        start = math.lgamma(least + size) - math.lgamma(least + 1.0)
        points = 0
        best = -np.inf
        log = 0.0
        for count in range(least, most + 1, step):
            if step > 1:
                log = math.lgamma(count + size) - math.lgamma(count + 1.0) - start
                log += (count - least) * odds
            off = abs(observed - count) / scale
            logs[points] = log - (off if is_laplace else off * off / 2)
            best = max(best, logs[points])
            log += math.log((count + size) / (count + 1.0)) + odds
            points += 1
        # Log weights less the largest, so that the exponential neither overflows nor vanishes.
        weight = first = second = 0.0
        for point in range(points):
            likelihood = math.exp(logs[point] - best)
            weight += likelihood
            first += likelihood * point
            second += likelihood * point * point
        mean = first / weight
        means[cell] = least + step * mean
        variances[cell] = step * step * max(second / weight - mean * mean, 0.0)
