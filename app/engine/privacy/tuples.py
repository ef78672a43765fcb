"""Exact counts of listed combinations of cells, each unit adding a bounded number of them.

Nothing here is private output: the kernel adds noise to what these functions return, or
draws a quantile from it.

Statement. For a public list of tuples and a limit m, add or remove one unit: the vector of
counts changes by at most 1 in at most m places, so its L1 distance is at most m and its L2
distance at most sqrt(m). The vector of how many tuples each unit holds gains or loses one
number.
Proof. The tuples that a unit holds are a function of its own (bounded) rows and of the
list. Of these, at most m are kept, drawn with random numbers of the unit's own; each tuple
kept adds 1 to its count, whatever other units do. So the draws of all other units can be
coupled to be the same in both tables.

The draw is the first m steps of a Fisher-Yates shuffle by 64 random bits of the operating
system for each step. Taking them modulo n makes an outcome at most n / 2^64 likelier than
another, which changes nothing in the statement above; no amplification is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.grouping import Grouping
from app.engine.privacy.bounding import random_keys

_DRAWS_AT_ONCE = 2**21
_NO_ITEM = -1


@dataclass(frozen=True)
class Listed:
    """A public list of tuples as a tree of prefixes, in which a row's tuples are found.

    A node of level l stands for the first l items of some tuple. Level 1 is `first`: node
    of each item, or -1. Deeper levels share one hash table from (level, node, item) to the
    node below, whose last level is the tuple's place in the list.
    """

    length: int
    tuples: int
    first: NDArray[np.int64]
    keys: NDArray[np.uint64]
    nodes: NDArray[np.int64]

    @classmethod
    def of(cls, items: NDArray[np.int32], most_items: int) -> Listed:
        """The tree of `items`, shape (tuples, length): rising rows of 0..most_items-1, no
        row twice. Raises `ValueError` for anything else."""
        tuples, length = items.shape
        wide = items.astype(np.int64)
        _check_list(wide, most_items)
        first = np.full(most_items, _NO_ITEM, dtype=np.int64)
        if length == 1:
            first[wide[:, 0]] = np.arange(tuples)
            return cls(1, tuples, first, np.zeros(2, np.uint64), np.full(2, -1))
        _, at, node = np.unique(wide[:, 0], return_index=True, return_inverse=True)
        first[wide[at, 0]] = node[at]
        steps, below = _steps(wide, node, most_items)
        keys, nodes = _hashed(steps, below)
        return cls(length, tuples, first, keys, nodes)


def _check_list(items: NDArray[np.int64], most_items: int) -> None:
    if items.size and not 0 <= items.min() <= items.max() < most_items:
        raise ValueError("a tuple names an item that there is not")
    if (np.diff(items, axis=1) <= 0).any():
        raise ValueError("the items of a tuple rise strictly")
    if len(np.unique(items, axis=0)) != len(items):
        raise ValueError("a tuple is listed twice")


def _steps(
    items: NDArray[np.int64], node: NDArray[np.int64], most_items: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Keys of all steps down the tree below level 1, and the node that each leads to."""
    tuples, length = items.shape
    all_keys, all_nodes = [], []
    for level in range(1, length):
        step = (level * tuples + node) * most_items + items[:, level]
        if level == length - 1:
            keys, below = step, np.arange(tuples, dtype=np.int64)
        else:
            keys, at, node = np.unique(step, return_index=True, return_inverse=True)
            below = node[at]
        all_keys.append(keys.astype(np.uint64))
        all_nodes.append(below.astype(np.int64))
    return np.concatenate(all_keys), np.concatenate(all_nodes)


def _hashed(
    steps: NDArray[np.uint64], below: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    size = 1 << max(1, (2 * len(steps)).bit_length())
    keys = np.zeros(size, dtype=np.uint64)
    nodes = np.full(size, -1, dtype=np.int64)
    _fill(keys, nodes, steps, below)
    return keys, nodes


@compiled
def _slot(key: Any, size: Any) -> Any:
    mixed = key * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(size - 1))


@compiled
def _fill(keys: Any, nodes: Any, steps: Any, below: Any) -> None:
    for index in range(len(steps)):
        slot = _slot(steps[index], len(keys))
        while nodes[slot] >= 0:
            slot = (slot + 1) & (len(keys) - 1)
        keys[slot] = steps[index]
        nodes[slot] = below[index]


@compiled
def _below(keys: Any, nodes: Any, key: Any) -> Any:
    slot = _slot(key, len(keys))
    while nodes[slot] >= 0:
        if keys[slot] == key:
            return nodes[slot]
        slot = (slot + 1) & (len(keys) - 1)
    return np.int64(-1)


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
    """Writes the tuples that one unit's rows hold to `held`, each once; returns how many."""
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
            if place[level] > width - (length - level):
                level -= 1
                continue
            item = items[place[level]]
            if level == 0:
                node = first[item]
            else:
                step = (level * tuples + path[level - 1]) * most_items + item
                node = _below(keys, nodes, np.uint64(step))
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
def _add_counts(
    counts: Any,
    items: Any,
    starts: Any,
    limit: Any,
    random: Any,
    length: Any,
    tuples: Any,
    first: Any,
    keys: Any,
    nodes: Any,
) -> None:
    seen = np.full(tuples, -1, dtype=np.int64)
    held = np.empty(tuples, dtype=np.int64)
    used = 0
    for unit in range(len(starts) - 1):
        rows = items[starts[unit] : starts[unit + 1]]
        found = _unit_tuples(rows, length, tuples, first, keys, nodes, seen, unit, held)
        kept = found
        if found > limit:
            kept = limit
            for index in range(limit):
                rest = np.uint64(found - index)
                chosen = index + np.int64(random[used] % rest)
                used += 1
                held[index], held[chosen] = held[chosen], held[index]
        for index in range(kept):
            counts[held[index]] += 1


def listed_items(
    codes: Mapping[str, NDArray[Any]], columns: tuple[str, ...], groupings: Mapping[str, Grouping]
) -> NDArray[np.int32]:
    """The item of each row in each column, int32, shape (rows, columns).

    Item `offsets[i] + cell` is cell `cell` of `columns[i]`; `offsets` are the running sums
    of the columns' cells. Raises `ValueError` for a code outside its grouping.
    """
    rows = len(codes[columns[0]])
    items = np.empty((rows, len(columns)), dtype=np.int32)
    offset = 0
    for position, name in enumerate(columns):
        grouping = groupings[name]
        cells = grouping.cell_of(codes[name])
        if cells.size and not 0 <= cells.min() <= cells.max() < grouping.cells:
            raise ValueError(f"a stored code of `{name}` is outside its grouping")
        items[:, position] = cells + offset
        offset += grouping.cells
    return items


def tuples_held(
    listed: Listed, items: NDArray[np.int32], starts: NDArray[np.int64]
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
    listed: Listed, items: NDArray[np.int32], starts: NDArray[np.int64], limit: int
) -> NDArray[np.int64]:
    """How many units hold each tuple, int64, shape (tuples,), each unit adding at most
    `limit` of those that it holds, drawn uniformly without replacement."""
    counts = np.zeros(listed.tuples, dtype=np.int64)
    if not listed.tuples:
        return counts
    numbers = tuples_held(listed, items, starts)
    draws = np.where(numbers > limit, limit, 0)
    for first, last in _stretches(draws):
        random = random_keys(int(draws[first:last].sum()))
        _add_counts(counts, items, starts[first : last + 1], limit, random, *_tree(listed))
    return counts


def _tree(listed: Listed) -> tuple[Any, ...]:
    return listed.length, listed.tuples, listed.first, listed.keys, listed.nodes


def _stretches(draws: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Stretches of units that need a bounded number of draws together (or are one unit)."""
    ends = np.cumsum(draws)
    first = 0
    while first < len(draws):
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + _DRAWS_AT_ONCE, side="right"))
        last = max(last, first + 1)
        yield first, last
        first = last
