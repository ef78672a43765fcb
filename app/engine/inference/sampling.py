"""Rows drawn from a calibrated junction tree.

Each clique's new axes are drawn given the axes that it shares with its parent, by inverting
the conditional distribution at one number in [0, 1) for each row. With low variance, the numbers
of the rows that share a separator cell are evenly spaced from one random start (systematic
sampling, Madow 1949), so each cell is drawn the floor or the ceiling of what is expected; then
the values are dealt among these rows such that pairs across cliques meet expectation too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.balancing import Columns, Groups, Items, dealt, stable_order
from app.engine.inference.junction_tree import JunctionTree, cells_of
from app.engine.inference.measurements import AxisNames

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# About a second of dealing; beyond it, values are balanced against fewer axes.
_MOST_LOOKS = 400_000_000

_MOST_PAIR_CELLS = 2**21


def sample(
    tree: JunctionTree,
    shares: tuple[Floats, ...],
    rows: int,
    rng: np.random.Generator,
    *,
    exact: bool,
) -> dict[str, Integers]:
    """See `GraphicalModel.sample`."""
    if rows < 0:
        raise ValueError("a number of rows is not negative")
    cells: dict[str, Integers] = {}
    for clique, separator, table in zip(tree.cliques, tree.separators, shares, strict=True):
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
    return {axis: cells.pop(axis)[order] for axis in tree.shape}  # never both tables at once


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
    """For each row the cell at which its separator cell's cumulative share passes `spread`.

    `order` lists the rows by separator cell: they are looked up in it, since adjoining rows then
    look at the same place of a long table.
    """
    present = np.zeros(weights.shape[0], dtype=np.bool_)
    present[given] = True
    used, group = np.flatnonzero(present), (np.cumsum(present) - 1)[given]
    rows = weights[used]
    rows[rows.sum(axis=1) <= 0] = 1.0
    reach = np.cumsum(rows, axis=1)
    reach /= reach[:, -1:]
    # One sorted array for all groups: group g covers the numbers from g to g + 1.
    ladder = (reach + np.arange(used.size)[:, None]).ravel()
    found = np.empty(given.size, dtype=np.int64)
    found[order] = np.searchsorted(ladder, (group + spread)[order], side="right")
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
    """The drawn values dealt among the rows of each group, against as many axes as time allows."""
    widest = max((tree.shape[axis] for axis in new), default=1)
    axes = [axis for axis in earlier if widest * tree.shape[axis] <= _MOST_PAIR_CELLS]
    if not axes or not drawn.size:
        return drawn
    values = np.arange(cells_of(tree.shape, new), dtype=np.int64)
    items = Items.of(groups, drawn, values.size)
    affordable = (
        _MOST_LOOKS // len(tree.cliques) // max(1, int(items.looks(groups).sum()) * len(new))
    )
    if affordable < len(axes):
        axes = [axes[i] for i in sorted(rng.permutation(len(axes))[:affordable])]
    if not axes:
        return drawn
    return dealt(
        groups,
        items,
        _columns(tree, new, _unravelled(tree, new, values)),
        _columns(tree, tuple(axes), [earlier[axis] for axis in axes]),
        rng,
    )


def _columns(tree: JunctionTree, axes: AxisNames, columns: list[Integers]) -> Columns:
    sizes = np.array([tree.shape[axis] for axis in axes], dtype=np.int64)
    return Columns(np.ascontiguousarray(np.array(columns).T), sizes)
