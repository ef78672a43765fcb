"""Exact counts of listed combinations of cells, each unit adding a bounded number of them.

Nothing here is safe to publish: the kernel adds noise to what these functions return, or
draws a quantile from it.

Statement. Take a public list of tuples, a limit m, and adjacent datasets, which differ by one
unit added or removed. The vector of counts changes by at most 1 in at most m places, so its
L1 distance is at most m and its L2 distance at most sqrt(m). The vector of how many tuples
each unit holds gains or loses one number.
Proof. The tuples that a unit holds are a function of its own (bounded) rows and of the
list. Of these, at most m are kept, drawn with random numbers of the unit's own; each tuple
kept adds 1 to its count, whatever other units do. So the draws of all other units can be
coupled to be the same in both datasets.

The draw is the first m steps of a Fisher-Yates shuffle by 64 random bits of the operating
system for each step. Taking them modulo n makes an outcome at most n / 2^64 likelier than
another, which changes nothing in the statement above; no amplification is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.grouping import Grouping
from app.engine.privacy.bounding import random_keys
from app.engine.privacy.queries import Parts
from app.engine.tuple_tree import TupleTree, step_below

_NO_ITEM = -1
# Random numbers of one block of units: 16 MiB.
_DRAWS_AT_ONCE = 2**21


@compiled
def _unit_tuples(
    rows: Any,
    length: Any,
    tuples: Any,
    first: Any,
    keys: Any,
    nodes: Any,
    seen: Any,
    stamp: Any,
    held: Any,
) -> Any:
    """Writes the tuples that one unit's rows hold to `held`, each once; returns how many.

    Walks the tree depth first: `place[level]` is the item of the row that is tried at a level,
    `path[level]` the node reached there. `seen[node]` is the stamp of the last unit that held
    the tuple of a leaf, so that a tuple in two rows of a unit counts once.
    """
    found = 0
    most_items = len(first)
    items = np.empty(rows.shape[1], dtype=np.int64)
    place = np.empty(length, dtype=np.int64)
    path = np.empty(length, dtype=np.int64)
    for row in range(rows.shape[0]):
        width = 0
        for column in range(rows.shape[1]):
            item = rows[row, column]
            if item >= 0:
                items[width] = item
                width += 1
        level = 0
        place[0] = -1
        while level >= 0:
            place[level] += 1
            if place[level] > width - (length - level):  # too few items are left in the row
                level -= 1
                continue
            item = items[place[level]]
            if level == 0:
                node = first[item]
            else:
                step = (level * tuples + path[level - 1]) * most_items + item
                node = step_below(keys, nodes, np.uint64(step))
            if node < 0:
                continue
            if level == length - 1:
                if seen[node] != stamp:
                    seen[node] = stamp
                    held[found] = node
                    found += 1
            else:
                path[level] = node
                level += 1
                place[level] = place[level - 1]
    return found


@compiled
def _numbers(
    items: Any, starts: Any, length: Any, tuples: Any, first: Any, keys: Any, nodes: Any
) -> Any:
    units = len(starts) - 1
    numbers = np.zeros(units, dtype=np.int64)
    seen = np.full(tuples, -1, dtype=np.int64)
    held = np.empty(tuples, dtype=np.int64)
    for unit in range(units):
        rows = items[starts[unit] : starts[unit + 1]]
        numbers[unit] = _unit_tuples(rows, length, tuples, first, keys, nodes, seen, unit, held)
    return numbers


@compiled
def _add_small(
    counts: Any,
    items: Any,
    starts: Any,
    limit: Any,
    length: Any,
    tuples: Any,
    first: Any,
    keys: Any,
    nodes: Any,
) -> Any:
    """Counts the units that hold at most `limit` tuples; returns the others."""
    units = len(starts) - 1
    large = np.empty(units, dtype=np.int64)
    number = 0
    seen = np.full(tuples, -1, dtype=np.int64)
    held = np.empty(tuples, dtype=np.int64)
    for unit in range(units):
        rows = items[starts[unit] : starts[unit + 1]]
        found = _unit_tuples(rows, length, tuples, first, keys, nodes, seen, unit, held)
        if found > limit:
            large[number] = unit
            number += 1
            continue
        for index in range(found):
            counts[held[index]] += 1
    return large[:number].copy()


@compiled
def _add_drawn(
    counts: Any,
    items: Any,
    starts: Any,
    units: Any,
    limit: Any,
    random: Any,
    length: Any,
    tuples: Any,
    first: Any,
    keys: Any,
    nodes: Any,
) -> None:
    """Counts `limit` tuples of each of `units`, which hold more."""
    seen = np.full(tuples, -1, dtype=np.int64)
    held = np.empty(tuples, dtype=np.int64)
    used = 0
    for unit in units:
        rows = items[starts[unit] : starts[unit + 1]]
        found = _unit_tuples(rows, length, tuples, first, keys, nodes, seen, unit, held)
        for index in range(limit):
            chosen = index + np.int64(random[used] % np.uint64(found - index))
            used += 1
            held[index], held[chosen] = held[chosen], held[index]
            counts[held[index]] += 1


def listed_items(
    codes: Mapping[str, NDArray[Any]],
    columns: tuple[str, ...],
    groupings: Mapping[str, Grouping],
    parts: Mapping[str, Parts],
) -> NDArray[np.int32]:
    """The items of each row, rising from the left but for -1 (none), int32, shape (rows, width).

    Item `offsets[i] + cell` is cell `cell` of `columns[i]` (or one of its `parts`); `offsets`
    are the running sums of the columns' cells (or parts). Raises `ValueError` for a code
    outside its grouping.
    """
    found = []
    offset = 0
    for name in columns:
        grouping = groupings[name]
        cells = grouping.cell_of(codes[name])
        if cells.size and not 0 <= cells.min() <= cells.max() < grouping.cells:
            raise ValueError(f"a stored code of `{name}` is outside its grouping")
        table = _items_of_cells(grouping, parts.get(name))
        found.append(np.where(table >= 0, table + offset, _NO_ITEM)[cells])
        offset += len(parts[name].names) if name in parts else grouping.cells
    return np.concatenate(found, axis=1).astype(np.int32)


def _items_of_cells(grouping: Grouping, parts: Parts | None) -> NDArray[np.int64]:
    """The numbers of the items of each cell, -1 for none, shape (cells, most items of a cell)."""
    if parts is None:
        return np.arange(grouping.cells)[:, None]
    table = np.full((grouping.cells, parts.most_of_cell), _NO_ITEM)
    for cell, numbers in enumerate(parts.of_cell):
        table[cell, : len(numbers)] = numbers
    return table


def tuples_held(
    listed: TupleTree, items: NDArray[np.int32], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many listed tuples each unit holds, int64, shape (units,).

    `items` has shape (rows, columns), unit after unit, -1 for no item; the rows of unit u
    are `starts[u]` to `starts[u + 1]`.
    """
    if not listed.tuples:
        return np.zeros(len(starts) - 1, dtype=np.int64)
    numbers: NDArray[np.int64] = _numbers(items, starts, *_tree(listed))
    return numbers


def count_tuples(
    listed: TupleTree, items: NDArray[np.int32], starts: NDArray[np.int64], limit: int
) -> NDArray[np.int64]:
    """How many units hold each tuple, int64, shape (tuples,), each unit adding at most
    `limit` of those that it holds, drawn uniformly without replacement."""
    counts = np.zeros(listed.tuples, dtype=np.int64)
    if not listed.tuples:
        return counts
    large = _add_small(counts, items, starts, limit, *_tree(listed))
    at_once = max(1, _DRAWS_AT_ONCE // limit)
    for begin in range(0, len(large), at_once):
        units = large[begin : begin + at_once]
        random = random_keys(len(units) * limit)
        _add_drawn(counts, items, starts, units, limit, random, *_tree(listed))
    return counts


def _tree(listed: TupleTree) -> tuple[Any, ...]:
    return listed.length, listed.tuples, *listed.arrays
