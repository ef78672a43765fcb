"""Which items there are: the cells of the chosen columns, without those for absent values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.grouping import Grouping
from app.engine.inference.projection import onto_simplex
from app.engine.method import Problem
from app.engine.privacy.queries import Parts
from app.engine.schema import Column, Schema
from app.engine.synthesizers.aggregate_seeded.params import AggregateSeededParams
from app.engine.synthesizers.aggregate_seeded.parts import cells_of_sets, parts_of, parts_problems


@dataclass(frozen=True)
class Layout:
    """Items are numbered through the cells of the columns in order; a column in `parts` has an
    item for each part instead.

    `absent` holds the cell of each column that is no item; None where a row must have an item, and
    for a column of parts. An *axis* holds items that exclude each other: those of a column, or
    one part alone.
    """

    axes: Axes
    absent: tuple[int | None, ...]
    parts: Mapping[str, Parts]

    @classmethod
    def of(cls, schema: Schema, axes: Axes, params: AggregateSeededParams) -> Layout:
        """The absent cell of a column is its zero, if its zeros are not sensitive, else null."""
        parts = {
            name: parts_of(schema.column(name), separator)
            for name, separator in params.multi_value_columns.items()
        }
        absent = tuple(
            None if name in parts else _absent_cell(schema.column(name), grouping, params)
            for name, grouping in axes.groupings.items()
        )
        return cls(axes, absent, parts)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """How many items each column has."""
        return tuple(
            len(self.parts[name].names) if name in self.parts else grouping.cells
            for name, grouping in self.axes.groupings.items()
        )

    @property
    def most_items(self) -> int:
        return sum(self.widths)

    @property
    def most_of_row(self) -> int:
        """How many items a row has at most."""
        return sum(
            self.parts[name].most_of_cell if name in self.parts else 1 for name in self.axes.names
        )

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The first item of each column, int64, shape (columns,)."""
        return np.concatenate([[0], np.cumsum(self.widths)[:-1]]).astype(np.int64)

    @cached_property
    def axis_sizes(self) -> tuple[int, ...]:
        """How many items each axis has, in the order of the items."""
        sizes: list[int] = []
        for name, width in zip(self.axes.names, self.widths, strict=True):
            sizes += [1] * width if name in self.parts else [width]
        return tuple(sizes)

    @cached_property
    def axis(self) -> NDArray[np.int64]:
        """The axis of each item, int64, shape (most_items,)."""
        return np.repeat(np.arange(len(self.axis_sizes)), self.axis_sizes)

    def _single(self) -> list[tuple[str, int, int, int | None]]:
        """Name, axis, first item and absent cell of each column that is not in `parts`."""
        return [
            (name, int(self.axis[offset]), int(offset), absent)
            for name, offset, absent in zip(self.axes.names, self.offsets, self.absent, strict=True)
            if name not in self.parts
        ]

    @cached_property
    def required(self) -> NDArray[np.int64]:
        """Axes of which a row must have an item."""
        must = [axis for _, axis, _, absent in self._single() if absent is None]
        return np.array(must, dtype=np.int64)

    @cached_property
    def fillable(self) -> NDArray[np.int64]:
        """Axes of all columns but those in `parts`, whose parts may all be missing."""
        return np.array([axis for _, axis, _, _ in self._single()], dtype=np.int64)

    def singles(self) -> NDArray[np.int32]:
        """All items, shape (items, 1)."""
        items = np.arange(self.most_items, dtype=np.int32)
        absent = [first + cell for _, _, first, cell in self._single() if cell is not None]
        return np.delete(items, absent)[:, None]

    def sums_of_items(
        self, items: NDArray[np.int32], counts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """For each item the sum of noisy `counts` of the combinations that hold it.

        Within an axis the sums are projected onto non-negative ones of the same total.
        """
        sums = np.zeros(self.most_items, dtype=np.float64)
        for position in range(items.shape[1]):
            np.add.at(sums, items[:, position], counts)
        for axis in range(len(self.axis_sizes)):
            mine = self.axis == axis
            sums[mine] = onto_simplex(sums[mine], sums[mine].sum())
        return np.rint(sums).astype(np.int64)

    def cells(self, records: NDArray[np.int32]) -> dict[str, NDArray[np.int64]]:
        """The cell of each record in each column; an open place is the absent cell.

        A column of parts gets the cell with most of the record's parts and no other; where every
        cell has another, one with the fewest others.
        """
        cells = {}
        for name, axis, first, absent in self._single():
            items = records[:, axis].astype(np.int64)
            cells[name] = items - first
            cells[name][items < 0] = 0 if absent is None else absent
        for name, parts in self.parts.items():
            first = int(self.offsets[self.axes.names.index(name)])
            axes = self.axis[first : first + len(parts.names)]
            cells[name] = cells_of_sets(parts, records[:, axes] >= 0)
        return {name: cells[name] for name in self.axes.names}

    def items(self, codes: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int32]:
        """The item of each row on each axis, -1 for none; int32, shape (rows, axes)."""
        rows = len(codes[self.axes.names[0]])
        table = np.full((rows, len(self.axis_sizes)), -1, dtype=np.int32)
        groupings = self.axes.groupings
        for name, axis, first, absent in self._single():
            cells = groupings[name].cell_of(codes[name])
            table[:, axis] = np.where(cells == absent, -1, cells + first)
        for name, parts in self.parts.items():
            cells = groupings[name].cell_of(codes[name])
            first = int(self.offsets[self.axes.names.index(name)])
            for part in range(len(parts.names)):
                having = [cell for cell, numbers in enumerate(parts.of_cell) if part in numbers]
                is_held = np.isin(cells, having)
                table[is_held, self.axis[first + part]] = first + part
        return table


def _absent_cell(column: Column, grouping: Grouping, params: AggregateSeededParams) -> int | None:
    zero = zero_code(column)
    is_sensitive = params.sensitive_zeros is None or column.name in params.sensitive_zeros
    code = column.null_code if is_sensitive or zero is None else zero
    return None if code is None else int(grouping.cell_of(np.array([code]))[0])


def zero_code(column: Column) -> int | None:
    """The code of the column's zero (a number, or the text 0), None if it has none."""
    if column.type in ("integer", "number"):
        return column.code(0)
    return column.code("0") if column.type == "string" else None


def layout_problems(
    schema: Schema, axes: Axes, params: AggregateSeededParams
) -> tuple[Problem, ...]:
    """What is wrong with `sensitive_zeros` and `multi_value_columns`."""
    unknown = tuple(
        Problem(
            f"/params/sensitive_zeros/{position}",
            f"`{name}` is not among the chosen columns",
            "name chosen columns only",
        )
        for position, name in enumerate(params.sensitive_zeros or ())
        if name not in axes.groupings
    )
    return unknown + parts_problems(schema, axes, params.multi_value_columns)
