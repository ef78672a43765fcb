"""Columns drawn one after another from public conditional distributions, with fall-backs.

The distribution of a column given others is the empirical one: the values that public rows
have where they agree with the synthetic row on the given columns: in their values, or at
least in the cells of their groupings, such as the bins of a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.public.rows import PublicRows

Codes = Mapping[str, NDArray[np.int64]]
# Columns, each compared by the cells of a grouping; None: by its stored code itself.
Given = Mapping[str, Grouping | None]

# Beyond any stored code; times a number of rows, all below 2^31, it still fits 64 bits.
_CODES = 2**32


@dataclass(frozen=True, slots=True)
class Numbering:
    """The distinct tuples of some columns' cells, numbered from 0.

    A tuple is numbered column by column: `steps[i]` holds, sorted, each pair that occurs of
    the number of its first i cells and its cell in column i, as `number * sizes[i] + cell`.
    Sizes are at most 2^32 and rows below 2^31, so that nothing passes 64 bits.
    """

    sizes: tuple[int, ...]
    steps: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(
        cls, cells: Sequence[NDArray[np.int64]], sizes: Sequence[int], rows: int
    ) -> tuple[Numbering, NDArray[np.int64]]:
        """The keys of `rows` rows, and each row's number, shape (rows,)."""
        number = np.zeros(rows, dtype=np.int64)
        steps = []
        for column, size in zip(cells, sizes, strict=True):
            step, inverse = np.unique(number * size + column, return_inverse=True)
            steps.append(step)
            number = inverse.reshape(-1).astype(np.int64)
        return cls(tuple(sizes), tuple(steps)), number

    @property
    def count(self) -> int:
        return len(self.steps[-1]) if self.steps else 1

    def find(self, cells: Sequence[NDArray[np.int64]], rows: int) -> NDArray[np.int64]:
        """The number of each row's tuple, -1 for one that is not among the keys."""
        number = np.zeros(rows, dtype=np.int64)
        for column, size, step in zip(cells, self.sizes, self.steps, strict=True):
            wanted = number * size + column
            place = np.minimum(np.searchsorted(step, wanted), len(step) - 1)
            number = np.where((number >= 0) & (step[place] == wanted), place, -1)
        return number


@dataclass(frozen=True, slots=True)
class Conditional:
    """The public rows for each key of the given columns: those of key i are
    `order[starts[i]:starts[i + 1]]`."""

    given: Given
    keys: Numbering
    starts: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, public: PublicRows, given: Given) -> Conditional:
        sizes = [_CODES if grouping is None else grouping.cells for grouping in given.values()]
        keys, number = Numbering.of(_cells(given, public.codes), sizes, public.rows)
        starts = np.searchsorted(np.sort(number), np.arange(keys.count + 1))
        return cls(given, keys, starts, np.argsort(number, kind="stable"))

    def draw(self, codes: Codes, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """A public row for each of `rows` rows with `codes`, -1 where none agrees with it.

        The rows of a key are taken in turn from a random one on, each as often as any other
        give or take one.
        """
        found = self.keys.find(_cells(self.given, codes), rows)
        return taken_in_turn(self.starts, self.order, found, rng)


def _cells(given: Given, codes: Codes) -> list[NDArray[np.int64]]:
    return [
        codes[name] if grouping is None else grouping.cell_of(codes[name])
        for name, grouping in given.items()
    ]


def taken_in_turn(
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    group: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """For each row of group g an entry of `order[starts[g]:starts[g + 1]]`, -1 where g is -1.

    Within a group each entry is taken as often as any other give or take one, in random
    order: the expectation of independent draws with less variance (sampling without
    replacement). No group that is asked for is empty.
    """
    taken = np.full(len(group), -1, dtype=np.int64)
    asked = np.flatnonzero(group >= 0)
    if not len(asked):
        return taken
    shuffled = order[_shuffled_within(starts, len(order), rng)]
    # Shuffled before the stable sort, so that rows of a group do not take entries in their order.
    mixed = rng.permutation(asked)
    mixed = mixed[np.argsort(group[mixed], kind="stable")]
    groups = group[mixed]
    begins = np.searchsorted(groups, groups)
    size = np.diff(starts)[groups]
    taken[mixed] = shuffled[starts[groups] + (np.arange(len(mixed)) - begins) % size]
    return taken


def _shuffled_within(
    starts: NDArray[np.int64], length: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order: NDArray[np.int64] = np.lexsort((rng.random(length), group))
    return order


@dataclass(frozen=True, slots=True)
class Link:
    """A column of the chain, and what it is drawn given: the first set that a public row
    agrees with the synthetic row on; the last is empty, so that there always is one."""

    column: str
    levels: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not self.levels or self.levels[-1]:
            raise ValueError("the last fall-back is the column's own distribution")


def links(chain: Sequence[tuple[str, Sequence[str]]], fallback: Sequence[str]) -> tuple[Link, ...]:
    """Links of (column, given columns) pairs that fall back to `fallback`, then to nothing."""
    return tuple(
        Link(column, tuple(dict.fromkeys((tuple(given), tuple(fallback), ()))))
        for column, given in chain
    )


@dataclass(frozen=True)
class Comparison:
    """How given columns are compared: by value first, then by the cells of `groupings`;
    those in `binned` by cells only."""

    groupings: Mapping[str, Grouping]
    binned: frozenset[str] = frozenset()

    def stages(self, columns: Sequence[str]) -> list[Given]:
        """Finest first."""
        cells: Given = {name: self.groupings[name] for name in columns}
        values = {name: cut if name in self.binned else None for name, cut in cells.items()}
        return [values, cells] if any(self._coarser(name) for name in columns) else [values]

    def _coarser(self, name: str) -> bool:
        grouping = self.groupings[name]
        return name not in self.binned and grouping.cells < grouping.codes


def draw_chain(
    chain: Sequence[Link],
    public: PublicRows,
    comparison: Comparison,
    codes: Codes,
    rows: int,
    rng: np.random.Generator,
) -> dict[str, NDArray[np.int64]]:
    """`codes` with each link's column added, drawn given what came before it."""
    tables: dict[tuple[str, ...], list[Conditional]] = {}
    drawn = dict(codes)
    for link in chain:
        source = np.full(rows, -1, dtype=np.int64)
        for level in link.levels:
            if level not in tables:
                stages = comparison.stages(level)
                tables[level] = [Conditional.of(public, given) for given in stages]
            for table in tables[level]:
                open_rows = np.flatnonzero(source < 0)
                known = {name: drawn[name][open_rows] for name in level}
                source[open_rows] = table.draw(known, len(open_rows), rng)
        drawn[link.column] = public.codes[link.column][source]
    return drawn
