"""What public rows add to a histogram, under the rule by which private units are counted."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.queries import Contribution, Count
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
        # One number for each pair of entity and cell, so that one sort groups both.
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


@dataclass(frozen=True)
class Features:
    """Row r adds `amounts[r]` to cell `cells[r]` of a histogram of `shape`, flat in C order."""

    shape: tuple[int, ...]
    cells: Cells
    amounts: Floats

    def counts(self, weights: Floats) -> Floats:
        """The flat histogram of rows of these weights, shape (cells,)."""
        counts = np.bincount(self.cells, weights * self.amounts, minlength=prod(self.shape))
        return counts.astype(np.float64)


def features_of(count: Count, rows: PublicRows) -> Features:
    """The expected contribution of each row of its entity's (over the draws of `distinct`).

    The count names the groupings of all its columns.
    """
    shape = tuple(count.groupings[name].cells for name in count.columns)
    cells = np.zeros(rows.rows, dtype=np.int64)
    for name in count.columns:
        grouping = count.groupings[name]
        cells = cells * grouping.cells + grouping.cell_of(rows.codes[name])
    return Features(shape, cells, _amounts(count.contribution, cells, prod(shape), rows))


def _amounts(rule: Contribution, cells: Cells, size: int, rows: PublicRows) -> Floats:
    if rule.rule == "rows":
        return np.ones(rows.rows)
    distinct = DistinctCells.of(rows, cells, size, rule.limit or 1)
    if rule.rule == "clipped":
        assert rule.norm is not None
        # As the kernel clips: the vector of an entity's counts by cell, to an L2 norm.
        squares = np.bincount(distinct.entity, distinct.rows.astype(np.float64) ** 2, rows.entities)
        clipped: Floats = np.minimum(1.0, rule.norm / np.sqrt(squares))[rows.entity]
        return clipped
    # Shared out, so that the rows of an entity in a cell add up to what it counts there.
    of_row: Floats = (distinct.amounts / distinct.rows)[distinct.of_row]
    return of_row
