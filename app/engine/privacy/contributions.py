"""Exact histograms of the rows that count, in integers, under each contribution rule.

Nothing here is safe to publish: the kernel adds noise to what these functions return. The
sensitivity of each rule is stated and proved in `sensitivity`. `rows` is streamed chunk by
chunk. The other rules look at one entity at a time: the codes that they need are gathered
entity after entity, in their compact types, and processed in blocks of whole entities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.bounding import Bounded
from app.engine.privacy.clipped_sums import Summand
from app.engine.privacy.declared import EntityFunction, FeatureClasses, MixtureMode, RowNumber
from app.engine.privacy.functions import cells_of_units
from app.engine.privacy.queries import Contribution, Tuples
from app.engine.privacy.sensitivity import clip_radius
from app.engine.privacy.source import CodeSource
from app.engine.privacy.tuples import count_tuples, listed_items, tuples_held
from app.engine.privacy.units import EntityCells, blocks_of_units, unit_of_rows
from app.engine.schema import Schema
from app.engine.tuple_tree import TupleTree

# Items of one block of units: 16 MiB as int32.
_ITEMS_AT_ONCE = 2**22

Codes = Mapping[str, NDArray[Any]]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class ListedTuples:
    """A public list of tuples, and the tree in which a row's tuples are found."""

    tuples: Tuples
    groupings: tuple[Grouping, ...]
    tree: TupleTree = field(compare=False)

    @property
    def grouped(self) -> dict[str, Grouping]:
        return dict(zip(self.tuples.columns, self.groupings, strict=True))

    def counts(self, codes: Codes, starts: NDArray[np.int64], limit: int) -> Counts:
        """How many units hold each tuple, at most `limit` of each unit."""
        counts = np.zeros(len(self.tuples), dtype=np.int64)
        for items, begins in self._blocks(codes, starts):
            counts += count_tuples(self.tree, items, begins, limit)
        return counts

    def held(self, codes: Codes, starts: NDArray[np.int64]) -> Counts:
        """How many tuples each unit holds."""
        held = [tuples_held(self.tree, *block) for block in self._blocks(codes, starts)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *held])

    def _blocks(
        self, codes: Codes, starts: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """Items of whole units and where each unit's rows begin: the wider, the fewer rows."""
        most_rows = _ITEMS_AT_ONCE // max(self.tuples.width, 1)
        for first, end in blocks_of_units(starts, most_rows):
            rows = slice(int(starts[first]), int(starts[end]))
            part = {name: codes[name][rows] for name in self.tuples.columns}
            items = listed_items(part, self.tuples.columns, self.grouped, self.tuples.parts)
            yield items, starts[first : end + 1] - rows.start


@dataclass(frozen=True)
class Histogram:
    """What is to be counted: columns with their groupings, and the rule. No columns: one cell.

    `of` is what is counted instead of cells: a number summed in each cell, the tuples that a
    unit holds (of the columns), or the cells of a function (of its own columns).
    """

    columns: tuple[str, ...]
    groupings: tuple[Grouping, ...]
    contribution: Contribution
    of: Summand | ListedTuples | EntityFunction | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # groupings may be long, and a session looks histograms up often
        return hash((self.columns, self.groupings, self.contribution, self.of))

    @property
    def shape(self) -> tuple[int, ...]:
        match self.of:
            case None | Summand():
                return tuple(grouping.cells for grouping in self.groupings)
            case ListedTuples():
                return (len(self.of.tuples),)
            case function:
                return (function.cells,)

    @property
    def cells(self) -> int:
        return prod(self.shape)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        match self.of:
            case None | ListedTuples():
                return self.columns
            case Summand():
                return (*self.columns, self.of.column)
            case function:
                return function.columns


class _Cells:
    """Cell numbers of one stretch of rows; a column grouped by one object is looked up once.

    They are int32, which holds them since a question has at most 2^27 cells.
    """

    def __init__(self, codes: Codes, rows: int) -> None:
        self.codes = codes
        self._rows = rows
        self._known: dict[tuple[str, int], NDArray[np.int32]] = {}

    def of(self, histogram: Histogram) -> NDArray[np.int32]:
        """Flat cell numbers in C order, shape (rows,)."""
        if not histogram.columns:
            return np.zeros(self._rows, dtype=np.int32)
        axes = zip(histogram.columns, histogram.groupings, strict=True)
        flat = self._column(*next(axes))
        for name, grouping in axes:
            flat = flat * np.int32(grouping.cells)
            flat += self._column(name, grouping)
        return flat

    def _column(self, name: str, grouping: Grouping) -> NDArray[np.int32]:
        cells = self._known.get((name, id(grouping)))
        if cells is None:
            wide = grouping.cell_of(self.codes[name])
            if wide.size and not 0 <= wide.min() <= wide.max() < grouping.cells:
                raise ValueError(f"a stored code of `{name}` is outside its grouping")
            cells = self._known[name, id(grouping)] = wide.astype(np.int32)
        return cells


def exact_histograms(
    source: CodeSource, bounded: Bounded, histograms: Sequence[Histogram]
) -> list[Counts]:
    """Flat int64 histograms, shape (cells,), in one pass over the source.

    `clipped` ones are in steps of the grid, the others in counts.
    """
    totals = [np.zeros(histogram.cells, dtype=np.int64) for histogram in histograms]
    pairs = list(zip(totals, histograms, strict=True))
    by_row = [pair for pair in pairs if _is_by_row(pair[1], bounded)]
    by_unit = [pair for pair in pairs if not _is_by_row(pair[1], bounded)]
    gathered = _Gathered.empty(source, bounded, [histogram for _, histogram in by_unit])
    names = _names(source, histograms)
    first = 0
    for chunk in source.chunks(names):
        rows = len(chunk[names[0]])
        place = None if bounded.place is None else bounded.place[first : first + rows]
        first += rows
        if by_row:
            cells = _Cells(*_counted(chunk, rows, place))
            for total, histogram in by_row:
                _add_rows(total, histogram, cells)
        if place is not None:
            gathered.put(chunk, place)
            continue
        for total, histogram in by_unit:  # each row is a unit
            for begin, end in blocks_of_units(np.arange(rows + 1)):
                part = {name: codes[begin:end] for name, codes in chunk.items()}
                _add_units(total, histogram, part, np.arange(end - begin + 1), source.schema)
    # Rows were bounded by their position: with other rows, a unit could count beyond k.
    if bounded.place is not None and first != len(bounded.place):
        raise ValueError("the source changed while the session was open")
    if not bounded.is_row_unit:
        for total, histogram in by_unit:
            gathered.add(total, histogram, source.schema)
    return totals


def _is_by_row(histogram: Histogram, bounded: Bounded) -> bool:
    """Whether each row adds to it by itself; on a row unit every rule but a function does."""
    return histogram.contribution.rule == "rows" or (bounded.is_row_unit and histogram.of is None)


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
        unit_of_rows(gathered.starts)
    )


def counted_units(
    source: CodeSource, bounded: Bounded, names: Sequence[str]
) -> Iterator[tuple[Codes, NDArray[np.int64]]]:
    """The rows that count in blocks of whole units: codes of `names`, and where each unit's
    rows begin, shape (units + 1,)."""
    read = tuple(names) or (source.schema.columns[0].name,)
    if not bounded.is_row_unit:
        codes, _ = counted_codes(source, bounded, read)
        assert bounded.starts is not None
        for first, end in blocks_of_units(bounded.starts):
            starts = bounded.starts[first : end + 1]
            yield {name: codes[name][starts[0] : starts[-1]] for name in read}, starts - starts[0]
        return
    for chunk in source.chunks(read):
        yield chunk, np.arange(len(chunk[read[0]]) + 1, dtype=np.int64)


def _names(source: CodeSource, histograms: Sequence[Histogram]) -> tuple[str, ...]:
    """Columns to read; a table is never read without one, since its rows must be seen."""
    named = dict.fromkeys(name for histogram in histograms for name in histogram.reads)
    return tuple(named) or (source.schema.columns[0].name,)


def _counted(chunk: Codes, rows: int, place: NDArray[np.int64] | None) -> tuple[Codes, int]:
    if place is None:
        return chunk, rows
    kept = place >= 0
    return {name: codes[kept] for name, codes in chunk.items()}, int(kept.sum())


def _add_rows(totals: Counts, histogram: Histogram, cells: _Cells) -> None:
    if isinstance(histogram.of, Summand):
        numbers = histogram.of.steps(cells.codes[histogram.of.column])
        np.add.at(totals, cells.of(histogram), numbers)
    else:
        _add(totals, cells.of(histogram), _row_weight(histogram))


def _row_weight(histogram: Histogram) -> int:
    """What one row adds. A clipped unit vector is itself, or C steps if C is below one count."""
    if histogram.contribution.rule != "clipped":
        return 1
    assert histogram.contribution.norm is not None
    return clip_radius(histogram.contribution.norm, 1)


def _add(totals: Counts, cells: NDArray[np.integer[Any]], weight: int = 1) -> None:
    # `bincount` allocates all cells, which is wasteful for few rows in a wide histogram.
    if len(totals) > len(cells):
        np.add.at(totals, cells, weight)
        return
    times = np.bincount(cells, minlength=len(totals))
    totals += times if weight == 1 else weight * times


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
            {name: np.zeros(kept, dtype=source.schema.column(name).dtype) for name in names}, starts
        )

    @classmethod
    def empty(
        cls, source: CodeSource, bounded: Bounded, histograms: Sequence[Histogram]
    ) -> _Gathered:
        names = dict.fromkeys(name for histogram in histograms for name in histogram.reads)
        return cls.of_columns(source, bounded, tuple(names))

    def put(self, chunk: Codes, place: NDArray[np.int64]) -> None:
        kept = place >= 0
        where = place[kept]
        for name, codes in self.codes.items():
            codes[where] = chunk[name][kept]

    def add(self, totals: Counts, histogram: Histogram, schema: Schema) -> None:
        for first, end in blocks_of_units(self.starts):
            rows = slice(int(self.starts[first]), int(self.starts[end]))
            codes = {name: self.codes[name][rows] for name in histogram.reads}
            starts = self.starts[first : end + 1] - rows.start
            _add_units(totals, histogram, codes, starts, schema)


def _add_units(
    totals: Counts, histogram: Histogram, codes: Codes, starts: NDArray[np.int64], schema: Schema
) -> None:
    """Adds what each unit of a block contributes, from its own rows alone."""
    limit = histogram.contribution.limit
    if isinstance(histogram.of, ListedTuples):
        assert limit is not None
        totals += histogram.of.counts(codes, starts, limit)
        return
    entity = unit_of_rows(starts)
    if isinstance(histogram.of, RowNumber | MixtureMode | FeatureClasses):
        _add(totals, cells_of_units(histogram.of, codes, entity, schema))
        return
    cells = _Cells(codes, len(entity)).of(histogram).astype(np.int64)
    pairs = EntityCells.of(entity, cells, histogram.cells)
    match histogram.contribution.rule:
        case "distinct":
            assert limit is not None
            _add(totals, pairs.drawn(limit))
        case "one":
            _add(totals, pairs.most_frequent())
        case "clipped":
            assert histogram.contribution.norm is not None
            np.add.at(totals, pairs.cell, pairs.clipped(histogram.contribution.norm))
        case "rows":
            raise ValueError("`rows` is counted row by row")
