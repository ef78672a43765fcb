"""What was measured of entities, as a part of a table model: it gives each row its entity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.table_size import Size
from app.engine.entities.assignment import Target, grouped
from app.engine.entities.params import MOST_COLUMNS
from app.engine.entities.profiles import ColumnProfile, RowsPerEntity
from app.engine.method.model_file import ModelFormatError
from app.engine.schema import PrivacyUnit

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Entities:
    """Rows per entity, and the profiles of chosen columns."""

    rows: RowsPerEntity
    profiles: tuple[ColumnProfile, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(profile.column for profile in self.profiles)

    def owner(
        self,
        size: Size,
        cells: Mapping[str, NDArray[np.int32]],
        rows: int,
        rng: np.random.Generator,
    ) -> Ints:
        """The entity of each of `rows` rows, int64: 0..E-1, each used, none over `max_rows`.

        `cells` holds the cell of each row for the columns of the profiles. E keeps the noisy
        number of rows per entity, as near as `max_rows` allows.
        """
        if rows == 0:
            return np.zeros(0, dtype=np.int64)
        sizes = self.rows.sizes(size.entities_of(rows), rows, size.max_rows, rng)
        return grouped(
            sizes,
            [profile.draw(sizes, rng) for profile in self.profiles],
            [cells[name] for name in self.columns],
            rng,
        )

    def drawn(self, entities: int, rng: np.random.Generator) -> tuple[Ints, list[Target]]:
        """Sizes and targets of some entities, in any total."""
        sizes = self.rows.draw(entities, rng)
        return sizes, [profile.draw(sizes, rng) for profile in self.profiles]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = dict(self.rows.to_arrays())
        for number, profile in enumerate(self.profiles):
            arrays |= profile.to_arrays(number)
        return arrays

    @classmethod
    def from_stored(
        cls,
        header: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        axes: Axes,
        unit: PrivacyUnit,
    ) -> Entities | None:
        """Entities of a stored model, None if it has none; raises `ModelFormatError`."""
        if "entities" not in header:
            return None
        columns = header["entities"]
        if not unit.repeats:
            raise ModelFormatError("the stored model is of another privacy unit")
        is_list = isinstance(columns, list) and len(columns) <= MOST_COLUMNS
        if not is_list or not all(isinstance(each, str) for each in columns):
            raise ModelFormatError("the stored model has no valid entities")
        if not set(columns) <= set(axes.names) or len(set(columns)) < len(columns):
            raise ModelFormatError("the stored model's entities do not fit its columns")
        profiles = tuple(
            ColumnProfile.from_arrays(column, number, arrays, unit.max_rows)
            for number, column in enumerate(columns)
        )
        return cls(RowsPerEntity.from_arrays(arrays, unit.max_rows), profiles)


class Grouper:
    """Keeps the cells of the columns that entities are made by, as they are sampled."""

    def __init__(self, entities: Entities | None, size: Size, rows: int) -> None:
        self._entities = entities
        self._size = size
        self._rows = rows
        self._cells: dict[str, NDArray[np.int32]] = {}

    def see(self, name: str, cells: Ints) -> None:
        """The cell of each row in a column."""
        if self._entities is not None and name in self._entities.columns:
            self._cells[name] = cells.astype(np.int32)

    def owner(self, rng: np.random.Generator) -> Ints | None:
        """The entity of each row, assigned evenly where none were measured; None on a row unit."""
        if self._entities is None:
            return self._size.deal(self._rows, rng)
        return self._entities.owner(self._size, self._cells, self._rows, rng)
