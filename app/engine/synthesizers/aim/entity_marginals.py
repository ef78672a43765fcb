"""Marginals of a model of public entities, so that their errors can be bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.table_size import Size
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.synthesizers.aim.workload import Clique
from app.engine.table import generator

_MOST_DRAWN = 100_000


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
