"""Noisy counts of listed combinations (`TupleCount`), as evidence about single columns and pairs.

A unit counts in at most `limit` of the listed combinations that it holds, drawn at random. The
sample is counted in the same way: each of the h that a unit holds counts min(1, limit / h), the
expectation over the draw. Compared are the listed combinations of the same columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.queries import Contribution, Measurement, TupleCount
from app.engine.schema import Schema
from app.engine.statements.counting import SampleCounts
from app.engine.statements.noisy import LEAST_VARIANCE, Floats, NoisyTable

# Combinations that the rows of a sample hold, together; 16 bytes each.
MOST_HELD = 2**25


@dataclass(frozen=True, eq=False)
class ListedCombinations:
    """A measured list of combinations of one or two cells."""

    measured: Measurement
    schema: Schema
    counts: SampleCounts

    @classmethod
    def of(
        cls, measured: Measurement, schema: Schema, counts: SampleCounts
    ) -> ListedCombinations | None:
        """None for other questions, longer combinations, and parts of cells."""
        query = measured.count
        if not isinstance(query, TupleCount) or query.tuples.length > 2 or query.tuples.parts:
            return None
        found = cls(measured, schema, counts)
        rows, sets = counts.sample.rows, len(found.sets)
        is_known = set(query.columns) <= set(counts.sample.codes)
        return found if is_known and rows * sets <= MOST_HELD else None

    @property
    def query(self) -> TupleCount:
        query = self.measured.count
        assert isinstance(query, TupleCount)
        return query

    @cached_property
    def groupings(self) -> tuple[Grouping, ...]:
        query = self.query
        return tuple(
            query.groupings.get(name, self.schema.column(name).grouping) for name in query.columns
        )

    @cached_property
    def sets(self) -> dict[tuple[int, ...], NDArray[np.int64]]:
        """For each choice of columns the places of its combinations in the list."""
        offsets = np.cumsum([0, *(grouping.cells for grouping in self.groupings)])
        column = np.searchsorted(offsets, self.query.tuples.items, side="right") - 1
        order = np.lexsort(column.T[::-1])
        ordered = column[order]
        is_new = np.ones(len(order), dtype=bool)
        is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        starts = np.flatnonzero(is_new)
        return {
            tuple(int(each) for each in ordered[start]): np.sort(part)
            for start, part in zip(starts, np.split(order, starts[1:]), strict=True)
        }

    @cached_property
    def synthetic(self) -> Floats:
        """What the sample counts for each listed combination, shape (combinations,)."""
        held = [np.zeros((2, 0), dtype=np.int64), *self._held()]
        unit, place = np.concatenate(held, axis=1)
        number = np.bincount(unit)
        weight = np.minimum(1.0, self.query.limit / np.maximum(number, 1))[unit]
        counts = np.bincount(place, weight, minlength=len(self.query.tuples))
        return counts.astype(np.float64)

    def _held(self) -> Iterator[NDArray[np.int64]]:
        """Unit and combination of each that a unit holds, shape (2, n); each once."""
        size = len(self.query.tuples)
        for columns, places in self.sets.items():
            shape = [self.groupings[column].cells for column in columns]
            listed = np.full(int(np.prod(shape)), -1, dtype=np.int64)
            listed[self._cells_of(columns, places, shape)] = places
            flat = np.zeros(self.counts.sample.rows, dtype=np.int64)
            for column, cells in zip(columns, shape, strict=True):
                own = self.counts.cells(self.query.columns[column], self.groupings[column])
                flat = flat * cells + own
            place = listed[flat]
            kept = place >= 0
            unit = self.counts.unit[kept]
            if self.counts.repeats:
                both = np.unique(unit * size + place[kept])
                yield np.stack([both // size, both % size])
            else:
                yield np.stack([unit, place[kept]])

    def _cells_of(
        self, columns: Sequence[int], places: NDArray[np.int64], shape: Sequence[int]
    ) -> NDArray[np.int64]:
        """The flat cells of combinations of these columns, in the order of the columns given."""
        offsets = np.cumsum([0, *(grouping.cells for grouping in self.groupings)])
        # Items rise in a combination, and so do their columns.
        position = np.argsort(np.argsort(columns))
        flat = np.zeros(len(places), dtype=np.int64)
        for axis, (column, cells) in enumerate(zip(columns, shape, strict=True)):
            item = self.query.tuples.items[places, position[axis]]
            flat = flat * cells + item - offsets[column]
        return flat

    def about(self, names: tuple[str, ...]) -> FoundCombinations | None:
        """Those of these columns, if two at least are listed."""
        if not set(names) <= set(self.query.columns):
            return None
        columns = [self.query.columns.index(name) for name in names]
        places = self.sets.get(tuple(sorted(columns)))
        if places is None or len(places) < 2:
            return None
        groupings = tuple(self.groupings[column] for column in columns)
        noisy = NoisyTable(
            names,
            groupings,
            Contribution("distinct", limit=self.query.limit),
            self.measured.values[places].astype(np.float64),
            np.full(1, max(self.measured.variance, LEAST_VARIANCE)),
            self.measured.noise,
        )
        shape = [grouping.cells for grouping in groupings]
        cells = self._cells_of(columns, places, shape)
        return FoundCombinations(noisy, self.synthetic[places], cells)


@dataclass(frozen=True, slots=True, eq=False)
class FoundCombinations:
    """Noisy and synthetic counts of some columns' combinations, flat, and the flat cell of each."""

    noisy: NoisyTable
    synthetic: Floats
    cells: NDArray[np.int64]
