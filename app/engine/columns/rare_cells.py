"""Rare cells of a column, merged before pairs are measured, and restored after.

McKenna, Miklau and Sheldon (2021, section 3.1) merge what does not stand out from the noise
of the one-way marginal into one cell. Here rare cells of a range are merged with their
neighbours, so that a rare low value and a rare high one stay apart; only cells that have no
order, which null, `other` and point masses are too, are merged into one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.inference.rounding import apportion, shuffled_cells
from app.engine.method.model_file import ModelFormatError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Compression:
    """`merge[i]` is the merged cell of cell i, `shares[i]` its share of that merged cell."""

    merge: Integers
    shares: Floats

    @classmethod
    def below(
        cls, counts: Floats, least: float, ordered: int = 0, kinds: Integers | None = None
    ) -> Compression:
        """Cells of counts under `least` are rare; none of the counts is negative.

        Of the first `ordered` cells, neighbours among the rare ones are merged until they
        have `least` together. Cells of different `kinds` are never merged.
        """
        rare = np.flatnonzero(counts < least)
        firsts = np.arange(counts.size)
        of_rare = np.zeros(rare.size, np.int64) if kinds is None else kinds[rare]
        for kind in np.unique(of_rare):
            for group in _groups(rare[of_rare == kind], counts, least, ordered):
                firsts[group] = group[:1]
        merge = np.unique(firsts, return_inverse=True)[1].astype(np.int64)
        return cls(merge, _shares(merge, counts))

    @property
    def cells(self) -> int:
        return int(self.merge.size)

    @cached_property
    def merged_cells(self) -> int:
        return int(self.merge.max()) + 1

    @property
    def rare(self) -> Integers:
        """The cells that are merged with others."""
        members = np.bincount(self.merge)
        return np.flatnonzero(members[self.merge] > 1).astype(np.int64)

    def grouping(self, own: Grouping) -> Grouping:
        return own.merged(self.merge.tolist()) if self.merged_cells < self.cells else own

    def add_up(self, values: Floats) -> Floats:
        """Values of the merged cells."""
        sums: Floats = np.zeros(self.merged_cells)
        np.add.at(sums, self.merge, values)
        return sums

    def restore(self, merged: Integers, rng: np.random.Generator) -> Integers:
        """A cell for each merged cell, those that were merged dealt by their noisy shares."""
        order = np.argsort(self.merge, kind="stable")
        starts = np.searchsorted(self.merge[order], np.arange(self.merged_cells + 1))
        restored = order[starts[merged]].astype(np.int64)
        for group in np.flatnonzero(np.diff(starts) > 1):
            members = order[starts[group] : starts[group + 1]]
            places = np.flatnonzero(merged == group)
            counts = apportion(self.shares[members], places.size, rng)
            restored[places] = members[shuffled_cells(counts, rng)]
        return restored

    @classmethod
    def stored(cls, merge: Integers, shares: Floats) -> Compression:
        """Checks arrays of a stored model, of one length; no number is negative."""
        found = np.unique(merge)
        if not np.array_equal(found, np.arange(found.size)):
            raise ModelFormatError("the stored model merges cells that do not exist")
        if not np.allclose(np.bincount(merge, weights=shares), 1):
            raise ModelFormatError("the stored model's shares do not add up")
        return cls(merge, shares)


def _groups(rare: Integers, counts: Floats, least: float, ordered: int) -> list[Integers]:
    """Which of the rare cells are merged with each other."""
    pooled = rare[rare >= ordered]
    runs = _runs(rare[rare < ordered], counts, least)
    if len(runs) == 1 and pooled.size and counts[runs[0]].sum() < least:
        return [rare]
    return [*runs, pooled]


def _runs(rare: Integers, counts: Floats, least: float) -> list[Integers]:
    """Neighbours among the rare cells that have `least` together; what is left joins the last."""
    reach = np.cumsum(counts[rare])
    ends: list[int] = []
    before = 0.0
    for place, sum_so_far in enumerate(reach.tolist(), start=1):
        if sum_so_far - before >= least:
            ends.append(place)
            before = sum_so_far
    return [run for run in np.split(rare, ends[:-1]) if run.size]


def _shares(merge: Integers, counts: Floats) -> Floats:
    """Each cell's part of its merged cell; even parts where there is nothing to divide."""
    sums, members = np.bincount(merge, weights=counts), np.bincount(merge)
    even = 1 / members[merge]
    return np.divide(counts, sums[merge], out=even, where=sums[merge] > 0)
