"""What is measured of the entities of a table: its rows, and how they are spread over values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


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
