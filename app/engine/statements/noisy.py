"""The noisy histograms of a release, and what they say together about one column or pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.queries import Contribution, Count, Measurement, Noise
from app.engine.schema import PrivacyUnit, Schema

Floats = NDArray[np.float64]

# Noise below this leaves whole counts exact; its variance may be 0, by which nothing is divided.
LEAST_VARIANCE = 1e-3


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """A noisy histogram: values of float64, shape (cells of each column,), and the noise's
    variance in each cell, an array that broadcasts to it. laws: those of the noise in it."""

    columns: tuple[str, ...]
    groupings: tuple[Grouping, ...]
    rule: Contribution
    values: Floats
    variance: Floats
    noise: Noise

    @classmethod
    def of(cls, measured: Measurement, schema: Schema, unit: PrivacyUnit) -> NoisyTable | None:
        """None for what counts no cells of columns."""
        count = measured.count
        if not isinstance(count, Count) or count.function is not None or not count.columns:
            return None
        groupings = tuple(
            count.groupings.get(name, schema.column(name).grouping) for name in count.columns
        )
        variance = max(measured.variance, LEAST_VARIANCE)
        return cls(
            count.columns,
            groupings,
            # A row is its own unit: every rule counts it once.
            Contribution() if unit.kind == "row" else count.contribution,
            measured.values.astype(np.float64),
            np.full((1,) * len(count.columns), variance),
            measured.noise,
        )

    @property
    def noise_of_sum(self) -> float:
        """The variance of the sum of all cells: the less, the better are columns made of it."""
        return self.values.size * self.variance.item()

    def comparable(self, other: NoisyTable, columns: Sequence[str]) -> bool:
        """Whether both count the same quantity over `columns`, up to noise."""
        if self.rule != other.rule or not set(self.columns) >= set(columns):
            return False
        # `rows` adds up over the other columns. Another rule bounds joint cells, which differ.
        return self.rule.rule == "rows" or (
            set(self.columns) == set(other.columns) == set(columns)
            and self.cells_by_name == other.cells_by_name
        )

    @property
    def cells_by_name(self) -> dict[str, Grouping]:
        return dict(zip(self.columns, self.groupings, strict=True))

    def over(self, columns: Sequence[str], groupings: Sequence[Grouping]) -> NoisyTable | None:
        """A measured table over fewer or coarser cells; None if its cells do not make those up."""
        maps = [
            coarsened(self.groupings[self.columns.index(name)], wanted)
            for name, wanted in zip(columns, groupings, strict=True)
        ]
        dropped = tuple(axis for axis, name in enumerate(self.columns) if name not in columns)
        kept = [name for name in self.columns if name in columns]
        values = self.values.sum(axis=dropped).transpose([kept.index(name) for name in columns])
        summed = prod(self.groupings[axis].cells for axis in dropped)
        variance = np.full(values.shape, self.variance.item() * summed)
        for axis, (cells, wanted) in enumerate(zip(maps, groupings, strict=True)):
            if cells is None:
                return None
            if not np.array_equal(cells, np.arange(wanted.cells)):
                values = _merged(values, axis, cells, wanted.cells)
                variance = _merged(variance, axis, cells, wanted.cells)
        return NoisyTable(tuple(columns), tuple(groupings), self.rule, values, variance, self.noise)

    def with_(self, others: Iterable[NoisyTable]) -> NoisyTable:
        """The mean of tables of the same cells, weighted by inverse variance."""
        precision = 1 / self.variance
        weighted = self.values * precision
        noise = self.noise
        for other in others:
            precision = precision + 1 / other.variance
            weighted = weighted + other.values / other.variance
            # The heavier tails decide, though a mean is nearer to normal than one of its terms.
            noise = "laplace" if "laplace" in (noise, other.noise) else "gaussian"
        return NoisyTable(
            self.columns, self.groupings, self.rule, weighted / precision, 1 / precision, noise
        )

    @property
    def total(self) -> tuple[float, float]:
        """The sum of all cells, and its variance."""
        variance = np.broadcast_to(self.variance, self.values.shape)
        return float(self.values.sum()), float(variance.sum())


def coarsened(fine: Grouping, coarse: Grouping) -> NDArray[np.int64] | None:
    """The coarse cell of each fine one; None where a fine cell lies in several."""
    if fine is coarse or fine == coarse:
        return np.arange(fine.cells)
    if (fine.regular, fine.tail) != (coarse.regular, coarse.tail):
        return None
    starts = np.asarray(fine.edges[:-1], dtype=np.int64)
    ends = np.asarray(fine.edges[1:], dtype=np.int64)
    # Intervals of codes must lie in one interval of the coarse grouping, before it merges any.
    cuts = np.asarray(coarse.edges, dtype=np.int64)
    interval = np.searchsorted(cuts, starts, side="right")
    if (np.searchsorted(cuts, ends - 1, side="right") != interval).any():
        return None
    tail = fine.regular + np.arange(fine.tail)
    base = coarse.cell_of(np.concatenate([starts, tail]))
    if fine.merge is None:
        return base
    merge = np.asarray(fine.merge, dtype=np.int64)
    cells = np.zeros(fine.cells, dtype=np.int64)
    cells[merge] = base
    return cells if (cells[merge] == base).all() else None


def _merged(values: Floats, axis: int, cells: NDArray[np.int64], number: int) -> Floats:
    """Sums along an axis of what falls into the same cell."""
    moved = np.moveaxis(values, axis, 0)
    out = np.zeros((number, *moved.shape[1:]))
    np.add.at(out, cells, moved)
    return np.moveaxis(out, 0, axis)
