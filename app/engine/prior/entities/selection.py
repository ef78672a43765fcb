"""Which histograms to measure, from how far the public table seems to be off in each.

A histogram that is not measured is off by its distance D, the L1 distance from the public one in
counts. If counts m stray by the variance phi m, D is about sqrt(2 / pi) sum sqrt(phi m), which
gives phi; a measurement with noise sigma then leaves counts with the posterior variance
phi m sigma^2 / (phi m + sigma^2). The difference is the histogram's gain. Of the histograms in
falling order of gain as many are taken, in equal shares of the budget, as make the gains add up to
the most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.contribution import expected_error
from app.engine.privacy.queries import Count
from app.engine.privacy.unit_budget import UnitBudget

Floats = NDArray[np.float64]

# The mean absolute value of a standard normal number.
_OF_NORMAL = math.sqrt(2 / math.pi)


@dataclass(frozen=True, slots=True)
class Option:
    """A histogram that may be measured: its public counts (flat), how far off they seem, the
    noise's standard deviation in a cell measured with the whole budget, and how much a count
    that is put right matters."""

    expected: Floats
    distance: float
    deviation: float
    weight: float = 1.0

    def gain(self, noise: float) -> float:
        """Counts that a measurement with noise of this standard deviation puts right, weighted."""
        if self.distance <= 0:
            return 0.0
        m = self.expected[self.expected > 0]
        spread = self.distance / (_OF_NORMAL * float(np.sqrt(m).sum()))
        left = np.sqrt(spread**2 * m * noise**2 / (spread**2 * m + noise**2))
        return self.weight * (self.distance - _OF_NORMAL * float(left.sum()))


def chosen(options: Sequence[Option], *, power: float, most: int) -> tuple[int, ...]:
    """Places of at most `most` options to measure, best first: one at least, so that the budget
    is used.

    `power`: noise grows as the number of histograms to this power, 1/2 under Gaussian noise and 1
    under Laplace noise.
    """
    best: tuple[float, tuple[int, ...]] = (-math.inf, ())
    for many in _numbers(min(len(options), most)):
        gains = np.array([each.gain(each.deviation * many**power) for each in options])
        first = np.argsort(-gains, kind="stable")[:many]
        total = float(gains[first].sum())
        if total > best[0]:
            best = total, tuple(int(place) for place in first)
    return best[1]


def _numbers(most: int) -> Iterator[int]:
    """The first ones, then in steps of a hundredth: each number asks for all gains."""
    many = 1
    while many <= most:
        yield many
        many += 1 + many // 100


def most_informative(
    counts: Sequence[Count],
    expected: Sequence[Floats],
    distances: Sequence[float],
    budget: UnitBudget,
    *,
    most: int,
    weights: Sequence[float] | None = None,
) -> tuple[Count, ...]:
    """Of `counts` those to measure with `loss`, at most so many.

    `expected` are the public histograms (flat), `distances` how far off they seem, in counts,
    `weights` how much that matters (1 if omitted).
    """
    weights = [1.0] * len(counts) if weights is None else weights
    options = [
        Option(m, distance, expected_error(count.contribution, m.size, budget), weight)
        for count, m, distance, weight in zip(counts, expected, distances, weights, strict=True)
    ]
    power = 1.0 if budget.loss.kind == "pure" else 0.5
    return tuple(counts[place] for place in chosen(options, power=power, most=most))
