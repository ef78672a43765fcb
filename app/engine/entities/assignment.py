"""Which rows belong to one entity: sizes are kept, other statistics come near their targets.

Whole rows change places between entities, so the table of rows stays as it was and with it every
marginal. Rows begin in an order in which neighbours share values of one or two columns; then
pairs of rows are swapped wherever that does not raise the misfit. That is the sum over entities
and columns of |distinct values - target| and |squares - target|, where squares are the sum over
values of the squared number of rows, each divided by its mean target. A swap is looked for near
rows that share values: in the order of the column that is off, and within its values of the
column with the fewest per entity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.entities.swaps import swap_rows
from app.engine.entities.tuning import TUNING

Ints = NDArray[np.int64]
Cells = NDArray[np.int32]

# Rows beyond are grouped part by part: the memory of one part is all that is held.
ROWS_AT_ONCE = 2**20

# Of a part: the order of a column, places in it, cells by row and by slot, and sorting.
_BYTES_PER_ROW = 40
_BYTES_PER_CELL = 40

# About how long swaps are looked for: in all, and for each row.
_NANOSECONDS = 12 * 10**9
_MOST_PER_ROW, _LEAST_PER_ROW = 200_000, 4000
_WEIGHT = 2**16


@dataclass(frozen=True, slots=True)
class Target:
    """What a column's values are to be like in each entity; int64, shape (entities,).

    `squares` is the sum over the entity's values of the squared number of its rows, or None
    where it does not matter.
    """

    distinct: Ints
    squares: Ints | None = None

    def part(self, first: int, end: int) -> Target:
        squares = None if self.squares is None else self.squares[first:end]
        return Target(self.distinct[first:end], squares)

    @property
    def wanted(self) -> Ints:
        """Shape (entities, 2)."""
        squares = np.zeros_like(self.distinct) if self.squares is None else self.squares
        return np.stack([self.distinct, squares], axis=1)

    @property
    def weights(self) -> tuple[int, int]:
        distinct = round(_WEIGHT / max(float(self.distinct.mean()), 1.0))
        if self.squares is None:
            return distinct, 0
        return distinct, max(1, round(_WEIGHT / max(float(self.squares.mean()), 1.0)))


def grouped(
    sizes: Ints,
    targets: Sequence[Target],
    columns: Sequence[NDArray[Any]],
    rng: np.random.Generator,
) -> Ints:
    """The entity of each row, int64, shape (rows,): entity i has exactly `sizes[i]` rows.

    sizes: shape (entities,), at least 1 each. targets: one for each of `columns`, which hold
    the cell of each row, shape (rows,), rows being the sum of sizes. The same for the same
    state of `rng`.
    """
    owner = np.empty(int(sizes.sum()), dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    for first, end in _parts(starts):
        rows = slice(int(starts[first]), int(starts[end]))
        part = _Part(
            sizes[first:end],
            [target.part(first, end) for target in targets],
            [column[rows] for column in columns],
            rng,
        )
        owner[rows] = first + part.owner(_nanoseconds_per_row(len(owner)))
    return owner


def grouping_bytes(columns: int, rows: int) -> int:
    """The most memory that `grouped` takes beside its arguments."""
    return 8 * rows + min(rows, ROWS_AT_ONCE) * (_BYTES_PER_ROW + _BYTES_PER_CELL * columns)


def _parts(starts: Ints) -> Iterator[tuple[int, int]]:
    """Runs of whole entities with about `ROWS_AT_ONCE` rows each."""
    parts = max(1, round(int(starts[-1]) / ROWS_AT_ONCE))
    cuts = np.searchsorted(starts, np.linspace(0, starts[-1], parts + 1))
    for first, end in pairwise(cuts):
        if first < end:
            yield int(first), int(end)


def _nanoseconds_per_row(rows: int) -> int:
    return min(max(_NANOSECONDS // max(rows, 1), _LEAST_PER_ROW), _MOST_PER_ROW)


class _Part:
    """Rows and entities that are grouped together; slots are places for rows."""

    def __init__(
        self,
        sizes: Ints,
        targets: Sequence[Target],
        columns: Sequence[NDArray[Any]],
        rng: np.random.Generator,
    ) -> None:
        self._sizes = sizes
        self._targets = targets
        self._cells = _table(columns, int(sizes.sum()))
        self._rng = rng

    def owner(self, nanoseconds_per_row: int) -> Ints:
        rows = self._cells.shape[1]
        held = self._rng.permutation(rows).astype(np.int32)
        of_slot = np.repeat(np.arange(len(self._sizes), dtype=np.int32), self._sizes)
        if self._targets and len(self._sizes) > 1:
            shares = self._shares()
            fewest = int(np.argmin(shares))
            orders = self._orders(fewest, held)
            held = self._start(shares, held)
            self._swap(held, of_slot, orders, fewest, nanoseconds_per_row * rows)
        owner = np.empty(rows, dtype=np.int64)
        owner[held] = of_slot
        return owner

    def _shares(self) -> NDArray[np.float64]:
        """The values per entity that each column is to have, beside those of random rows."""
        shares = []
        for column, target in zip(self._cells, self._targets, strict=True):
            expected = expected_distinct(np.bincount(column), self._sizes)
            shares.append(float(target.distinct.mean() / expected.mean()))
        return np.array(shares)

    def _orders(self, fewest: int, at_random: Cells) -> Cells:
        """Rows in the order of each column, within it in that of `fewest`, then at random."""
        by_fewest = at_random[np.argsort(self._cells[fewest, at_random], kind="stable")]
        return np.stack(
            [by_fewest[np.argsort(column[by_fewest], kind="stable")] for column in self._cells]
        )

    def _start(self, shares: NDArray[np.float64], at_random: Cells) -> Cells:
        """Rows in an order whose runs have about as few values of two columns as they should.

        They lie within one value of the column of the least share, or about so many as entities
        are to have, and within those within so many of the column that is next.
        """
        first, *others = np.argsort(shares, kind="stable")[:2]
        if shares[first] >= TUNING.few:
            return self._near_values(int(first), at_random)
        for column in others:
            at_random = self._near_values(int(column), at_random)
        rank = self._ranks(int(first), at_random)
        return at_random[np.argsort(rank, kind="stable")]

    def _near_values(self, column: int, at_random: Cells) -> Cells:
        rank = self._ranks(column, at_random)
        width = float(self._targets[column].distinct.mean())
        return at_random[np.argsort(rank + width * self._rng.random(len(rank)), kind="stable")]

    def _ranks(self, column: int, at_random: Cells) -> Ints:
        """The number of each row's value in an order of values that is random."""
        cells = self._cells[column, at_random]
        rank: Ints = self._rng.permutation(int(cells.max()) + 1)[cells]
        return rank

    def _excess(self, held: Cells, of_slot: Cells) -> Ints:
        """Distinct values and squares of each entity and column beyond what is wanted."""
        owner, entities = of_slot.astype(np.int64), len(self._sizes)
        excess = np.empty((entities, len(self._targets), 2), dtype=np.int64)
        for place, (column, target) in enumerate(zip(self._cells, self._targets, strict=True)):
            excess[:, place, 0] = distinct_values(owner, column[held], entities)
            excess[:, place, 1] = squares_of_rows(owner, column[held], entities)
            excess[:, place] -= target.wanted
        return excess

    def _swap(
        self, held: Cells, of_slot: Cells, orders: Cells, fewest: int, nanoseconds: int
    ) -> None:
        numbers = np.arange(len(held), dtype=np.int32)
        places = np.empty_like(orders)
        for order, place in zip(orders, places, strict=True):
            place[order] = numbers
        slots = np.empty_like(held)
        slots[held] = numbers
        swap_rows(
            held,
            slots,
            np.take(self._cells, held, axis=1),
            of_slot,
            np.concatenate([[0], np.cumsum(self._sizes)]).astype(np.int64),
            self._excess(held, of_slot),
            np.array([target.weights for target in self._targets], dtype=np.int64),
            orders,
            places,
            fewest,
            nanoseconds,
            self._rng.integers(1, 2**63, size=1, dtype=np.uint64),
        )


def _table(columns: Sequence[NDArray[Any]], rows: int) -> NDArray[Any]:
    """Shape (columns, rows)."""
    table = np.empty((len(columns), rows), dtype=np.int32)
    for place, column in enumerate(columns):
        table[place] = column
    return table


def expected_distinct(counts: Ints, sizes: Ints) -> NDArray[np.float64]:
    """Distinct values that an entity of each size has if its rows are any of the table's."""
    shares = counts[counts > 0] / counts.sum()
    found, place = np.unique(sizes, return_inverse=True)
    expected = np.array([float((1 - (1 - shares) ** size).sum()) for size in found])
    return expected[place]


def rows_of_values(owner: Ints, column: Ints) -> tuple[Ints, Ints]:
    """For each value that an entity has: the entity, and how many of its rows have the value."""
    width = int(column.max(initial=0)) + 1
    keys, rows = np.unique(owner * width + column, return_counts=True)
    return keys // width, rows.astype(np.int64)


def distinct_values(owner: Ints, column: Ints, entities: int) -> Ints:
    """How many values of a column each entity has, shape (entities,)."""
    return np.bincount(rows_of_values(owner, column)[0], minlength=entities)


def squares_of_rows(owner: Ints, column: Ints, entities: int) -> Ints:
    """The sum over the values of each entity of the squared number of rows, (entities,)."""
    entity, rows = rows_of_values(owner, column)
    squares = np.zeros(entities, dtype=np.int64)
    np.add.at(squares, entity, rows**2)
    return squares
