"""Noisy counts of combinations of items: which are candidates, and which are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.method.model_file import ModelFormatError
from app.engine.method.model_file import counts as stored_counts
from app.engine.tuple_tree import TupleTree, step_below

Items = NDArray[np.int32]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """The kept combinations of one length.

    items: int32, shape (tuples, length), rows rising, in lexicographic order. counts: int64,
    shape (tuples,), all at least 1.
    """

    items: Items
    counts: Counts

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def length(self) -> int:
        return int(self.items.shape[1])

    def largest(self, most: int) -> Level:
        """The `most` tuples of the largest counts, in order."""
        kept = np.sort(np.argsort(-self.counts, kind="stable")[:most])
        return Level(self.items[kept], self.counts[kept])


@dataclass(frozen=True)
class Aggregates:
    """The kept combinations of length 1, 2, ..., over items 0..most_items-1.

    Every part of a kept combination is kept, with a count no smaller.
    """

    most_items: int
    levels: tuple[Level, ...]

    @property
    def length(self) -> int:
        return len(self.levels)

    @cached_property
    def trees(self) -> tuple[TupleTree, ...]:
        return tuple(TupleTree.of(level.items, self.most_items) for level in self.levels)

    def with_level(self, items: Items, noisy: Counts, threshold: float) -> Aggregates:
        """One length more: of `items`, those whose noisy count is above the threshold (and at
        least 1), each capped at the smallest count of its parts."""
        kept = noisy > max(threshold, 0)
        items, counts = items[kept], noisy[kept]
        return Aggregates(
            self.most_items, (*self.levels, Level(items, np.minimum(counts, self.caps(items))))
        )

    def caps(self, items: Items) -> Counts:
        """The smallest count of the parts one shorter, 0 if one is not kept; shape (tuples,)."""
        length = items.shape[1]
        caps = np.full(len(items), np.iinfo(np.int64).max)
        if length == 1:
            return caps
        below, tree = self.levels[length - 2], self.trees[length - 2]
        for left_out in range(length):
            places = tree.places(np.delete(items, left_out, axis=1))
            counts = np.zeros(len(items), dtype=np.int64)
            counts[places >= 0] = below.counts[places[places >= 0]]
            caps = np.minimum(caps, counts)
        return caps

    def holds(self, items: Items) -> NDArray[np.bool_]:
        """Which rows of items (rising, of one length) are kept combinations."""
        kept: NDArray[np.bool_] = self.trees[items.shape[1] - 1].places(items) >= 0
        return kept

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        for level in self.levels:
            arrays[f"items_{level.length}"] = level.items
            arrays[f"counts_{level.length}"] = level.counts
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], length: int, most_items: int
    ) -> Aggregates:
        """Stored aggregates; raises `ModelFormatError` for what no run stores."""
        kept = cls(most_items, ())
        for size in range(1, length + 1):
            items = arrays.get(f"items_{size}")
            if items is None or items.dtype != np.int32 or items.shape[1:] != (size,):
                raise ModelFormatError("the stored model has no valid combinations")
            counts = stored_counts(arrays, f"counts_{size}", (len(items),))
            kept = cls(most_items, (*kept.levels, Level(items, counts)))
            try:
                fits = bool((kept.trees[-1].tuples == len(items)) and (counts >= 1).all())
            except ValueError as error:
                raise ModelFormatError("the stored combinations are impossible") from error
            if not fits or (kept.caps(items) < counts).any():
                raise ModelFormatError("the stored combinations are impossible")
        return kept


def candidates(below: Level, axis: NDArray[np.int64], most: int) -> Items:
    """All combinations one longer whose every part is in `below`, at most `most` of them.

    `axis` is the axis of each item; a combination holds one item of an axis. While there would
    be more than `most`, the half of `below` with smaller counts is left out.
    """
    # Made from noisy counts alone, so listing candidates costs no privacy loss.
    while True:
        level = below.length + 1
        tree = TupleTree.of(below.items, len(axis))
        groups = _groups(below.items)
        number = int(_join(below.items, groups, axis, tree.tuples, *tree.arrays, _NO_ROOM)[0])
        if number <= most:
            out = np.empty((number, level), dtype=np.int32)
            _join(below.items, groups, axis, tree.tuples, *tree.arrays, out)
            return out
        below = below.largest(len(below) // 2)


_NO_ROOM = np.empty((0, 0), dtype=np.int32)


def _groups(items: Items) -> NDArray[np.int64]:
    """Where runs of rows that agree in all but the last item begin, and the end."""
    if not len(items):
        return np.zeros(1, dtype=np.int64)
    differs = (items[1:, :-1] != items[:-1, :-1]).any(axis=1)
    return np.concatenate([[0], np.flatnonzero(differs) + 1, [len(items)]]).astype(np.int64)


@compiled
def _has(
    items: Any, row: Any, last: Any, left_out: Any, tuples: Any, first: Any, keys: Any, nodes: Any
) -> Any:
    """Whether a row less one of its items, and `last`, is a row of the tree."""
    length = items.shape[1]
    node = np.int64(-1)
    level = 0
    for position in range(length + 1):
        if position == left_out:
            continue
        item = last if position == length else items[row, position]
        if level == 0:
            node = first[item]
        else:
            node = step_below(keys, nodes, np.uint64((level * tuples + node) * len(first) + item))
        if node < 0:
            return False
        level += 1
    return True


@compiled
def _join(
    items: Any, groups: Any, axis: Any, tuples: Any, first: Any, keys: Any, nodes: Any, out: Any
) -> Any:
    """Joins rows that agree in all but the last item; the pair's other parts are looked up.

    Returns the number of combinations, in an array; writes them where `out` has room.
    """
    length = items.shape[1]
    found = 0
    for group in range(len(groups) - 1):
        for left in range(groups[group], groups[group + 1]):
            for right in range(left + 1, groups[group + 1]):
                last = items[right, length - 1]
                if axis[last] == axis[items[left, length - 1]]:
                    continue
                whole = True
                for left_out in range(length - 1):
                    if not _has(items, left, last, left_out, tuples, first, keys, nodes):
                        whole = False
                        break
                if not whole:
                    continue
                if found < len(out):
                    out[found, :length] = items[left]
                    out[found, length] = last
                found += 1
    return np.array([found])
