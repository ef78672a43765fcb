"""The sample's histograms under the contribution rules of the noisy ones.

Where the kernel draws, such as `distinct` cells of an entity, the expectation over the draw is
taken: each of d cells counts limit / d. So the same sample always gives the same counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.queries import Contribution
from app.engine.statements.sample import SampleRows

Floats = NDArray[np.float64]


class SampleCounts:
    """Counts the rows of one sample; each grouping of a column is looked up once.

    Each entity counts with at most `max_rows` rows; of more, all rows weigh less.
    """

    def __init__(self, sample: SampleRows, max_rows: int) -> None:
        self._known: dict[tuple[str, Grouping], NDArray[np.int32]] = {}
        self.sample = sample
        self._entity: NDArray[np.int64] | None = None
        self._row_weights: Floats | None = None
        if sample.owner is not None:
            _, entity = np.unique(sample.owner, return_inverse=True)
            self._entity = entity.reshape(-1)
            rows = np.bincount(self._entity)
            if rows.max(initial=0) > max_rows:
                self._row_weights = np.minimum(1.0, max_rows / rows)[self._entity]

    @property
    def independent_draws(self) -> float:
        """Of how many rows a sample of independent ones would be as good: the rows, or less where
        those of an entity hang together."""
        if self._entity is None:
            return float(self.sample.rows)
        rows = np.bincount(self._entity).astype(np.float64)
        return float(rows.sum() ** 2 / max((rows**2).sum(), 1.0))

    @property
    def unit(self) -> NDArray[np.int64]:
        """The number of each row's unit, from 0: its entity, or the row itself."""
        return np.arange(self.sample.rows) if self._entity is None else self._entity

    @property
    def repeats(self) -> bool:
        """Whether a unit may have several rows."""
        return self._entity is not None

    def cells(self, name: str, grouping: Grouping) -> NDArray[np.int32]:
        """The cell of each row, int32."""
        cells = self._known.get((name, grouping))
        if cells is None:
            cells = grouping.cell_of(self.sample.codes[name]).astype(np.int32)
            self._known[name, grouping] = cells
        return cells

    def counts(
        self, columns: Sequence[str], groupings: Sequence[Grouping], rule: Contribution
    ) -> Floats:
        """Float counts of the shape of the groupings. The rule looks at the joint cells."""
        shape = tuple(grouping.cells for grouping in groupings)
        flat: NDArray[Any] = np.zeros(self.sample.rows, dtype=np.int64)
        for name, grouping in zip(columns, groupings, strict=True):
            flat = flat * grouping.cells + self.cells(name, grouping)
        size = prod(shape)
        cell: NDArray[Any] = flat
        weight = self._row_weights
        if self._entity is not None and rule.rule != "rows":
            cell, weight = self._of_entities(flat, size, rule)
        counts: Floats = np.bincount(cell, weight, minlength=size).astype(np.float64)
        return counts.reshape(shape)

    def _of_entities(
        self, cells: NDArray[Any], size: int, rule: Contribution
    ) -> tuple[NDArray[np.int64], Floats]:
        """Each cell that an entity has, and what it counts there."""
        assert self._entity is not None
        held, rows = np.unique(self._entity * size + cells, return_counts=True)
        entity, cell = held // size, held % size
        entities = int(entity.max(initial=-1)) + 1
        match rule.rule:
            case "distinct":
                assert rule.limit is not None
                return cell, np.minimum(1.0, rule.limit / np.bincount(entity))[entity]
            case "one":
                most = np.zeros(entities, dtype=np.int64)
                np.maximum.at(most, entity, rows)
                leads = rows == most[entity]
                ties = np.bincount(entity[leads], minlength=entities)
                return cell[leads], 1 / ties[entity[leads]]
        assert rule.norm is not None
        norms = np.sqrt(np.bincount(entity, rows.astype(np.float64) ** 2))
        return cell, rows * np.minimum(1.0, rule.norm / norms)[entity]
