"""Rows drawn from a calibrated junction tree.

Each clique's new axes are drawn given the axes that it shares with its parent, by inverting
the conditional distribution at one number in [0, 1) for each row. With low variance, the numbers
of the rows that share a separator cell are evenly spaced from one random start (systematic
sampling, Madow 1949), so each cell is drawn the floor or the ceiling of what is expected.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.junction import JunctionTree, cells_of
from app.engine.inference.measurements import AxisNames

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def sample(
    tree: JunctionTree,
    shares: tuple[Floats, ...],
    rows: int,
    rng: np.random.Generator,
    *,
    exact: bool,
) -> dict[str, Integers]:
    """See `GraphicalModel.sample`."""
    cells: dict[str, Integers] = {}
    for clique, separator, table in zip(tree.cliques, tree.separators, shares, strict=True):
        new = tuple(axis for axis in clique if axis not in separator)
        given = _flat_cells(tree, separator, cells, rows)
        spread = rng.random(rows) if exact else _even(given, rng)
        drawn = _inverted(_by_separator(table, clique, separator), given, spread)
        sizes = tuple(tree.shape[axis] for axis in new)
        cells.update(zip(new, np.unravel_index(drawn, sizes), strict=True))
    order = rng.permutation(rows)
    return {axis: cells[axis].astype(np.int64)[order] for axis in tree.shape}


def _flat_cells(
    tree: JunctionTree, axes: AxisNames, cells: dict[str, Integers], rows: int
) -> Integers:
    flat = np.zeros(rows, dtype=np.int64)
    for axis in axes:
        flat = flat * tree.shape[axis] + cells[axis]
    return flat


def _by_separator(table: Floats, clique: AxisNames, separator: AxisNames) -> Floats:
    """Shape (separator cells, cells of the new axes)."""
    shared = [i for i, axis in enumerate(clique) if axis in separator]
    new = [i for i, axis in enumerate(clique) if axis not in separator]
    size = cells_of(dict(zip(clique, table.shape, strict=True)), separator)
    return table.transpose(shared + new).reshape(size, -1)


def _even(given: Integers, rng: np.random.Generator) -> Floats:
    """Evenly spaced numbers for the rows of each group, dealt in random order."""
    rows = given.size
    order = rng.permutation(rows)
    order = order[np.argsort(given[order], kind="stable")]
    _, firsts, counts = np.unique(given[order], return_index=True, return_counts=True)
    rank = np.arange(rows) - np.repeat(firsts, counts)
    start = np.repeat(rng.random(firsts.size), counts)
    spread = np.empty(rows)
    spread[order] = (rank + start) / np.repeat(counts, counts)
    return spread


def _inverted(weights: Floats, given: Integers, spread: Floats) -> Integers:
    """For each row the cell at which its separator cell's cumulative share passes `spread`."""
    used, group = np.unique(given, return_inverse=True)
    rows = weights[used]
    reach = np.cumsum(rows, axis=1)
    empty = reach[:, -1] <= 0
    reach[empty] = np.arange(1, rows.shape[1] + 1)
    reach /= reach[:, -1:]
    # One sorted array for all groups: group g covers the numbers from g to g + 1.
    ladder = (reach + np.arange(used.size)[:, None]).ravel()
    found = np.searchsorted(ladder, group + spread, side="right")
    found -= group * rows.shape[1]
    last = rows.shape[1] - 1 - np.argmax((rows > 0)[:, ::-1], axis=1)
    chosen: Integers = np.clip(found, 0, np.where(empty, rows.shape[1] - 1, last)[group])
    return chosen.astype(np.int64)
