"""A fitted model that states how far it is from the exact marginals at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.table_size import Size
from app.engine.graphical.table_model import TableModel
from app.engine.inference.model import GraphicalModel
from app.engine.method import ExpectedError, Model
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.synthesizers.aim.workload import Clique
from app.engine.table import Table, generator

# A sample of more rows would hold each cell in memory for no truer bound.
_MOST_DRAWN = 100_000


@dataclass(frozen=True)
class BoundedModel(Model):
    """The bounds are stated once, with the release; a stored model is the table model alone."""

    table: TableModel | PublicReweightedModel
    errors: tuple[ExpectedError, ...]

    @property
    def graph(self) -> GraphicalModel:
        """Of a model of rows."""
        assert isinstance(self.table, TableModel)
        return self.table.graph

    @property
    def noisy_rows(self) -> int:
        return self.table.noisy_rows

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        return self.table.sample(rows, rng)

    def dump(self) -> bytes:
        return self.table.dump()

    def expected_errors(self) -> tuple[ExpectedError, ...]:
        return self.errors


@dataclass(frozen=True)
class EntityMarginals:
    """The model's marginals are those of one sample of as many rows as it makes unasked, 100,000
    at most: with redrawn contents they have no simple form. `size` is the private table's."""

    model: PublicReweightedModel
    axes: Axes
    size: Size

    @cached_property
    def _cells(self) -> dict[str, NDArray[np.int64]]:
        rows = max(1, min(self.model.noisy_rows, _MOST_DRAWN))
        drawn = self.model.sample(rows, generator(0))
        return {
            name: grouping.cell_of(drawn.codes[name])
            for name, grouping in self.axes.groupings.items()
        }

    def each_marginal(self, asked: Sequence[Clique]) -> Iterator[NDArray[np.float64]]:
        """Shares of the cells of `axes`, one by one; each is the caller's own."""
        for names in asked:
            shape = tuple(self.axes.groupings[name].cells for name in names)
            flat = np.ravel_multi_index([self._cells[name] for name in names], shape)
            counts = np.bincount(flat, minlength=int(np.prod(shape)))
            yield counts.reshape(shape) / len(flat)
