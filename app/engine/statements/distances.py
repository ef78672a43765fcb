"""How far a sample is from a private table: an interval from noisy counts of the same cells.

Let x be the exact counts of some cells, n their sum, z = x + e the noisy ones, where e is
independent noise of known variance, and q the sample's shares. Asked for is
D = sum |x/n - q| / 2. What is known of x is its posterior distribution: a prior times the density
of the noise. Given it, the mean and variance of D are sums over cells.

The model was fitted to z. So q may follow the noise, and the difference z - n q understates D; or
q may be nearer to x than z is, and the difference overstates D. Which of both cannot be known from
z and q. Two priors span the range between them:

- *Not from the model*: x is Gamma distributed around the counts of independent columns (equal
  counts, for one column). The spread is estimated from z alone (empirical Bayes). Given this prior
  the posterior of x is right for every q that is made of z, however it follows the noise. It
  ignores what the model knows besides, and so errs upwards where the model is good.
- *From the model*: x is Gamma distributed around n q. The spread is estimated from z - n q. If q
  was made without z, this is right; if q follows the noise, the spread is too small. So it errs
  downwards.

The interval begins at the lower end of the second and ends at the upper end of the first, each with
an estimate of the spread moved outwards by its own error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.shrinkage import independent_counts
from app.engine.privacy.queries import Noise

Floats = NDArray[np.float64]

# Standard deviations to each side. A normal law has 5 % outside 1.64 of them; 2 allows for a
# distance of few cells, which is not normal.
DEVIATIONS = 2.0
# Counts of a million cells need no closer look at all of them: the largest are all taken, of the
# others an even choice.
MOST_CELLS = 2**13
_NODES = 32
# The share of rows that the sample's prior has in all cells alike.
_ELSEWHERE = 0.005
_LEAST_SPREAD = 1e-6
_BISECTIONS = 30
# Of more cells, an even choice says enough of their spread.
MOST_FITTED = 2**14
_LARGEST_SPREAD = 1e4


@dataclass(frozen=True, slots=True)
class EstimatedDistance:
    distance: float
    low: float
    high: float


def estimated_distance(
    noisy: Floats, variance: Floats, noise: Noise, synthetic: Floats, total: tuple[float, float]
) -> EstimatedDistance:
    """Of the exact shares from the synthetic ones; arrays of one shape, an axis for each column.

    noise: its law. total: the best estimate of the sum of the exact counts, and its variance.
    """
    rows, rows_variance = total
    error = math.sqrt(rows_variance)
    if rows <= DEVIATIONS * error or synthetic.sum() <= 0:
        return EstimatedDistance(1.0, 0.0, 1.0)
    variance = np.broadcast_to(variance, noisy.shape)
    shares = synthetic / synthetic.sum()
    # Only sums of it are taken, for which it need not be whole.
    counts: Any = noisy
    independent = independent_counts(counts, float(variance.mean()), rows)
    # A cell that the sample lacks may have rows all the same.
    modelled = rows * ((1 - _ELSEWHERE) * shares + _ELSEWHERE / shares.size)
    target = rows * shares
    flat = noisy.ravel(), variance.ravel()
    columns = noisy.ndim
    taken = 1 + (sum(noisy.shape) - columns if columns > 1 else 0)
    apart = _Prior.fitted(*flat, noise, independent.ravel(), taken)
    near = _Prior.fitted(*flat, noise, modelled.ravel(), 1)
    cells = _Cells.of(noisy, variance, target)
    # Shares are taken of an estimated sum: a relative error of it moves the distance by half.
    slack = error / (2 * rows)
    means, ends = [], []
    for prior, spread in (
        (apart, apart.spread),
        (near, near.spread),
        (apart, apart.low),
        (apart, apart.high),
        (near, near.low),
    ):
        mean, squared = cells.distance(prior.expected, spread)
        means.append(mean / rows)
        ends.append(DEVIATIONS * (math.sqrt(squared) / rows + slack))
    # A sample that follows the noise leaves none of it in z - n q. That the noise is left in full
    # does not tell whether the model knows better or is off: then both count the same.
    left = min(float(((noisy - target) ** 2 / variance).mean()), 1.0)
    return EstimatedDistance(
        float(np.clip((1 - left / 2) * means[0] + left / 2 * means[1], 0, 1)),
        float(np.clip(min(mean - end for mean, end in zip(means, ends, strict=True)), 0, 1)),
        float(np.clip(max(mean + end for mean, end in zip(means, ends, strict=True)), 0, 1)),
    )


@dataclass(frozen=True, slots=True)
class _Prior:
    """Gamma laws around expected counts, of variance spread * expected^2; `low` and `high` are the
    spread moved by its own error."""

    expected: Floats
    low: float
    spread: float
    high: float

    @classmethod
    def fitted(
        cls, noisy: Floats, variance: Floats, noise: Noise, expected: Floats, taken: int
    ) -> _Prior:
        """The spreads b at which sum (z - m)^2 / (v + b m^2) is the upper quantile, the mean and
        the lower quantile of its chi-square law (Paule and Mandel 1982; Viechtbauer 2007).

        taken: degrees of freedom that estimating the expected counts took.
        """
        every = max(1, noisy.size // MOST_FITTED)
        off, v, m = ((noisy - expected) ** 2)[::every], variance[::every], (expected**2)[::every]
        free = max(off.size - taken, 1)

        def spread_at(level: float) -> float:
            low, high = math.log(_LEAST_SPREAD), math.log(_LARGEST_SPREAD)
            for _ in range(_BISECTIONS):
                middle = (low + high) / 2
                is_low = float((off / (v + math.exp(middle) * m)).sum()) > level
                low, high = (middle, high) if is_low else (low, middle)
            return math.exp(low)

        levels = [_sum_of_squares(free, noise, way * DEVIATIONS) for way in (1, 0, -1)]
        return cls(expected, *(spread_at(level) for level in levels))


def _sum_of_squares(free: int, noise: Noise, deviations: float) -> float:
    """A quantile of the sum of that many squares of standardised noise; at 0 its mean.

    By a chi-square law of the same mean and variance, which of one square is 2, and 5 if the noise
    is Laplace distributed (Wilson and Hilferty 1931).
    """
    if not deviations:
        return float(free)
    scale = 1.0 if noise == "gaussian" else 2.5
    part = 2 * scale / (9 * free)
    return float(free * max(1 - part + deviations * math.sqrt(part), 0.0) ** 3)


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells that are looked at, flat, each for `weight` ones."""

    places: NDArray[np.int64]
    weight: Floats
    noisy: Floats
    deviation: Floats
    target: Floats

    @classmethod
    def of(cls, noisy: Floats, variance: Floats, target: Floats) -> _Cells:
        z, t = noisy.ravel(), target.ravel()
        deviation = np.sqrt(variance.ravel())
        places, weight = np.arange(z.size), np.ones(z.size)
        if z.size > MOST_CELLS:
            order = np.argsort(-np.maximum(np.abs(z) / deviation, t / deviation), kind="stable")
            large, rest = order[: MOST_CELLS // 2], np.sort(order[MOST_CELLS // 2 :])
            chosen = rest[np.linspace(0, len(rest) - 1, MOST_CELLS // 2).astype(np.int64)]
            places = np.concatenate([large, chosen])
            weight = np.concatenate(
                [np.ones(len(large)), np.full(len(chosen), len(rest) / len(chosen))]
            )
        return cls(places, weight, z[places], deviation[places], t[places])

    def distance(self, expected: Floats, spread: float) -> tuple[float, float]:
        """Mean and variance of sum |x - target| / 2 under the posterior of that prior."""
        means, squares = _moments(
            self.noisy, self.deviation, self.target, expected[self.places], 1 / spread
        )
        mean = float((self.weight * means).sum()) / 2
        variance = float((self.weight * (squares - means**2)).sum()) / 4
        return mean, max(variance, 0.0)


def _moments(
    noisy: Floats, deviation: Floats, target: Floats, expected: Floats, shape: float
) -> tuple[Floats, Floats]:
    """E|x - t| and E(x - t)^2 for each cell, where x is Gamma with this shape around `expected`,
    seen with normal noise. By the trapezoidal rule over nodes that follow both scales."""
    mean = np.maximum(expected, 1e-9)[:, None]
    z, sd, t = noisy[:, None], deviation[:, None], target[:, None]
    steps = np.linspace(-1, 1, _NODES)
    width = math.sqrt(1 / shape)
    near = z + 6 * sd * steps
    top = np.maximum(z, 0) + 6 * sd
    first = np.minimum(mean, sd) * 1e-3
    falling = first * np.exp(np.log(np.maximum(top / first, 2)) * (steps + 1) / 2)
    nodes = [near, falling]
    if width < 0.5:
        nodes.append(mean * (1 + 6 * width * steps))
    x = np.sort(np.maximum(np.concatenate(nodes, axis=1), first), axis=1)
    log = (shape - 1) * np.log(x / mean) - shape * (x / mean) - ((z - x) / sd) ** 2 / 2
    # What lies below the first node: all but a point, where the likelihood is that of 0.
    rest = math.log(1 / shape) + shape * np.log(first / mean) + np.log(mean) - (z / sd) ** 2 / 2
    most = np.maximum(log.max(axis=1, keepdims=True), rest)
    density, below = np.exp(log - most), np.exp(rest - most)[:, 0]
    gaps = np.diff(x, axis=1)
    widths = np.zeros_like(x)
    widths[:, :-1] += gaps / 2
    widths[:, 1:] += gaps / 2
    mass = density * widths
    whole = mass.sum(axis=1) + below
    off = np.abs(x - t)
    zero = target
    means = ((mass * off).sum(axis=1) + below * zero) / whole
    squares = ((mass * off**2).sum(axis=1) + below * zero**2) / whole
    return means, squares
