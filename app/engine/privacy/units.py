"""Rows of whole units, unit after unit: blocks of them, and the cells that a unit has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.bounding import random_keys, rank_within
from app.engine.privacy.sensitivity import GRID, LARGEST_CLIPPED, clip_radius

# The units of a block are numbered in 18 bits (see `shuffled_within`), and each has a row.
_BLOCK_ROWS = 2**18

# Gives as many independent uniform 64-bit keys as it is called for.
RandomKeys = Callable[[int], NDArray[np.uint64]]


def blocks_of_units(
    starts: NDArray[np.int64], most_rows: int = _BLOCK_ROWS
) -> Iterator[tuple[int, int]]:
    """Ranges of whole units with at most `most_rows` rows (2^18), or one unit if larger.

    `starts`, shape (units + 1,), holds where the rows of each unit begin.
    """
    units = len(starts) - 1
    first = 0
    while first < units:
        limit = starts[first] + most_rows
        end = max(first + 1, int(np.searchsorted(starts, limit, side="right")) - 1)
        yield first, end
        first = end


def unit_of_rows(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row the number of its unit, from 0."""
    return np.repeat(np.arange(len(starts) - 1, dtype=np.int64), np.diff(starts))


@dataclass(frozen=True)
class EntityCells:
    """Each (entity, cell) that occurs, sorted by entity, with how many rows fall there."""

    entity: NDArray[np.int64]
    cell: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(
        cls, entity: NDArray[np.int64], cells: NDArray[np.int64], cell_count: int
    ) -> EntityCells:
        """Raises `ValueError` for a cell out of range, which would count for another entity."""
        if cells.size and not 0 <= cells.min() <= cells.max() < cell_count:
            raise ValueError("a cell is outside its histogram")
        pairs, rows = np.unique(entity * cell_count + cells, return_counts=True)
        return cls(pairs // cell_count, pairs % cell_count, rows.astype(np.int64))

    def drawn(self, limit: int) -> NDArray[np.int64]:
        """At most `limit` cells of each entity, uniformly without replacement."""
        order = shuffled_within(self.entity)
        kept = rank_within(self.entity) < limit
        return self.cell[order[kept]]

    def most_frequent(self, keys: RandomKeys | None = None) -> NDArray[np.int64]:
        """The cell of each entity with most rows, in order; ties are broken at random.

        `keys` are those of the operating system by default.
        """
        if not len(self.entity):
            return self.cell
        begins = np.flatnonzero(np.diff(self.entity, prepend=-1))
        most = np.maximum.reduceat(self.rows, begins)
        leading = np.flatnonzero(self.rows == most[self.entity])
        tied = self.entity[leading]
        drawn: NDArray[np.int64] = leading[shuffled_within(tied, keys)[rank_within(tied) == 0]]
        return self.cell[drawn]

    def clipped(self, norm: float) -> NDArray[np.int64]:
        """Steps of the grid for each pair: each entity's vector scaled down to at most C.

        The sensitivity of `clipped` rests on w.w <= C^2 in integers. So what floats scaled
        down, rounded towards zero, is checked in integers: an entity whose vector is still too
        long loses one step in each cell until it is not.
        """
        radius = clip_radius(norm, LARGEST_CLIPPED)
        entities = int(self.entity[-1]) + 1 if len(self.entity) else 0
        steps = self.rows * GRID
        norms = np.sqrt(self._squares(steps, entities).astype(np.float64))
        factor = np.minimum(1.0, radius / norms)[self.entity]
        scaled = np.floor(steps * factor).astype(np.int64)
        while (excess := self._squares(scaled, entities) > radius**2).any():
            scaled = np.maximum(scaled - excess[self.entity], 0)
        return scaled

    def _squares(self, steps: NDArray[np.int64], entities: int) -> NDArray[np.int64]:
        totals = np.zeros(entities, dtype=np.int64)
        np.add.at(totals, self.entity, steps * steps)
        return totals


def shuffled_within(entity: NDArray[np.int64], keys: RandomKeys | None = None) -> NDArray[np.int64]:
    """An order that leaves sorted entities in place and shuffles the elements of each.

    One sort, of 18 bits of entity (a block has no more) above 46 random bits. Two of j
    elements draw equal bits with probability at most j^2 / 2^47. They keep their order, so that
    what is drawn of an entity depends on its own elements and keys alone; see `bounding` on ties.
    """
    random = (random_keys if keys is None else keys)(len(entity))
    sorting = (entity.astype(np.uint64) << np.uint64(46)) | (random >> np.uint64(18))
    # Any other sort breaks ties by how many elements there are, those of other entities included.
    order: NDArray[np.int64] = np.argsort(sorting, kind="stable")
    return order
