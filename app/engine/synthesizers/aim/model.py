"""A fitted table model that states how far it is from the exact marginals at most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.engine.graphical.table_model import TableModel
from app.engine.inference.model import GraphicalModel
from app.engine.method.base import ExpectedError
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.table import Table


@dataclass(frozen=True)
class BoundedModel:
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
