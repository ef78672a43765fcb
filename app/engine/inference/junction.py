"""Junction trees: cliques of axes on which a distribution of low-order factors is exact.

The axes of each factor are joined in a graph, the graph is made chordal by eliminating axes
one by one, and the maximal cliques are hung in a tree in which the cliques that hold an axis
are connected (Lauritzen and Spiegelhalter 1988; Koller and Friedman 2009, chapters 9 and 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.inference.measurements import AxisNames, check_axes, table_order

_MOST_CELLS = 2.0**62

_WORD = 64
_ONE, _TWO, _FOUR, _TOP = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
_EVEN, _PAIRS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_NIBBLES, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
"""Of a count of bits: words of every second bit, pair of bits, four bits and byte."""


@dataclass(frozen=True)
class JunctionTree:
    """Cliques in an order that puts parents first; `parents[0]` is -1, the root.

    Axes within a clique are in table order. Parts of the graph that no factor joins hang
    together by empty separators, so the tree is one. Make it with `of`.
    """

    shape: Mapping[str, int]
    cliques: tuple[AxisNames, ...]
    parents: tuple[int, ...]

    @classmethod
    def of(cls, shape: Mapping[str, int], cliques: Iterable[AxisNames]) -> JunctionTree:
        """The tree over all axes of the shape, such that each of `cliques` lies in a clique.

        Min-fill elimination, ties broken by the cells of the clique made and then by table
        order; a maximum-weight spanning tree over the separators, rooted at the largest clique.
        Deterministic. Raises `ValueError` for an unknown axis or an axis without cells.
        """
        if not shape or any(cells < 1 for cells in shape.values()):
            raise ValueError("a shape has axes, and each of them a cell")
        order = table_order(shape)
        members, kept = _eliminated(shape, order, cliques)
        found = [
            tuple(axis for axis, inside in zip(order, row, strict=True) if inside)
            for row in members[kept]
        ]
        return _hung(dict(shape), found)

    @classmethod
    def stored(
        cls, shape: Mapping[str, int], cliques: tuple[AxisNames, ...], parents: tuple[int, ...]
    ) -> JunctionTree:
        """A tree that was taken apart; raises `ValueError` for what is no junction tree."""
        tree = cls(dict(shape), cliques, parents)
        tree._check()
        return tree

    def _check(self) -> None:
        if not self.cliques or len(self.parents) != len(self.cliques):
            raise ValueError("each clique has a parent")
        if self.parents[0] != -1 or any(
            not 0 <= parent < child for child, parent in enumerate(self.parents) if child
        ):
            raise ValueError("parents come before their children")
        order = table_order(self.shape)
        seen: set[str] = set()
        for clique, separator in zip(self.cliques, self.separators, strict=True):
            check_axes(self.shape, clique, None)
            if clique != tuple(axis for axis in order if axis in clique):
                raise ValueError("the axes of a clique are in table order")
            if seen.issuperset(clique):
                raise ValueError("each clique brings an axis of its own")
            if not seen.intersection(clique) <= set(separator):
                raise ValueError("the cliques that hold an axis are connected")
            seen.update(clique)
        if seen != set(self.shape):
            raise ValueError("each axis is in a clique")

    @cached_property
    def separators(self) -> tuple[AxisNames, ...]:
        """For each clique the axes that it shares with its parent; empty for the root."""
        return tuple(
            tuple(axis for axis in clique if parent >= 0 and axis in self.cliques[parent])
            for clique, parent in zip(self.cliques, self.parents, strict=True)
        )

    def rooted_at(self, root: int) -> tuple[JunctionTree, tuple[int, ...]]:
        """The same tree hung at another clique, and for each of its cliques the number here."""
        order, parents, place = [root], [-1], {root: 0}
        for clique in order:
            for near in self.neighbours[clique]:
                if near not in place:
                    parents.append(place[clique])
                    place[near] = len(order)
                    order.append(near)
        cliques = tuple(self.cliques[clique] for clique in order)
        return JunctionTree(self.shape, cliques, tuple(parents)), tuple(order)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs of clique numbers, parent and child."""
        return tuple((parent, child) for child, parent in enumerate(self.parents) if child)

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """For each clique the numbers of its parent and its children."""
        near: list[list[int]] = [[] for _ in self.cliques]
        for parent, child in self.edges:
            near[parent].append(child)
            near[child].append(parent)
        return tuple(map(tuple, near))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(cells_of(self.shape, clique) for clique in self.cliques)

    @property
    def cells(self) -> int:
        return sum(self.sizes)

    @property
    def largest(self) -> int:
        return max(self.sizes)

    def home(self, axes: Iterable[str]) -> int | None:
        """The number of the smallest clique that holds all the axes, or None."""
        wanted = set(axes)
        holding = [i for i, clique in enumerate(self._sets) if wanted <= clique]
        return min(holding, key=lambda i: self.sizes[i], default=None)

    @cached_property
    def _sets(self) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(clique) for clique in self.cliques)


def cells_of(shape: Mapping[str, int], axes: Iterable[str]) -> int:
    return math.prod(shape[axis] for axis in axes)


def predicted_cells(shape: Mapping[str, int], cliques: Iterable[AxisNames]) -> int:
    """`JunctionTree.of(shape, cliques).cells` without making the tree: some microseconds.

    Exact below 2^53; no more than 2^62 is ever answered.
    """
    return predicted_with_each(shape, cliques, [()])[0]


def predicted_with_each(
    shape: Mapping[str, int], cliques: Iterable[AxisNames], additions: Sequence[AxisNames]
) -> list[int]:
    """`predicted_cells` of the cliques and one of the additions, for each of these."""
    return GrowingTree(shape, cliques).with_each(additions)


class GrowingTree:
    """Cliques to which others are added one by one, and what their junction tree would take."""

    def __init__(self, shape: Mapping[str, int], cliques: Iterable[AxisNames] = ()) -> None:
        order = table_order(shape)
        self._places = {axis: i for i, axis in enumerate(order)}
        self._cells = np.array([shape[axis] for axis in order], dtype=np.float64)
        self._logs = np.log(self._cells)
        self._adjacent = _joined(self._places, cliques)

    def with_each(self, additions: Sequence[AxisNames]) -> list[int]:
        """`predicted_cells` with one of the additions, for each of these."""
        longest = max((len(addition) for addition in additions), default=0)
        spots = np.full((len(additions), longest), -1, dtype=np.int64)
        for row, addition in zip(spots, additions, strict=True):
            row[: len(addition)] = _spots(self._places, addition)
        found = _predict_each(self._adjacent, self._logs, self._cells, spots)
        return [int(min(size, _MOST_CELLS)) for size in found.tolist()]

    def add(self, clique: AxisNames) -> None:
        self._adjacent |= _joined(self._places, [clique])


def _eliminated(
    shape: Mapping[str, int], order: AxisNames, cliques: Iterable[AxisNames]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    joined = _joined({axis: i for i, axis in enumerate(order)}, cliques)
    logs = np.log(np.array([shape[axis] for axis in order], dtype=np.float64))
    return _eliminate(joined, logs)


def _joined(places: Mapping[str, int], cliques: Iterable[AxisNames]) -> NDArray[np.bool_]:
    """The adjacency of the axes, each joined with itself too where a clique holds it."""
    count = len(places)
    pairs: list[int] = []
    for clique in cliques:
        spots = _spots(places, clique)
        pairs += [count * one + other for one in spots for other in spots]
    joined = np.zeros(count * count, dtype=np.bool_)
    joined[pairs] = True
    return joined.reshape(count, count)


def _spots(places: Mapping[str, int], clique: AxisNames) -> list[int]:
    try:
        return [places[axis] for axis in clique]
    except KeyError as error:
        raise ValueError(f"no axis of the shape is named {error.args[0]!r}") from None


@compiled
def _predict_each(
    joined: NDArray[np.bool_],
    logs: NDArray[np.float64],
    cells: NDArray[np.float64],
    spots: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The cells of the tree with each row of `spots` joined; -1 is no spot."""
    found = np.zeros(spots.shape[0])
    for row in range(spots.shape[0]):
        graph = joined.copy()
        for one in spots[row]:
            for other in spots[row]:
                if one >= 0 and other >= 0:
                    graph[one, other] = True
        members, kept = _eliminate(graph, logs)
        for clique in range(cells.size):
            if kept[clique]:
                size = 1.0
                for axis in range(cells.size):
                    if members[clique, axis]:
                        size *= cells[axis]
                found[row] += size
    return found


@compiled
def _count(word: np.uint64) -> np.int64:
    """How many bits are set (Warren 2013, chapter 5)."""
    word = word - ((word >> _ONE) & _EVEN)
    word = (word & _PAIRS) + ((word >> _TWO) & _PAIRS)
    word = (word + (word >> _FOUR)) & _NIBBLES
    return np.int64((word * _BYTES) >> _TOP)


@compiled
def _spread(members: NDArray[np.uint64], axes: NDArray[np.int64]) -> int:
    """Write the members of a set, rising, into `axes`; how many there are."""
    size = 0
    for word in range(members.size):
        left = members[word]
        while left:
            rest = left & (left - _ONE)
            axes[size] = _WORD * word + _count((left ^ rest) - _ONE)
            size += 1
            left = rest
    return size


@compiled
def _fill(
    near: NDArray[np.uint64], joined: NDArray[np.uint64], axes: NDArray[np.int64]
) -> tuple[int, int]:
    """How many pairs of a set's axes are not joined, and how many axes it has."""
    degree, found = _spread(near, axes), 0
    for i in range(degree):
        for word in range(near.size):
            found += int(_count(joined[axes[i], word] & near[word]))
    return (degree * (degree - 1) - found) // 2, degree


@compiled
def _eliminate(
    adjacent: NDArray[np.bool_], logs: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Members of each elimination clique by step, and which of them are maximal.

    `adjacent` is the symmetric adjacency; `logs` the logarithms of the cells. Within, sets of
    axes are bits of words, and axes leave their neighbours' sets as they are eliminated.
    """
    count = logs.size
    words = (count + _WORD - 1) // _WORD
    joined = np.zeros((count, words), dtype=np.uint64)
    for one in range(count):
        for other in range(count):
            if other != one and adjacent[one, other]:
                joined[one, other // _WORD] |= _ONE << np.uint64(other % _WORD)
    cliques = np.zeros((count, words), dtype=np.uint64)
    members = np.zeros((count, count), dtype=np.bool_)
    kept = np.zeros(count, dtype=np.bool_)
    left = np.ones(count, dtype=np.bool_)
    near, nearby = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    fills, sizes = np.empty(count, dtype=np.int64), np.empty(count)
    stale = np.ones(count, dtype=np.bool_)
    for step in range(count):
        best, best_fill, best_size = -1, 0, 0.0
        for axis in range(count):
            if not left[axis]:
                continue
            if stale[axis]:
                fills[axis], degree = _fill(joined[axis], joined, near)
                sizes[axis] = logs[axis]
                for i in range(degree):
                    sizes[axis] += logs[near[i]]
                stale[axis] = False
            fill, size = fills[axis], sizes[axis]
            if best < 0 or fill < best_fill or (fill == best_fill and size < best_size - 1e-9):
                best, best_fill, best_size = axis, fill, size
        degree = _spread(joined[best], near)
        place, bit = best // _WORD, _ONE << np.uint64(best % _WORD)
        cliques[step] = joined[best]
        cliques[step, place] |= bit
        # Its neighbours lose it, and where they are joined anew, their neighbours lose a gap.
        for i in range(degree):
            axis = near[i]
            members[step, axis] = stale[axis] = True
            if best_fill > 0:
                for j in range(_spread(joined[axis], nearby)):
                    stale[nearby[j]] = True
            for word in range(words):
                joined[axis, word] |= cliques[step, word]
            joined[axis, place] &= ~bit
            joined[axis, axis // _WORD] &= ~(_ONE << np.uint64(axis % _WORD))
        members[step, best] = True
        left[best] = False
        # A clique made later lacks the axis eliminated here, so only earlier ones can hold it.
        kept[step] = True
        for earlier in range(step):
            if kept[earlier] and cliques[earlier, place] & bit:
                inside = True
                for word in range(words):
                    if cliques[step, word] & ~cliques[earlier, word]:
                        inside = False
                        break
                if inside:
                    kept[step] = False
                    break
    return members, kept


def _hung(shape: dict[str, int], cliques: list[AxisNames]) -> JunctionTree:
    """Prim's maximum spanning tree by shared axes; the cliques are numbered as they join."""
    sets = [set(clique) for clique in cliques]
    sizes = [cells_of(shape, clique) for clique in cliques]
    root = max(range(len(cliques)), key=lambda i: (sizes[i], -i))
    waiting = {i: (len(sets[root] & sets[i]), 0) for i in range(len(cliques)) if i != root}
    joined, parents = [root], [-1]
    while waiting:
        nearest = max(waiting, key=lambda i: (waiting[i][0], -waiting[i][1], -i))
        parents.append(waiting.pop(nearest)[1])
        number = len(joined)
        joined.append(nearest)
        for i, (shared, _) in waiting.items():
            closer = len(sets[nearest] & sets[i])
            if closer > shared:
                waiting[i] = (closer, number)
    return JunctionTree(shape, tuple(cliques[i] for i in joined), tuple(parents))
