"""Elimination of axes, and how many cells the junction tree of a growing graph would have.

Methods that choose what to measure need the size of the tree with one more clique thousands of
times. So only the elimination order is computed, in compiled loops over bit sets. No tree is
built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.inference.measurements import AxisNames, table_order

# Larger sizes are reported as this one; it fits in int64.
_MOST_CELLS = 2.0**62

# Masks for counting bits: every second bit, every second pair, every second nibble, every byte.
_WORD = 64
_ONE, _TWO, _FOUR, _TOP = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
_EVEN, _PAIRS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_NIBBLES, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


def predicted_cells(shape: Mapping[str, int], cliques: Iterable[AxisNames]) -> int:
    """`JunctionTree.of(shape, cliques).cells` without building the tree: some microseconds.

    Exact below 2^53; larger sizes are approximate, and at most 2^62.
    """
    return predicted_cells_with_each(shape, cliques, [()])[0]


def predicted_cells_with_each(
    shape: Mapping[str, int], cliques: Iterable[AxisNames], additions: Sequence[AxisNames]
) -> list[int]:
    """`predicted_cells` of the cliques together with one addition, for each of the additions."""
    return GrowingTree(shape, cliques).with_each(additions)


class GrowingTree:
    """Cliques to which others are added one by one, and the size of their junction tree."""

    def __init__(self, shape: Mapping[str, int], cliques: Iterable[AxisNames] = ()) -> None:
        order = table_order(shape)
        self._places = {axis: i for i, axis in enumerate(order)}
        self._cells = np.array([shape[axis] for axis in order], dtype=np.float64)
        self._logs = np.log(self._cells)
        self._adjacent = _adjacency(self._places, cliques)

    def with_each(self, additions: Sequence[AxisNames]) -> list[int]:
        """`predicted_cells` of the cliques so far together with one addition, for each of them."""
        longest = max((len(addition) for addition in additions), default=0)
        positions = np.full((len(additions), longest), -1, dtype=np.int64)
        for row, addition in zip(positions, additions, strict=True):
            row[: len(addition)] = _positions(self._places, addition)
        found = _predict_each(self._adjacent, self._logs, self._cells, positions)
        return [int(min(size, _MOST_CELLS)) for size in found.tolist()]

    def add(self, clique: AxisNames) -> None:
        self._adjacent |= _adjacency(self._places, [clique])


def elimination_cliques(
    shape: Mapping[str, int], order: AxisNames, cliques: Iterable[AxisNames]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Members of each elimination clique, shape (steps, axes), and which cliques are maximal.

    Min-fill: the axis that needs the fewest new edges goes first (Koller and Friedman 2009,
    section 9.4.3). Ties are broken by the cells of its clique, then by the order of the axes.
    """
    joined = _adjacency({axis: i for i, axis in enumerate(order)}, cliques)
    logs = np.log(np.array([shape[axis] for axis in order], dtype=np.float64))
    return _eliminate(joined, logs)


def _adjacency(places: Mapping[str, int], cliques: Iterable[AxisNames]) -> NDArray[np.bool_]:
    """The adjacency matrix of the axes; an axis that a clique holds is adjacent to itself."""
    count = len(places)
    pairs: list[int] = []
    for clique in cliques:
        positions = _positions(places, clique)
        pairs += [count * one + other for one in positions for other in positions]
    joined = np.zeros(count * count, dtype=np.bool_)
    joined[pairs] = True
    return joined.reshape(count, count)


def _positions(places: Mapping[str, int], clique: AxisNames) -> list[int]:
    try:
        return [places[axis] for axis in clique]
    except KeyError as error:
        raise ValueError(f"no axis of the shape is named {error.args[0]!r}") from None


@compiled
def _predict_each(
    joined: NDArray[np.bool_],
    logs: NDArray[np.float64],
    cells: NDArray[np.float64],
    positions: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The cells of the tree with each row of `positions` as one more clique; -1 means no axis."""
    found = np.zeros(positions.shape[0])
    for row in range(positions.shape[0]):
        graph = joined.copy()
        for one in positions[row]:
            for other in positions[row]:
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
    """How many bits are set (Warren 2013, section 5-1)."""
    word = word - ((word >> _ONE) & _EVEN)
    word = (word & _PAIRS) + ((word >> _TWO) & _PAIRS)
    word = (word + (word >> _FOUR)) & _NIBBLES
    return np.int64((word * _BYTES) >> _TOP)


@compiled
def _spread(members: NDArray[np.uint64], axes: NDArray[np.int64]) -> int:
    """Writes the members of a set into `axes`, in increasing order; returns their number."""
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
    """How many pairs of a set's axes are not adjacent (the fill), and how many axes it has."""
    degree, found = _spread(near, axes), 0
    for i in range(degree):
        for word in range(near.size):
            found += int(_count(joined[axes[i], word] & near[word]))
    return (degree * (degree - 1) - found) // 2, degree


@compiled
def _eliminate(
    adjacent: NDArray[np.bool_], logs: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Members of each elimination clique by step, and which cliques are maximal.

    `adjacent` is the symmetric adjacency matrix, `logs` the logarithms of the cells of each axis.
    Sets of axes are bits of words. An eliminated axis is removed from its neighbours' sets.
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
            # The tolerance keeps rounding of the logarithms from deciding ties.
            if best < 0 or fill < best_fill or (fill == best_fill and size < best_size - 1e-9):
                best, best_fill, best_size = axis, fill, size
        degree = _spread(joined[best], near)
        place, bit = best // _WORD, _ONE << np.uint64(best % _WORD)
        cliques[step] = joined[best]
        cliques[step, place] |= bit
        # The fill changes for its neighbours and, where edges are added, for their neighbours too.
        # All others keep their fill, which is what makes this fast.
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
        # Later cliques lack the axis eliminated here, so only an earlier one can contain this one.
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
