"""Junction trees: cliques of axes on which a distribution of low-order factors is exact.

In a graph of the axes, the axes of each factor are connected. Eliminating the axes one by one
makes the graph chordal. Its maximal cliques form a tree with the running intersection property:
the cliques that hold an axis are connected (Lauritzen and Spiegelhalter 1988;
Koller and Friedman 2009, chapters 9 and 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from app.engine.inference.elimination import elimination_cliques
from app.engine.inference.measurements import AxisNames, check_axes, table_order


@dataclass(frozen=True)
class JunctionTree:
    """Cliques, parents before children; `parents[0]` is -1, the root. Made with `of`.

    Axes within a clique are in table order. Unconnected parts of the graph are linked by empty
    separators, so that there is one tree.
    """

    shape: Mapping[str, int]
    cliques: tuple[AxisNames, ...]
    parents: tuple[int, ...]

    @classmethod
    def of(cls, shape: Mapping[str, int], cliques: Iterable[AxisNames]) -> JunctionTree:
        """The tree over all axes of the shape; each of `cliques` lies in one of its cliques.

        Min-fill elimination, ties broken by the cells of the clique made and then by table
        order; then a maximum-weight spanning tree over the separators (Koller and Friedman 2009,
        section 10.4.2), rooted at the largest clique. Deterministic.

        Raises `ValueError` for an unknown axis or an axis without cells.
        """
        if not shape or any(cells < 1 for cells in shape.values()):
            raise ValueError("a shape needs an axis, and each axis a cell")
        order = table_order(shape)
        members, kept = elimination_cliques(shape, order, cliques)
        found = [
            tuple(axis for axis, inside in zip(order, row, strict=True) if inside)
            for row in members[kept]
        ]
        return _spanning_tree(dict(shape), found)

    @classmethod
    def stored(
        cls, shape: Mapping[str, int], cliques: tuple[AxisNames, ...], parents: tuple[int, ...]
    ) -> JunctionTree:
        """A tree from its stored parts; raises `ValueError` if they are not a junction tree."""
        tree = cls(dict(shape), cliques, parents)
        tree._check()
        return tree

    def _check(self) -> None:
        if not self.cliques or len(self.parents) != len(self.cliques):
            raise ValueError("each clique needs a parent")
        if self.parents[0] != -1 or any(
            not 0 <= parent < child for child, parent in enumerate(self.parents) if child
        ):
            raise ValueError("parents must come before their children")
        order = table_order(self.shape)
        seen: set[str] = set()
        for clique, separator in zip(self.cliques, self.separators, strict=True):
            check_axes(self.shape, clique, None)
            if clique != tuple(axis for axis in order if axis in clique):
                raise ValueError("the axes of a clique must be in table order")
            if seen.issuperset(clique):
                raise ValueError("each clique must have an axis that the cliques before it lack")
            # The running intersection property: all earlier axes come through the parent.
            if not seen.intersection(clique) <= set(separator):
                raise ValueError("the cliques that hold an axis must be connected")
            seen.update(clique)
        if seen != set(self.shape):
            raise ValueError("each axis must be in a clique")

    @cached_property
    def separators(self) -> tuple[AxisNames, ...]:
        """For each clique the axes that it shares with its parent; empty for the root."""
        return tuple(
            tuple(axis for axis in clique if parent >= 0 and axis in self.cliques[parent])
            for clique, parent in zip(self.cliques, self.parents, strict=True)
        )

    def rooted_at(self, root: int) -> tuple[JunctionTree, tuple[int, ...]]:
        """The same tree with another root, and for each of its cliques the number in this tree."""
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


def _spanning_tree(shape: dict[str, int], cliques: list[AxisNames]) -> JunctionTree:
    """Prim's maximum spanning tree, weighted by shared axes; cliques are numbered as they join."""
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
        # A clique keeps its earlier parent among equals, so the tree is deterministic.
        for i, (shared, _) in waiting.items():
            closer = len(sets[nearest] & sets[i])
            if closer > shared:
                waiting[i] = (closer, number)
    return JunctionTree(shape, tuple(cliques[i] for i in joined), tuple(parents))
