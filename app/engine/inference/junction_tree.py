"""Junction trees: cliques of axes on which a distribution of low-order factors is exact.

The axes of each factor are joined in a graph, the graph is made chordal by eliminating axes
one by one, and the maximal cliques are hung in a tree in which the cliques that hold an axis
are connected (Lauritzen and Spiegelhalter 1988; Koller and Friedman 2009, chapters 9 and 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from app.engine.inference.elimination import eliminated
from app.engine.inference.measurements import AxisNames, check_axes, table_order


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
        members, kept = eliminated(shape, order, cliques)
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
