"""Which items there are: the cells of the chosen columns, less those that mean nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.schema import Column, Schema
from app.engine.synthesizers.axes import Axes
from app.engine.synthesizers.base import Problem


@dataclass(frozen=True)
class Layout:
    """Items are numbered through the cells of the columns in order.

    `absent` is, for each column, the cell that counts as no item at all, or None where every
    cell is an item and a row must have one.
    """

    axes: Axes
    absent: tuple[int | None, ...]

    @classmethod
    def of(cls, schema: Schema, axes: Axes, sensitive_zeros: Sequence[str] | None) -> Layout:
        """A column's nothing is its zero, if zeros of the column are not sensitive; else null."""
        return cls(
            axes,
            tuple(
                _absent_cell(schema.column(name), grouping, sensitive_zeros)
                for name, grouping in axes.groupings.items()
            ),
        )

    @property
    def columns(self) -> int:
        return len(self.absent)

    @property
    def most_items(self) -> int:
        return sum(self.axes.shape)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The first item of each column, int64, shape (columns,)."""
        return np.concatenate([[0], np.cumsum(self.axes.shape)[:-1]]).astype(np.int64)

    @cached_property
    def axis(self) -> NDArray[np.int64]:
        """The column of each item, int64, shape (most_items,)."""
        return np.repeat(np.arange(self.columns), self.axes.shape)

    @cached_property
    def required(self) -> NDArray[np.int64]:
        """Columns of which a row must have an item."""
        return np.array([i for i, cell in enumerate(self.absent) if cell is None], dtype=np.int64)

    def singles(self) -> NDArray[np.int32]:
        """All items, shape (items, 1)."""
        items = np.arange(self.most_items, dtype=np.int32)
        gone = [
            int(offset) + cell
            for offset, cell in zip(self.offsets, self.absent, strict=True)
            if cell is not None
        ]
        return np.delete(items, gone)[:, None]

    def cells(self, records: NDArray[np.int32]) -> dict[str, NDArray[np.int64]]:
        """The cell of each record in each column; an open place is the column's nothing."""
        cells = {}
        for column, name in enumerate(self.axes.names):
            items = records[:, column].astype(np.int64)
            nothing = self.absent[column]
            cells[name] = items - self.offsets[column]
            cells[name][items < 0] = 0 if nothing is None else nothing
        return cells

    def items(self, codes: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int32]:
        """The item of each row in each column, -1 for none; int32, shape (rows, columns)."""
        rows = len(codes[self.axes.names[0]])
        table = np.empty((rows, self.columns), dtype=np.int32)
        for column, (name, grouping) in enumerate(self.axes.groupings.items()):
            table[:, column] = grouping.cell_of(codes[name]) + self.offsets[column]
        for column, cell in enumerate(self.absent):
            if cell is not None:
                table[table[:, column] == self.offsets[column] + cell, column] = -1
        return table


def _absent_cell(
    column: Column, grouping: Grouping, sensitive_zeros: Sequence[str] | None
) -> int | None:
    zero = zero_code(column)
    is_sensitive = sensitive_zeros is None or column.name in sensitive_zeros
    code = column.null_code if is_sensitive or zero is None else zero
    return None if code is None else int(grouping.cell_of(np.array([code]))[0])


def zero_code(column: Column) -> int | None:
    """The code of the column's zero (a number, or the text 0), None if it has none."""
    if column.type in ("integer", "number"):
        return column.code(0)
    return column.code("0") if column.type == "string" else None


def zero_problems(axes: Axes, sensitive_zeros: Sequence[str] | None) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            f"/params/sensitive_zeros/{position}",
            f"`{name}` is not among the chosen columns",
            "name chosen columns only",
        )
        for position, name in enumerate(sensitive_zeros or ())
        if name not in axes.groupings
    )
