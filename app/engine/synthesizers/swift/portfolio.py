"""Which pairs to measure, and how the budget is shared among them.

A pair that is not measured is answered by its columns alone, and is then off by its gain: its
distance from independence, in rows. A measured pair is off by its noise instead, as far as the
fit leaves it. The chosen set S and its shares are to make the sum over S of w (gain - noise)
large, w being the pair's weight.

*Shares.* The fit draws each cell towards its expectation mu, so that noise sigma adds at most
about sqrt(mu sigma) to it; over the cells of a pair that is at most sqrt(N cells sigma), by
Cauchy and Schwarz. With sigma falling as the root of a share (Gaussian noise), the sum of
w sqrt(N cells sigma) is least for shares in proportion to (w sqrt(cells))^(4/5); with sigma
falling as the share (Laplace noise), to (w sqrt(cells))^(2/3). The bound is loosest for large
pairs, most of whose cells hold no row: in place of 4/5 the power is 3/5, which did as well on
pairs and a little better on what a classifier learns. An option's emphasis multiplies its share,
and not its gain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.measurements import AxisNames
from app.engine.inference.tree_growth import best_growth
from app.engine.synthesizers.swift.tuning import TUNING

Floats = NDArray[np.float64]
Pair = tuple[str, str]

# Shares are rounded to a grid that hides the last bits of a processor's powers.
_SHARE_STEPS = 2**20


@dataclass(frozen=True, slots=True)
class Option:
    """A pair that may be measured: its gain, and the counts of its columns, in rows."""

    pair: Pair
    gain: float
    first: Floats
    second: Floats
    weight: float = 1.0
    emphasis: float = 1.0

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
    """`deviation` is the standard deviation, in rows, of a cell measured with the whole budget."""

    law: Literal["gaussian", "laplace"]
    deviation: float

    @property
    def mean(self) -> float:
        """Mean absolute noise in standard deviations."""
        return math.sqrt(2 / math.pi) if self.law == "gaussian" else math.sqrt(1 / 2)

    def deviations(self, shares: Floats) -> Floats:
        """Standard deviations of cells measured with shares of the budget."""
        deviations: Floats = self.deviation / (
            np.sqrt(shares) if self.law == "gaussian" else shares
        )
        return deviations

    def size(self, option: Option) -> float:
        """What an option's share is in proportion to."""
        power = TUNING.gaussian_power if self.law == "gaussian" else TUNING.laplace_power
        return float(option.emphasis * (option.weight * math.sqrt(option.cells)) ** power)


def choose(
    options: Sequence[Option],
    shape: Mapping[str, int],
    noise: Noise,
    most_cells: int,
    *,
    most_measured: int | None = None,
    cliques: Sequence[AxisNames] = (),
) -> tuple[Chosen, ...]:
    """The pairs to measure, first chosen first; deterministic.

    The junction tree over them and `cliques`, which are in it from the start, has at most
    `most_cells` cells, the pairs together no more than `most_measured`, or as many. Greedy, as
    `tree_growth` says.
    """
    room = most_cells if most_measured is None else most_measured
    table = _NoiseTable(options, noise)
    whole = sum(max(option.weight * option.gain, 0.0) for option in options)
    best = best_growth(
        lambda: _Run(table, room),
        shape,
        cliques,
        most_cells,
        [price * whole / most_cells for price in TUNING.prices],
        looked_at=TUNING.looked_at,
    )
    return shared([options[i] for i in best.taken], noise)


def shared(options: Sequence[Option], noise: Noise) -> tuple[Chosen, ...]:
    """The options, all to be measured, with the budget shared among them."""
    sizes = [noise.size(option) for option in options]
    return tuple(
        Chosen(option.pair, math.ceil(_SHARE_STEPS * size / math.fsum(sizes)) / _SHARE_STEPS)
        for option, size in zip(options, sizes, strict=True)
    )


class _NoiseTable:
    """Gains, sizes and noise of all options, before any is taken.

    A pair of size s has the share s / W, where W sums the sizes of all pairs taken. Every
    pair's noise is tabulated over W, so that a step costs little.
    """

    def __init__(self, options: Sequence[Option], noise: Noise) -> None:
        self.options = options
        self.gains = np.array([option.weight * option.gain for option in options])
        self.sizes = np.array([noise.size(option) for option in options])
        self.open = self.gains > 0
        self._least = math.log2(min(self.sizes[self.open], default=1.0))
        whole = max(float(self.sizes[self.open].sum()), 1.0)
        self.steps = max(math.ceil(TUNING.levels * (math.log2(whole) - self._least)), 0) + 2
        grid = 2.0 ** (self._least + np.arange(self.steps) / TUNING.levels)
        self.noise = np.zeros((len(options), self.steps))
        for i in np.flatnonzero(self.open).tolist():
            deviations = noise.deviations(self.sizes[i] / grid)
            self.noise[i] = options[i].weight * expected_noise(options[i], deviations, noise.mean)

    def places(self, sizes: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Columns of the table for each W, and how far beyond each its W lies."""
        places = np.clip(TUNING.levels * (np.log2(sizes) - self._least), 0, self.steps - 1)
        low = np.minimum(places.astype(np.int64), self.steps - 2)
        return low, places - low


class _Run:
    """The sum for the pairs taken, and what each other one would make of it."""

    def __init__(self, table: _NoiseTable, room: int) -> None:
        self._table = table
        self._room = room
        self._open = table.open.copy()
        self._noise = np.zeros(table.steps)
        self._gain = self._size = 0.0
        self.taken: list[int] = []
        self.sum = 0.0

    def promising(self, most: int) -> list[tuple[int, float]]:
        """At most so many options that add something to the sum, and what they add."""
        added = self._sums() - self.sum
        added[~self._open] = -np.inf
        order = np.argsort(-added, kind="stable")[:most]
        return [(int(i), float(added[i])) for i in order if added[i] > 0]

    def axes(self, candidate: int) -> Pair:
        return self._table.options[candidate].pair

    def fits(self, candidate: int) -> bool:
        return self._table.options[candidate].cells <= self._room

    def take(self, candidate: int) -> None:
        self.sum = float(self._sums()[candidate])
        self._open[candidate] = False
        self._room -= self._table.options[candidate].cells
        self._gain += float(self._table.gains[candidate])
        self._size += float(self._table.sizes[candidate])
        self._noise += self._table.noise[candidate]
        self.taken.append(candidate)

    def drop(self, candidate: int) -> None:
        self._open[candidate] = False

    def _sums(self) -> Floats:
        """The sum with each option taken too."""
        table = self._table
        low, part = table.places(self._size + table.sizes)
        rows = np.arange(low.size)
        noise = (1 - part) * (table.noise[rows, low] + self._noise[low])
        noise += part * (table.noise[rows, low + 1] + self._noise[low + 1])
        sums: Floats = self._gain + table.gains - noise
        return sums


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
    levels = 2.0 ** ((low + lower + np.arange(cells.size)) / TUNING.levels) / total
    return levels, cells


def _by_level(counts: Floats) -> tuple[Floats, int]:
    """How many counts there are near each power of 2^(1/8), from the least; none of 0."""
    powers = np.rint(TUNING.levels * np.log2(counts[counts > 0])).astype(np.int64)
    if not powers.size:
        return np.zeros(1), 0
    least = int(powers.min())
    return np.bincount(powers - least).astype(np.float64), least
