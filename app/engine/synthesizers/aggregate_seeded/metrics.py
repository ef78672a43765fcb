"""How far combinations are from those of a table, by length: the published measures.

Source: the showcase's own report. They compare with exact counts, so that on private rows
they are the custodian's alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from app.engine.synthesizers.aggregate_seeded.aggregates import Aggregates, Level


@dataclass(frozen=True, slots=True)
class CombinationErrors:
    """Of the combinations of one length.

    suppressed: share of the original combinations that are not reported. fabricated: share of
    the reported ones that are not in the original. mean_error: mean absolute difference of
    the counts over the original combinations that are reported, and mean_count the mean of
    their original counts. Shares and means of nothing are 0.
    """

    length: int
    original: int
    reported: int
    suppressed: float
    fabricated: float
    mean_error: float
    mean_count: float

    @property
    def combination_error(self) -> float:
        """The mean error in proportion to the mean count."""
        return self.mean_error / self.mean_count if self.mean_count else 0.0


def counted(items: NDArray[np.int32], most_items: int, length: int) -> Aggregates:
    """Exact counts of all combinations up to `length` in rows of items, -1 for none."""
    return Aggregates(
        most_items, tuple(_counted_level(items, size) for size in range(1, length + 1))
    )


def _counted_level(items: NDArray[np.int32], length: int) -> Level:
    found = []
    for columns in combinations(range(items.shape[1]), length):
        part = items[:, columns]
        found.append(part[(part >= 0).all(axis=1)])
    rows = np.concatenate([np.empty((0, length), np.int32), *found])
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    return Level(distinct.astype(np.int32), counts.astype(np.int64))


def combination_errors(original: Aggregates, reported: Aggregates) -> list[CombinationErrors]:
    """For each length that both have. The reported may be noisy counts or a synthetic table's."""
    return [
        _errors(original, reported, length)
        for length in range(1, min(original.length, reported.length) + 1)
    ]


def _errors(original: Aggregates, reported: Aggregates, length: int) -> CombinationErrors:
    true, told = original.levels[length - 1], reported.levels[length - 1]
    places = reported.trees[length - 1].places(true.items)
    both = places >= 0
    differences = np.abs(told.counts[places[both]] - true.counts[both])
    common = int(both.sum())
    return CombinationErrors(
        length=length,
        original=len(true),
        reported=len(told),
        suppressed=1 - common / len(true) if len(true) else 0.0,
        fabricated=1 - common / len(told) if len(told) else 0.0,
        mean_error=float(differences.mean()) if common else 0.0,
        mean_count=float(true.counts[both].mean()) if common else 0.0,
    )
