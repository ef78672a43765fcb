"""How far each column is off within each subgroup, from all rows of both tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from app.engine.marginals import Marginal, counts, total_variation
from app.engine.schema import Column
from app.reports.evaluation.drawn import Floats, WholeTable
from app.reports.evaluation.figures import SubgroupCell, Subgroups

MOST_LISTED = 100


def subgroups(
    real: WholeTable, synthetic: WholeTable, groups: Sequence[Column], columns: Sequence[Column]
) -> tuple[Subgroups, list[str]]:
    """The worst cells, and which columns had too many cells to compare."""
    pairs = [(group, column) for group in groups for column in columns if column.name != group.name]
    marginals = [
        Marginal({group.name: group.grouping, column.name: column.grouping})
        for group, column in pairs
    ]
    found: list[SubgroupCell] = []
    left_out: list[str] = []
    compared = 0
    both = zip(pairs, counts(real, marginals), counts(synthetic, marginals), strict=True)
    for (group, column), ours, theirs in both:
        if ours is None or theirs is None:
            left_out.append(f"subgroups: `{column.name}` by `{group.name}` has too many cells")
            continue
        shape = (group.grouping.cells, column.grouping.cells)
        cells = list(_cells(group, column, ours.reshape(shape), theirs.reshape(shape)))
        compared += len(cells)
        # Never more than are listed are held, however many subgroups there are.
        found = sorted([*found, *cells], key=lambda cell: cell.by_chance - cell.distance)
        found = found[:MOST_LISTED]
    return Subgroups(compared=compared, worst=found), left_out


def _cells(
    group: Column, column: Column, real: NDArray[np.int64], synthetic: NDArray[np.int64]
) -> Iterator[SubgroupCell]:
    labels = group.labels()
    for place in np.flatnonzero(real.sum(axis=1) + synthetic.sum(axis=1)):
        ours, theirs = real[place], synthetic[place]
        yield SubgroupCell(
            subgroup=group.name,
            value=labels[place],
            column=column.name,
            real=int(ours.sum()),
            synthetic=int(theirs.sum()),
            distance=total_variation(ours, theirs),
            by_chance=by_chance(ours, theirs),
        )


def by_chance(real: NDArray[np.int64], synthetic: NDArray[np.int64]) -> float:
    """About the mean distance of two samples of one population, here the two tables together.

    The difference of two shares of a cell has about a normal distribution, whose mean absolute
    value is sqrt(2 / pi) standard deviations.
    """
    sizes = int(real.sum()), int(synthetic.sum())
    if not all(sizes):
        return 0.0
    shares: Floats = (real + synthetic) / sum(sizes)
    variance = shares * (1 - shares) * (1 / sizes[0] + 1 / sizes[1])
    return min(float(np.sqrt(variance).sum()) * math.sqrt(2 / math.pi) / 2, 1.0)
