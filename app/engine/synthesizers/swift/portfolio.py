"""Which pairs to measure, and how the budget is shared among them.

A pair that is not measured is answered by its columns alone, and is then off by its gain: its
distance from independence, in rows. A measured pair is off by its noise instead, as far as the
fit leaves it. The chosen set S and its shares are to make the sum over S of w (gain - noise)
large, w being the pair's weight.

*Shares.* The fit draws each cell towards its expectation mu, so that noise sigma adds at most
about sqrt(mu sigma) to it; over the cells of a pair that is at most sqrt(N cells sigma), by
Cauchy and Schwarz. With sigma falling as the root of a share (Gaussian noise), the sum of
w sqrt(N cells sigma) is least for shares in proportion to (w sqrt(cells))^(4/5); with sigma
falling as the share (Laplace noise), to (w sqrt(cells))^(2/3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.junction import predicted_cells

Floats = NDArray[np.float64]
Pair = tuple[str, str]

_LEVELS = 8
"""Expected counts are told apart by powers of 2^(1/8), and so is the budget's division."""

_SHARE_STEPS = 2**20
"""Shares are rounded to a grid that hides the last bits of a processor's powers."""


@dataclass(frozen=True, slots=True)
class Option:
    """A pair that may be measured: its gain, and the counts of its columns, in rows."""

    pair: Pair
    gain: float
    first: Floats
    second: Floats
    weight: float = 1.0

    @property
    def cells(self) -> int:
        return self.first.size * self.second.size


@dataclass(frozen=True, slots=True)
class Chosen:
    """A pair to measure with this share of the budget; shares add up to about 1."""

    pair: Pair
    share: float


@dataclass(frozen=True, slots=True)
class Noise:
    """`deviation` is the standard deviation, in rows, of a cell bought with the whole budget."""

    law: Literal["gaussian", "laplace"]
    deviation: float

    @property
    def mean(self) -> float:
        """Mean absolute noise in standard deviations."""
        return math.sqrt(2 / math.pi) if self.law == "gaussian" else math.sqrt(1 / 2)

    def deviations(self, shares: Floats) -> Floats:
        """Standard deviations of cells bought with shares of the budget."""
        deviations: Floats = self.deviation / (
            np.sqrt(shares) if self.law == "gaussian" else shares
        )
        return deviations

    def size(self, option: Option) -> float:
        """What an option's share is in proportion to."""
        power = 4 / 5 if self.law == "gaussian" else 2 / 3
        return float((option.weight * math.sqrt(option.cells)) ** power)


def choose(
    options: Sequence[Option], shape: Mapping[str, int], noise: Noise, most_cells: int
) -> tuple[Chosen, ...]:
    """The pairs to measure, first chosen first; deterministic.

    Greedy: the pair that adds most to the sum is taken, as long as any adds something. The
    junction tree over the pairs taken, and these pairs together, have at most `most_cells`
    cells; a pair that would lead beyond is left out.
    """
    race = _Race(options, noise)
    taken: list[int] = []
    cells = 0
    while (best := race.best()) is not None:
        pairs = [options[i].pair for i in (*taken, best)]
        more = options[best].cells
        if cells + more <= most_cells and predicted_cells(shape, pairs) <= most_cells:
            race.take(best)
            taken.append(best)
            cells += more
        else:
            race.drop(best)
    return shared([options[i] for i in taken], noise)


def shared(options: Sequence[Option], noise: Noise) -> tuple[Chosen, ...]:
    """The options, all to be measured, with the budget shared among them."""
    sizes = [noise.size(option) for option in options]
    return tuple(
        Chosen(option.pair, math.ceil(_SHARE_STEPS * size / math.fsum(sizes)) / _SHARE_STEPS)
        for option, size in zip(options, sizes, strict=True)
    )


class _Race:
    """The sum for the pairs taken, and what each other one would make of it.

    A pair of size s has the share s / W, where W sums the sizes of all pairs taken. Every
    pair's noise is tabulated over W, so that a step costs little.
    """

    def __init__(self, options: Sequence[Option], noise: Noise) -> None:
        self._gains = np.array([option.weight * option.gain for option in options])
        self._sizes = np.array([noise.size(option) for option in options])
        self._open = self._gains > 0
        self._gain = self._size = 0.0
        self._least = math.log2(min(self._sizes[self._open], default=1.0))
        whole = max(float(self._sizes[self._open].sum()), 1.0)
        steps = max(math.ceil(_LEVELS * (math.log2(whole) - self._least)), 0) + 2
        grid = 2.0 ** (self._least + np.arange(steps) / _LEVELS)
        self._noise = np.zeros((len(options), steps))
        for i in np.flatnonzero(self._open).tolist():
            deviations = noise.deviations(self._sizes[i] / grid)
            self._noise[i] = options[i].weight * expected_noise(options[i], deviations, noise.mean)
        self._taken_noise = np.zeros(steps)

    def best(self) -> int | None:
        """The option that adds most to the sum, None if none adds anything."""
        if not self._open.any():
            return None
        sums = self._gain + self._gains - self._noise_at(self._size + self._sizes)
        sums[~self._open] = -np.inf
        best = int(np.argmax(sums))
        return best if sums[best] > self._sum() else None

    def take(self, option: int) -> None:
        self._open[option] = False
        self._gain += float(self._gains[option])
        self._size += float(self._sizes[option])
        self._taken_noise += self._noise[option]

    def drop(self, option: int) -> None:
        self._open[option] = False

    def _sum(self) -> float:
        if not self._size:
            return 0.0
        place = _LEVELS * (math.log2(self._size) - self._least)
        return self._gain - float(np.interp(place, np.arange(self._steps), self._taken_noise))

    @property
    def _steps(self) -> int:
        return self._taken_noise.size

    def _noise_at(self, sizes: Floats) -> Floats:
        """The noise of all taken and of each option, were it taken and W its entry of sizes."""
        places = np.clip(_LEVELS * (np.log2(sizes) - self._least), 0, self._steps - 1)
        low = np.minimum(places.astype(np.int64), self._steps - 2)
        part = places - low
        rows = np.arange(sizes.size)
        noise: Floats = (1 - part) * (self._noise[rows, low] + self._taken_noise[low])
        noise += part * (self._noise[rows, low + 1] + self._taken_noise[low + 1])
        return noise


def expected_noise(option: Option, deviations: Floats, mean: float) -> Floats:
    """The distance that noise of each deviation adds to a pair, in rows, after the fit.

    A cell of expectation mu adds the smaller of its mean absolute noise, `mean` times sigma,
    and sqrt(mu sigma); one that no row is expected in adds nothing.
    """
    levels, cells = _expected_counts(option)
    roots = np.concatenate([[0.0], np.cumsum(cells * np.sqrt(levels))])
    above = cells.sum() - np.concatenate([[0.0], np.cumsum(cells)])
    split = np.searchsorted(levels, mean**2 * deviations)
    noise: Floats = np.sqrt(deviations) * roots[split] + mean * deviations * above[split]
    return noise


def _expected_counts(option: Option) -> tuple[Floats, Floats]:
    """Rising expected counts of independent columns, and the number of cells of each."""
    first, low = _by_level(option.first)
    second, lower = _by_level(option.second)
    total = max(float(option.first.sum()), 1.0)
    cells = np.convolve(first, second)
    levels = 2.0 ** ((low + lower + np.arange(cells.size)) / _LEVELS) / total
    return levels, cells


def _by_level(counts: Floats) -> tuple[Floats, int]:
    """How many counts there are near each power of 2^(1/8), from the least; none of 0."""
    powers = np.rint(_LEVELS * np.log2(counts[counts > 0])).astype(np.int64)
    if not powers.size:
        return np.zeros(1), 0
    least = int(powers.min())
    return np.bincount(powers - least).astype(np.float64), least
