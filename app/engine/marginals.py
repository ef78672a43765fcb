"""Total variation distances between the marginals of two tables, in bounded memory.

The tables are read column by column and chunk by chunk, as often as necessary. Either may be
exact: the result of a comparison with private rows is for the custodian only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb, prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping

Codes = Mapping[str, NDArray[Any]]
Counts = NDArray[np.int64]
# Numbers of cells: int64, or byte strings for marginals with more than 2^63 cells.
Cells = NDArray[Any]

# Up to this many cells, 32 MB, all cells have a count; in larger marginals only those that occur.
_DENSE_CELLS = 2**22
# About how many counts of one table are in memory at a time: 128 MB.
_CELLS_AT_ONCE = 2**24
# Cells that an int64 can number.
_MOST_NUMBERED = 2**63


class ChunkedTable(Protocol):
    """A table of stored codes, always in the same row order."""

    def chunks(self, columns: Sequence[str]) -> Iterator[Codes]:
        """For each chunk the codes of `columns` (at least one), arrays of equal length."""
        ...


@dataclass(frozen=True)
class Marginal:
    """Columns, each grouped into cells; cells are numbered in C order."""

    groupings: Mapping[str, Grouping]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.groupings)

    @cached_property
    def cells(self) -> int:
        return prod(grouping.cells for grouping in self.groupings.values())

    @cached_property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """The columns in groups, each of which one int64 can number; usually there is one group."""
        runs: list[tuple[str, ...]] = []
        cells = _MOST_NUMBERED + 1
        for name, grouping in self.groupings.items():
            cells *= grouping.cells
            if cells > _MOST_NUMBERED:
                runs, cells = [*runs, ()], grouping.cells
            runs[-1] += (name,)
        return tuple(runs)


def total_variation(real: Counts, synthetic: Counts) -> float:
    """Half the L1 distance of the relative frequencies of the same cells, in [0, 1].

    0 for two empty tables, 1 where only one is empty.
    """
    totals = real.sum(), synthetic.sum()
    if not all(totals):
        return float(any(totals))
    return float(np.abs(real / totals[0] - synthetic / totals[1]).sum() / 2)


def distances(
    real: ChunkedTable, synthetic: ChunkedTable, marginals: Sequence[Marginal]
) -> Iterator[float]:
    """The total variation distance of each marginal, in order."""
    for group in _groups(marginals):
        ours, theirs = _counted(real, group), _counted(synthetic, group)
        for one, other in zip(ours, theirs, strict=True):
            yield total_variation(*one.beside(other))


def counts(table: ChunkedTable, marginals: Sequence[Marginal]) -> Iterator[Counts | None]:
    """The counts of each marginal, flat, in order; None for a marginal with too many cells."""
    for group in _groups(marginals):
        for tally in _counted(table, group):
            yield tally.counts if tally.cells is None else None


def distinct(values: Cells) -> Cells:
    """The distinct values in order.

    Sorting is some twenty times faster than `np.unique`, which uses a hash table if it returns
    the values only.
    """
    ordered = np.sort(values)
    is_new = np.ones(len(ordered), dtype=np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    found: Cells = ordered[is_new]
    return found


def chosen(names: Sequence[str], size: int, most: int, seed: int) -> list[tuple[str, ...]]:
    """All choices of `size` names in order, or `most` random ones if there are more.

    The seed is public, and the same names give the same choices.
    """
    if comb(len(names), size) <= most:
        return list(combinations(names, size))
    rng = np.random.Generator(np.random.PCG64DXSM(seed))
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < most:
        drawn.add(tuple(sorted(rng.choice(len(names), size, replace=False).tolist())))
    return [tuple(names[place] for place in places) for places in sorted(drawn)]


@dataclass
class _Tally:
    """The counts of one marginal: of all cells, or with `cells`, of those that occur, in order."""

    counts: Counts
    cells: Cells | None

    @classmethod
    def of(cls, marginal: Marginal) -> _Tally:
        if marginal.cells <= _DENSE_CELLS:
            return cls(np.zeros(marginal.cells, dtype=np.int64), None)
        words = [np.zeros(0, dtype=np.int64) for _ in marginal.words]
        return cls(np.zeros(0, dtype=np.int64), _keys(words))

    def add(self, cells: Cells) -> None:
        if self.cells is None:
            self.counts += np.bincount(cells, minlength=len(self.counts))
            return
        hit, times = np.unique(cells, return_counts=True)
        self.cells, self.counts = _merged(self.cells, self.counts, hit, times)

    def beside(self, other: _Tally) -> tuple[Counts, Counts]:
        """The counts of both over the same cells."""
        if self.cells is None or other.cells is None:
            return self.counts, other.counts
        both = distinct(np.concatenate([self.cells, other.cells]))
        return self._over(both), other._over(both)

    def _over(self, cells: Cells) -> Counts:
        counts = np.zeros(len(cells), dtype=np.int64)
        counts[np.searchsorted(cells, self.cells)] = self.counts  # type: ignore[arg-type]
        return counts


def _merged(cells: Cells, counts: Counts, hit: Cells, times: Counts) -> tuple[Cells, Counts]:
    both, place = np.unique(np.concatenate([cells, hit]), return_inverse=True)
    totals = np.zeros(len(both), dtype=np.int64)
    np.add.at(totals, place.reshape(-1), np.concatenate([counts, times]))
    return both, totals


def _groups(marginals: Sequence[Marginal]) -> Iterator[list[Marginal]]:
    group: list[Marginal] = []
    held = 0
    for marginal in marginals:
        size = min(marginal.cells, _DENSE_CELLS)
        if group and held + size > _CELLS_AT_ONCE:
            yield group
            group, held = [], 0
        group.append(marginal)
        held += size
    if group:
        yield group


def _counted(table: ChunkedTable, marginals: Sequence[Marginal]) -> list[_Tally]:
    tallies = [_Tally.of(marginal) for marginal in marginals]
    names = tuple(dict.fromkeys(name for each in marginals for name in each.columns))
    for chunk in table.chunks(names):
        known: dict[tuple[str, int], NDArray[np.int64]] = {}
        for tally, marginal in zip(tallies, marginals, strict=True):
            tally.add(_cells(chunk, marginal, known))
    return tallies


def _cells(
    chunk: Codes, marginal: Marginal, known: dict[tuple[str, int], NDArray[np.int64]]
) -> Cells:
    """The cell of each row. A column with the same grouping in several marginals is mapped once."""
    words = []
    for run in marginal.words:
        flat: NDArray[np.int64] | int = 0
        for name in run:
            grouping = marginal.groupings[name]
            if (name, id(grouping)) not in known:
                known[name, id(grouping)] = grouping.cell_of(chunk[name])
            flat = flat * grouping.cells + known[name, id(grouping)]
        words.append(np.asarray(flat, dtype=np.int64))
    return _keys(words)


def _keys(words: Sequence[NDArray[np.int64]]) -> Cells:
    """One key per row: its only word, or all of its words as a byte string.

    Big-endian byte strings sort as their numbers do. numpy drops zeros at their end as padding,
    which changes no comparison, since all have the same length.
    """
    if len(words) == 1:
        return words[0]
    table = np.stack(words, axis=1).astype(">i8")
    keys: Cells = table.view(f"S{table.shape[1] * table.itemsize}").reshape(-1)
    return keys
