"""What public entities add to a histogram that counts an entity once in each of some cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.public.rows import PublicRows

Floats = NDArray[np.float64]
Cells = NDArray[np.int64]


@dataclass(frozen=True)
class DistinctCells:
    """Each cell that each entity has rows in, once: arrays of shape (entity-cell pairs,).

    amounts: what the entity adds to the cell, in expectation over the kernel's draw: an entity in
    d cells counts in at most `limit` of them, drawn uniformly, so that it adds min(1, limit / d).
    rows: how many of its rows lie there. of_row: the pair of each public row, shape (rows,).
    """

    entity: Cells
    cell: Cells
    amounts: Floats
    rows: Cells
    of_row: Cells

    @classmethod
    def of(cls, public: PublicRows, cells: Cells, size: int, limit: int) -> DistinctCells:
        """`cells`: the cell of each public row in a histogram of `size` cells."""
        pairs, of_row, rows = np.unique(
            public.entity * size + cells, return_inverse=True, return_counts=True
        )
        entity, cell = np.divmod(pairs, size)
        distinct = np.bincount(entity, minlength=public.entities)
        amounts = np.minimum(1.0, limit / np.maximum(distinct, 1))[entity]
        return cls(entity, cell, amounts, rows, of_row.reshape(-1))

    def counts(self, size: int) -> Floats:
        """The expected histogram, flat, shape (size,)."""
        return np.bincount(self.cell, self.amounts, minlength=size).astype(np.float64)
