"""Rows drawn from a calibrated junction tree.

Clique by clique, the new axes are drawn given the axes that the clique shares with its parent.
The conditional distribution function is inverted at one number in [0, 1) for each row. With
`exact`, these numbers are independent. Otherwise, the numbers of the rows in one separator cell
are evenly spaced from one random start (systematic sampling, Madow 1949). So each cell is drawn
the floor or the ceiling of its expectation. Then the values are assigned to these rows such that
pairs across cliques meet their expectation too (`balancing`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.balancing import Columns, Groups, Items, assign_values, stable_order
from app.engine.inference.junction_tree import JunctionTree, cells_of
from app.engine.inference.measurements import AxisNames

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# About a second of work; beyond it, values are balanced against fewer axes.
_MOST_COMPARISONS = 400_000_000

# Pairs with more cells are not balanced: their counts would take over 16 MB, and mostly be 0 or 1.
_MOST_PAIR_CELLS = 2**21


def sample(
    tree: JunctionTree,
    probabilities: tuple[Floats, ...],
    rows: int,
    rng: np.random.Generator,
    *,
    exact: bool,
) -> dict[str, Integers]:
    """See `GraphicalModel.sample`."""
    if rows < 0:
        raise ValueError("the number of rows must not be negative")
    cells: dict[str, Integers] = {}
    for clique, separator, table in zip(tree.cliques, tree.separators, probabilities, strict=True):
        new = tuple(axis for axis in clique if axis not in separator)
        weights = _by_separator(table, clique, separator)
        given = _flat_cells(tree, separator, cells, rows)
        if exact:
            drawn = _inverted(weights, given, rng.random(rows), stable_order(given))
        else:
            groups = Groups.of(given, rng)
            drawn = _inverted(weights, given, _even(groups, rng), groups.order)
            earlier = {axis: column for axis, column in cells.items() if axis not in separator}
            drawn = _balanced(tree, new, groups, drawn, earlier, rng)
        cells.update(zip(new, _unravelled(tree, new, drawn), strict=True))
    order = rng.permutation(rows)
    # Columns leave the first table one by one, so that memory never holds both tables.
    return {axis: cells.pop(axis)[order] for axis in tree.shape}


def _flat_cells(
    tree: JunctionTree, axes: AxisNames, cells: Mapping[str, Integers], rows: int
) -> Integers:
    flat = np.zeros(rows, dtype=np.int64)
    for axis in axes:
        flat = flat * tree.shape[axis] + cells[axis]
    return flat


def _unravelled(tree: JunctionTree, axes: AxisNames, flat: Integers) -> list[Integers]:
    sizes = [tree.shape[axis] for axis in axes]
    return [column.astype(np.int64) for column in np.unravel_index(flat, sizes)]


def _by_separator(table: Floats, clique: AxisNames, separator: AxisNames) -> Floats:
    """Shape (separator cells, cells of the new axes)."""
    shared = [i for i, axis in enumerate(clique) if axis in separator]
    new = [i for i, axis in enumerate(clique) if axis not in separator]
    size = cells_of(dict(zip(clique, table.shape, strict=True)), separator)
    return table.transpose(shared + new).reshape(size, -1)


def _even(groups: Groups, rng: np.random.Generator) -> Floats:
    """Evenly spaced numbers for the rows of each group, in random order."""
    counts = np.diff(groups.ends)
    rank = np.arange(groups.order.size) - np.repeat(groups.ends[:-1], counts)
    start = np.repeat(rng.random(counts.size), counts)
    spread = np.empty(groups.order.size)
    spread[groups.order] = (rank + start) / np.repeat(counts, counts)
    return spread


def _inverted(weights: Floats, given: Integers, spread: Floats, order: Integers) -> Integers:
    """For each row the cell at which the cumulative probability passes `spread`, shape (rows,).

    `order` lists the rows by separator cell. The search takes them in this order, because
    successive searches then read the same part of a long table.
    """
    present = np.zeros(weights.shape[0], dtype=np.bool_)
    present[given] = True
    used, group = np.flatnonzero(present), (np.cumsum(present) - 1)[given]
    rows = weights[used]
    # A separator cell that underflowed to 0 in the model has no distribution; uniform will do.
    rows[rows.sum(axis=1) <= 0] = 1.0
    reach = np.cumsum(rows, axis=1)
    reach /= reach[:, -1:]
    # One sorted array for all groups: group g covers the numbers from g to g + 1, so that one
    # search serves all.
    ladder = (reach + np.arange(used.size)[:, None]).ravel()
    found = np.empty(given.size, dtype=np.int64)
    found[order] = np.searchsorted(ladder, (group + spread)[order], side="right")
    # Rounding can push a number beyond the last cell with any probability.
    last = rows.shape[1] - 1 - np.argmax((rows > 0)[:, ::-1], axis=1)
    chosen: Integers = np.minimum(found - group * rows.shape[1], last[group])
    return chosen


def _balanced(
    tree: JunctionTree,
    new: AxisNames,
    groups: Groups,
    drawn: Integers,
    earlier: Mapping[str, Integers],
    rng: np.random.Generator,
) -> Integers:
    """The values assigned within each group, balanced against as many axes as time allows."""
    widest = max((tree.shape[axis] for axis in new), default=1)
    axes = [axis for axis in earlier if widest * tree.shape[axis] <= _MOST_PAIR_CELLS]
    if not axes or not drawn.size:
        return drawn
    values = np.arange(cells_of(tree.shape, new), dtype=np.int64)
    items = Items.of(groups, drawn, values.size)
    affordable = (
        _MOST_COMPARISONS
        // len(tree.cliques)
        // max(1, int(items.comparisons(groups).sum()) * len(new))
    )
    if affordable < len(axes):
        axes = [axes[i] for i in sorted(rng.permutation(len(axes))[:affordable])]
    if not axes:
        return drawn
    return assign_values(
        groups,
        items,
        _columns(tree, new, _unravelled(tree, new, values)),
        _columns(tree, tuple(axes), [earlier[axis] for axis in axes]),
        rng,
    )


def _columns(tree: JunctionTree, axes: AxisNames, columns: list[Integers]) -> Columns:
    sizes = np.array([tree.shape[axis] for axis in axes], dtype=np.int64)
    return Columns(np.ascontiguousarray(np.array(columns).T), sizes)
