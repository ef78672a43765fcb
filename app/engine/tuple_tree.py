"""A public list of combinations of items, as a prefix tree for fast look-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled

_NO_ITEM = -1


@dataclass(frozen=True)
class TupleTree:
    """A public list of tuples as a prefix tree.

    A node of level l stands for the first l items of some tuple. Level 1 is `first`: the node of
    each item, or -1. Deeper levels are in one hash table from (level, node, item) to the node
    below. A node of the last level is the place of its tuple in the list.
    """

    length: int
    tuples: int
    first: NDArray[np.int64]
    keys: NDArray[np.uint64]
    nodes: NDArray[np.int64]

    @property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        """`first`, `keys` and `nodes`, as compiled loops take them."""
        return self.first, self.keys, self.nodes

    def places(self, items: NDArray[np.int32]) -> NDArray[np.int64]:
        """The place in the list of each row of `items` (increasing, `length` items), or -1."""
        found: NDArray[np.int64] = _places(
            np.ascontiguousarray(items, dtype=np.int64), self.tuples, *self.arrays
        )
        return found

    @classmethod
    def of(cls, items: NDArray[np.int32], most_items: int) -> TupleTree:
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
        raise ValueError("a tuple has an unknown item")
    if (np.diff(items, axis=1) <= 0).any():
        raise ValueError("the items of a tuple must be strictly increasing")
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
    # A power of two, at least twice the keys: half empty, so that probes are short.
    size = 1 << max(1, (2 * len(steps)).bit_length())
    keys = np.zeros(size, dtype=np.uint64)
    nodes = np.full(size, -1, dtype=np.int64)
    _fill(keys, nodes, steps, below)
    return keys, nodes


@compiled
def _slot(key: Any, size: Any) -> Any:
    # Fibonacci hashing (Knuth 1998, section 6.4): the multiplier is 2^64 over the golden ratio.
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
def step_below(keys: Any, nodes: Any, key: Any) -> Any:
    slot = _slot(key, len(keys))
    while nodes[slot] >= 0:
        if keys[slot] == key:
            return nodes[slot]
        slot = (slot + 1) & (len(keys) - 1)
    return np.int64(-1)


@compiled
def _places(items: Any, tuples: Any, first: Any, keys: Any, nodes: Any) -> Any:
    found = np.empty(len(items), dtype=np.int64)
    for row in range(len(items)):
        node = first[items[row, 0]]
        for level in range(1, items.shape[1]):
            if node < 0:
                break
            step = (level * tuples + node) * len(first) + items[row, level]
            node = step_below(keys, nodes, np.uint64(step))
        found[row] = node
    return found
