"""Errors of published counts of combinations against the exact table, by length.

The measures are those of the report of Synthetic Data Showcase. Both tables are counted here, and
no model sees exact rows: of a release only its published counts are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, takewhile
from math import comb

import numpy as np
from numpy.typing import NDArray

from app.engine.marginals import distinct
from app.engine.synthesizers.aggregate_seeded.aggregates import Aggregates, Level
from app.engine.synthesizers.aggregate_seeded.layout import Layout
from app.engine.table import Table

Owners = NDArray[np.int64]

# Limit on rows times combinations, which bounds the time of counting.
MOST_COUNTED = 2**28


@dataclass(frozen=True, slots=True)
class CombinationErrors:
    """How far reported combinations of one length are from those of the original table.

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


@dataclass(frozen=True, slots=True)
class ComparedCombinations:
    """The errors, by length from 1, of a model's counted combinations and of synthetic rows."""

    aggregates: tuple[CombinationErrors, ...]
    rows: tuple[CombinationErrors, ...]


@dataclass(frozen=True, slots=True)
class PublishedCombinations:
    """The counts of combinations that a release published, and which items its columns have."""

    layout: Layout
    aggregates: Aggregates


def compared_combinations(
    real: Table, synthetic: Table, published: PublishedCombinations
) -> ComparedCombinations:
    """Both tables have the published columns; `entity` is set on an entity unit.

    The longest combinations are left out if there are too many of them to count.
    """
    layout, aggregates = published.layout, published.aggregates
    rows = max(real.rows, synthetic.rows)
    axes = len(layout.axis_sizes)
    lengths = range(1, aggregates.length + 1)
    length = len(list(takewhile(lambda size: comb(axes, size) * rows <= MOST_COUNTED, lengths)))
    true, made = (
        counted(layout.items(table.codes), layout.most_items, length, table.entity)
        for table in (real, synthetic)
    )
    return ComparedCombinations(
        tuple(combination_errors(true, aggregates)), tuple(combination_errors(true, made))
    )


def counted(
    items: NDArray[np.int32], most_items: int, length: int, owners: Owners | None = None
) -> Aggregates:
    """Exact counts of all combinations up to `length` in rows of items, -1 for none.

    `owners`, shape (rows,), numbers the unit of each row: then units are counted that have a
    combination in one of their rows, else rows.
    """
    levels = (_counted_level(items, size, most_items, owners) for size in range(1, length + 1))
    return Aggregates(most_items, tuple(levels))


def _counted_level(
    items: NDArray[np.int32], length: int, most_items: int, owners: Owners | None
) -> Level:
    found, counts = [np.empty((0, length), np.int32)], [np.empty(0, np.int64)]
    for columns in combinations(range(items.shape[1]), length):
        part = items[:, columns]
        whole = (part >= 0).all(axis=1)
        mine = None if owners is None else owners[whole]
        distinct, times = _distinct(part[whole], most_items, mine)
        found.append(distinct)
        counts.append(times)
    # `Level` holds its combinations in lexicographic order.
    tuples = np.concatenate(found)
    order = np.lexsort(tuples.T[::-1])
    return Level(tuples[order], np.concatenate(counts)[order])


def _distinct(
    part: NDArray[np.int32], most_items: int, owners: Owners | None
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The distinct rows of some columns, and how many rows (or owners) have each."""
    keys = _keys(part, most_items)
    by_row = 0 if keys.ndim > 1 else None
    _, first, number = np.unique(keys, axis=by_row, return_index=True, return_inverse=True)
    number = number.reshape(-1).astype(np.int64)
    if owners is not None:
        # An entity counts once for a combination, in however many of its rows that occurs.
        number = distinct(owners * len(first) + number) % max(len(first), 1)
    return part[first], np.bincount(number, minlength=len(first)).astype(np.int64)


def _keys(part: NDArray[np.int32], most_items: int) -> NDArray[np.int64] | NDArray[np.int32]:
    """A whole number for each row where it fits 63 bits, since numbers are sorted faster."""
    # Python integers, so the test itself cannot overflow.
    if most_items ** part.shape[1] >= 2**63:
        return part
    keys = np.zeros(len(part), dtype=np.int64)
    for column in part.T:
        keys = keys * most_items + column
    return keys


def combination_errors(original: Aggregates, reported: Aggregates) -> list[CombinationErrors]:
    """For each length that both have. The reported may be noisy counts or a synthetic table's."""
    return [
        _errors(original, reported, length)
        for length in range(1, min(original.length, reported.length) + 1)
    ]


def _errors(original: Aggregates, reported: Aggregates, length: int) -> CombinationErrors:
    true, stated = original.levels[length - 1], reported.levels[length - 1]
    places = reported.trees[length - 1].places(true.items)
    both = places >= 0
    differences = np.abs(stated.counts[places[both]] - true.counts[both])
    common = int(both.sum())
    return CombinationErrors(
        length=length,
        original=len(true),
        reported=len(stated),
        suppressed=1 - common / len(true) if len(true) else 0.0,
        fabricated=1 - common / len(stated) if len(stated) else 0.0,
        mean_error=float(differences.mean()) if common else 0.0,
        mean_count=float(true.counts[both].mean()) if common else 0.0,
    )
