"""Rows that meet every rule, from which other rows take values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.engine.schema.column import Column

Codes = NDArray[np.int64]
Rows = dict[str, Codes]
Mask = NDArray[np.bool_]

# Enough to represent the values of a block, and few enough to sort for every rule.
MOST_DONORS = 2**16
# Up to this many codes of a column are tried one by one; of a longer one, this many are drawn.
_MOST_LISTED = 2**16


@dataclass(frozen=True)
class Donors:
    """Columns of valid rows, by name. A row takes values from a donor that agrees with it."""

    codes: Mapping[str, Codes]
    rows: int
    _cells: dict[str, Codes] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, rows: Mapping[str, Codes], valid: Mask) -> Donors:
        places = np.flatnonzero(valid)[:MOST_DONORS]
        return cls({name: codes[places] for name, codes in rows.items()}, places.size)

    def where(self, mask: Mask) -> Donors:
        return Donors.of(self.codes, mask)

    def like(
        self, columns: Sequence[Column], rows: Mapping[str, Codes], rng: np.random.Generator
    ) -> tuple[Codes, Mask]:
        """For each of `rows` a donor in the same cells of `columns`, drawn uniformly, and
        where there is one. Without columns, any donor."""
        wanted = len(next(iter(rows.values())))
        if not self.rows:
            return np.zeros(wanted, np.int64), np.zeros(wanted, bool)
        own, asked = self._keys(columns, rows, wanted)
        order = np.argsort(own, kind="stable")
        low = np.searchsorted(own[order], asked, side="left")
        high = np.searchsorted(own[order], asked, side="right")
        drawn = low + (rng.random(wanted) * (high - low)).astype(np.int64)
        return order[np.minimum(drawn, self.rows - 1)], high > low

    def _keys(
        self, columns: Sequence[Column], rows: Mapping[str, Codes], wanted: int
    ) -> tuple[Codes, Codes]:
        """A number for each combination of cells, of the donors and of the rows."""
        keys = np.zeros(self.rows + wanted, np.int64)
        sizes = 1
        for column in columns:
            # Keys that would overflow are numbered anew: there are no more than rows.
            if math.prod((sizes, column.grouping.cells)) > 2**62:
                known, keys = np.unique(keys, return_inverse=True)
                sizes = known.size
            cells = np.concatenate(
                [self._cells_of(column), column.grouping.cell_of(rows[column.name])]
            )
            keys = keys * column.grouping.cells + cells
            sizes *= column.grouping.cells
        return keys[: self.rows], keys[self.rows :]

    def _cells_of(self, column: Column) -> Codes:
        if column.name not in self._cells:
            self._cells[column.name] = column.grouping.cell_of(self.codes[column.name])
        return self._cells[column.name]


def take(rows: Rows, name: str, places: Mask | Codes, values: Codes) -> None:
    """Give the rows at `places` other values of one column."""
    column = rows[name].copy()
    column[places] = values
    rows[name] = column


def subset(rows: Mapping[str, Codes], places: Mask | Codes) -> Rows:
    return {name: codes[places] for name, codes in rows.items()}


def some_codes(column: Column, keeps: Callable[[Codes], Mask], rng: np.random.Generator) -> Codes:
    """Codes of the column that `keeps` is true of: all of them where they are few."""
    if column.codes <= _MOST_LISTED:
        codes = np.arange(column.codes)
    else:
        drawn = rng.integers(0, column.regular, _MOST_LISTED)
        ends = [0, column.regular - 1]
        codes = np.concatenate([ends, drawn, np.arange(column.regular, column.codes)])
    return codes[keeps(codes)].astype(np.int64)
