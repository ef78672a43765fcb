"""Exact histograms of the rows that count, in integers, under each contribution rule.

Nothing here is private output: the kernel adds noise to what these functions return.
`rows` is streamed chunk by chunk. The other rules look at one entity at a time: the codes
they need are gathered entity after entity, in their compact types, and worked through in
blocks of whole entities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.bounding import Bounded, random_keys, rank_within
from app.engine.privacy.queries import Contribution
from app.engine.privacy.sensitivity import GRID, LARGEST_CLIPPED, clip_radius
from app.engine.privacy.source import CodeSource

_BLOCK_ROWS = 2**18
_DENSE_CELLS = 2**20

Codes = Mapping[str, NDArray[Any]]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Histogram:
    """What is to be counted: columns with their groupings, and the rule. No columns: one cell."""

    columns: tuple[str, ...]
    groupings: tuple[Grouping, ...]
    contribution: Contribution

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # groupings may be long, and a session looks histograms up often
        return hash((self.columns, self.groupings, self.contribution))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(grouping.cells for grouping in self.groupings)

    @property
    def cells(self) -> int:
        return prod(self.shape)


class _Cells:
    """Cell numbers of one stretch of rows; a column grouped by one object is looked up once."""

    def __init__(self, codes: Codes, rows: int) -> None:
        self._codes = codes
        self._rows = rows
        self._known: dict[tuple[str, int], NDArray[np.int64]] = {}

    def of(self, histogram: Histogram) -> NDArray[np.int64]:
        """Flat cell numbers in C order, int64, shape (rows,)."""
        flat = np.zeros(self._rows, dtype=np.int64)
        for name, grouping in zip(histogram.columns, histogram.groupings, strict=True):
            flat *= grouping.cells
            flat += self._column(name, grouping)
        return flat

    def _column(self, name: str, grouping: Grouping) -> NDArray[np.int64]:
        cells = self._known.get((name, id(grouping)))
        if cells is None:
            cells = grouping.cell_of(self._codes[name])
            if cells.size and not 0 <= cells.min() <= cells.max() < grouping.cells:
                raise ValueError(f"a stored code of `{name}` is outside its grouping")
            self._known[name, id(grouping)] = cells
        return cells


def exact_histograms(
    source: CodeSource, bounded: Bounded, histograms: Sequence[Histogram]
) -> list[Counts]:
    """Flat int64 histograms, shape (cells,), in one pass over the source.

    `clipped` ones are in steps of the grid, the others in counts.
    """
    totals = [np.zeros(histogram.cells, dtype=np.int64) for histogram in histograms]
    by_row = [
        index
        for index, histogram in enumerate(histograms)
        if bounded.is_row_unit or histogram.contribution.rule == "rows"
    ]
    by_entity = [index for index in range(len(histograms)) if index not in set(by_row)]
    gathered = _Gathered.empty(source, bounded, [histograms[index] for index in by_entity])
    names = _names(source, histograms)
    first = 0
    for chunk in source.chunks(names):
        rows = len(chunk[names[0]])
        place = None if bounded.place is None else bounded.place[first : first + rows]
        first += rows
        if by_row:
            cells = _Cells(*_counted(chunk, rows, place))
            for index in by_row:
                _add(totals[index], cells.of(histograms[index]), _row_weight(histograms[index]))
        if by_entity:
            assert place is not None
            gathered.put(chunk, place)
    if bounded.place is not None and first != len(bounded.place):
        raise ValueError("the source changed while the session was open")
    for index in by_entity:
        gathered.add(totals[index], histograms[index])
    return totals


def counted_codes(
    source: CodeSource, bounded: Bounded, names: Sequence[str]
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64] | None]:
    """The rows that count themselves: codes of `names`, and an entity number for each row.

    On an entity unit the rows come entity after entity; the numbers are None on a row unit.
    """
    if bounded.is_row_unit:
        chunks = list(source.chunks(names))
        whole = {
            name: np.concatenate([np.empty(0, np.int64), *(chunk[name] for chunk in chunks)])
            for name in names
        }
        return {name: codes.astype(np.int64) for name, codes in whole.items()}, None
    gathered = _Gathered.of_columns(source, bounded, names)
    first = 0
    assert bounded.place is not None
    for chunk in source.chunks(names):
        rows = len(chunk[names[0]])
        gathered.put(chunk, bounded.place[first : first + rows])
        first += rows
    return {name: codes.astype(np.int64) for name, codes in gathered.codes.items()}, (
        gathered.entity(0, gathered.entities)
    )


def _names(source: CodeSource, histograms: Sequence[Histogram]) -> tuple[str, ...]:
    """Columns to read; a table is never read without one, since its rows must be seen."""
    named = dict.fromkeys(name for histogram in histograms for name in histogram.columns)
    return tuple(named) or (source.schema.columns[0].name,)


def _counted(chunk: Codes, rows: int, place: NDArray[np.int64] | None) -> tuple[Codes, int]:
    if place is None:
        return chunk, rows
    kept = place >= 0
    return {name: codes[kept] for name, codes in chunk.items()}, int(kept.sum())


def _row_weight(histogram: Histogram) -> int:
    """What one row adds. A clipped unit vector is itself, or C steps if C is below one count."""
    if histogram.contribution.rule != "clipped":
        return 1
    assert histogram.contribution.norm is not None
    return clip_radius(histogram.contribution.norm, 1)


def _add(totals: Counts, cells: NDArray[np.int64], weight: int = 1) -> None:
    if len(totals) <= _DENSE_CELLS:
        totals += weight * np.bincount(cells, minlength=len(totals))
        return
    hit, times = np.unique(cells, return_counts=True)
    totals[hit] += weight * times


@dataclass(frozen=True)
class _Gathered:
    """Codes of the rows that count, entity after entity."""

    codes: dict[str, NDArray[Any]]
    starts: NDArray[np.int64]

    @classmethod
    def of_columns(cls, source: CodeSource, bounded: Bounded, names: Sequence[str]) -> _Gathered:
        starts = bounded.starts if bounded.starts is not None else np.zeros(1, np.int64)
        kept = int(starts[-1])
        return cls(
            {name: np.zeros(kept, dtype=source.schema.column(name).dtype) for name in names},
            starts,
        )

    @classmethod
    def empty(
        cls, source: CodeSource, bounded: Bounded, histograms: Sequence[Histogram]
    ) -> _Gathered:
        names = dict.fromkeys(name for histogram in histograms for name in histogram.columns)
        return cls.of_columns(source, bounded, tuple(names))

    @property
    def entities(self) -> int:
        return len(self.starts) - 1

    def put(self, chunk: Codes, place: NDArray[np.int64]) -> None:
        kept = place >= 0
        where = place[kept]
        for name, codes in self.codes.items():
            codes[where] = chunk[name][kept]

    def entity(self, first: int, end: int) -> NDArray[np.int64]:
        """For each row of entities first..end-1 the entity's number, counted from 0."""
        sizes = np.diff(self.starts[first : end + 1])
        return np.repeat(np.arange(end - first, dtype=np.int64), sizes)

    def add(self, totals: Counts, histogram: Histogram) -> None:
        for first, end in self._blocks():
            rows = slice(int(self.starts[first]), int(self.starts[end]))
            codes = {name: codes[rows] for name, codes in self.codes.items()}
            cells = _Cells(codes, rows.stop - rows.start).of(histogram)
            pairs = _EntityCells.of(self.entity(first, end), cells, histogram.cells)
            pairs.add(totals, histogram.contribution)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of whole entities with about `_BLOCK_ROWS` rows, or one entity if larger."""
        first = 0
        while first < self.entities:
            limit = self.starts[first] + _BLOCK_ROWS
            end = max(first + 1, int(np.searchsorted(self.starts, limit, side="right")) - 1)
            yield first, end
            first = end


@dataclass(frozen=True)
class _EntityCells:
    """Each (entity, cell) that occurs, sorted by entity, with how many rows fall there."""

    entity: NDArray[np.int64]
    cell: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(
        cls, entity: NDArray[np.int64], cells: NDArray[np.int64], cell_count: int
    ) -> _EntityCells:
        pairs, rows = np.unique(entity * cell_count + cells, return_counts=True)
        return cls(pairs // cell_count, pairs % cell_count, rows.astype(np.int64))

    def add(self, totals: Counts, contribution: Contribution) -> None:
        match contribution.rule:
            case "distinct":
                assert contribution.limit is not None
                _add(totals, self.drawn(contribution.limit))
            case "one":
                _add(totals, self.most_frequent())
            case "clipped":
                assert contribution.norm is not None
                np.add.at(totals, self.cell, self.clipped(contribution.norm))
            case "rows":
                raise ValueError("`rows` is counted row by row")

    def drawn(self, limit: int) -> NDArray[np.int64]:
        """At most `limit` cells of each entity, uniformly without replacement."""
        order = _shuffled_within(self.entity)
        kept = rank_within(self.entity) < limit
        return self.cell[order[kept]]

    def most_frequent(self) -> NDArray[np.int64]:
        """The cell of each entity with most rows; ties are broken at random."""
        if not len(self.entity):
            return self.cell
        begins = np.flatnonzero(np.diff(self.entity, prepend=-1))
        most = np.maximum.reduceat(self.rows, begins)
        leading = np.flatnonzero(self.rows == most[self.entity])
        tied = self.entity[leading]
        drawn: NDArray[np.int64] = leading[_shuffled_within(tied)[rank_within(tied) == 0]]
        return self.cell[drawn]

    def clipped(self, norm: float) -> NDArray[np.int64]:
        """Steps of the grid for each pair: each entity's vector scaled down to at most C.

        Scaling is done in floats, rounded towards zero; the norm is then checked in
        integers, and an entity whose float came out too large loses one step a cell.
        """
        radius = clip_radius(norm, LARGEST_CLIPPED)
        entities = int(self.entity[-1]) + 1 if len(self.entity) else 0
        steps = self.rows * GRID
        norms = np.sqrt(self._squares(steps, entities).astype(np.float64))
        factor = np.minimum(1.0, radius / norms)[self.entity]
        scaled = np.floor(steps * factor).astype(np.int64)
        while (excess := self._squares(scaled, entities) > radius**2).any():
            scaled = np.maximum(scaled - excess[self.entity], 0)
        return scaled

    def _squares(self, steps: NDArray[np.int64], entities: int) -> NDArray[np.int64]:
        totals = np.zeros(entities, dtype=np.int64)
        np.add.at(totals, self.entity, steps * steps)
        return totals


def _shuffled_within(entity: NDArray[np.int64]) -> NDArray[np.int64]:
    """An order that leaves sorted entities in place and shuffles the elements of each.

    One sort, of 18 bits of entity (a block has no more) above 46 random bits. Two of j
    elements draw equal bits with probability at most j^2 / 2^47; see `bounding` on ties.
    """
    keys = (entity.astype(np.uint64) << np.uint64(46)) | (random_keys(len(entity)) >> np.uint64(18))
    order: NDArray[np.int64] = np.argsort(keys)
    return order
