"""Rare cells of a column, merged into one before pairs are measured, and restored after.

McKenna, Miklau and Sheldon (2021, section 3.1) merge what does not stand out from the noise
of the one-way marginal. Null, `other` and point masses are cells like any other here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.inference.projection import onto_simplex
from app.engine.inference.rounding import apportion, shuffled_cells
from app.engine.privacy.queries import Measurement
from app.engine.synthesizers.archive import ModelFormatError


@dataclass(frozen=True)
class Compression:
    """Kept cells first, in order, then one merged cell if at least two are rare.

    `rare` are the rare cells of the column, `rare_shares` how the merged cell is restored.
    """

    cells: int
    rare: NDArray[np.int64]
    rare_shares: NDArray[np.float64]

    @classmethod
    def of(cls, answer: Measurement, threshold: float) -> Compression:
        """Cells below `threshold` standard errors are rare."""
        values = answer.values.astype(np.float64)
        rare = np.flatnonzero(values < threshold * answer.standard_error)
        if rare.size < 2:
            return cls(values.size, np.zeros(0, dtype=np.int64), np.zeros(0))
        mass = float(values[rare].sum())
        shares = (
            onto_simplex(values[rare], mass) / mass
            if mass > 0
            else np.full(rare.size, 1 / rare.size)
        )
        return cls(values.size, rare.astype(np.int64), shares)

    @classmethod
    def below(cls, counts: NDArray[np.float64], least: float) -> Compression:
        """Cells of counts under `least` are rare; none of the counts is negative."""
        rare = np.flatnonzero(counts < least)
        if rare.size < 2:
            return cls(counts.size, np.zeros(0, dtype=np.int64), np.zeros(0))
        mass = float(counts[rare].sum())
        shares = counts[rare] / mass if mass > 0 else np.full(rare.size, 1 / rare.size)
        return cls(counts.size, rare.astype(np.int64), shares)

    @property
    def merged_cells(self) -> int:
        return self.cells - self.rare.size + bool(self.rare.size)

    def merge(self) -> NDArray[np.int64]:
        """The merged cell of each cell."""
        kept = np.ones(self.cells, dtype=bool)
        kept[self.rare] = False
        return np.where(kept, np.cumsum(kept) - 1, self.merged_cells - 1).astype(np.int64)

    def grouping(self, own: Grouping) -> Grouping:
        return own.merged(self.merge().tolist()) if self.rare.size else own

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the merged cells."""
        sums: NDArray[np.float64] = np.zeros(self.merged_cells)
        np.add.at(sums, self.merge(), values)
        return sums

    def restore(self, merged: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """A cell for each merged cell, the rare ones dealt by their noisy shares."""
        if not self.rare.size:
            return merged
        kept = np.delete(np.arange(self.cells, dtype=np.int64), self.rare)
        is_rare = merged == self.merged_cells - 1
        restored = np.append(kept, 0)[merged]
        counts = apportion(self.rare_shares, int(is_rare.sum()), rng)
        restored[is_rare] = self.rare[shuffled_cells(counts, rng)]
        return restored

    @classmethod
    def stored(
        cls, cells: int, rare: NDArray[np.int64], rare_shares: NDArray[np.float64]
    ) -> Compression:
        """Checks arrays of a stored model."""
        rising = rare.ndim == 1 and bool((np.diff(rare) > 0).all()) and rare.size != 1
        if not rising or (rare.size and not 0 <= rare[0] <= rare[-1] < cells):
            raise ModelFormatError("the stored model merges impossible cells")
        if rare.size and not np.isclose(rare_shares.sum(), 1):
            raise ModelFormatError("the stored model's shares do not add up")
        return cls(cells, rare, rare_shares)
