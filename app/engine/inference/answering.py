"""Marginals of a calibrated junction tree over any axes, within and across cliques.

Where no clique holds all the axes of a marginal, their probabilities are passed as messages over
the separators between the cliques. A message holds the probabilities of (wanted axes, separator).
The next clique divides it by the probabilities of the separator and multiplies it with its own
(Koller and Friedman 2009, section 10.3.3). All marginals of one `MarginalQueries` use the same
messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.junction_tree import JunctionTree, cells_of
from app.engine.inference.measurements import AxisNames, check_axes, table_order

Floats = NDArray[np.float64]

# Cells of the tables that are kept for later marginals: 8 MB, little beside the model itself.
_MOST_KEPT = 2**20

# If an intermediate table has more cells than this, another clique is tried as the place where
# the messages meet. For smaller tables, up to 2 MB, that search costs more than it saves.
_LARGE = 2**18

_NO_CLIQUE = -1


class MarginalQueries:
    """Marginals of one model. Intermediate tables are kept for the marginals that come later."""

    def __init__(self, tree: JunctionTree, probabilities: tuple[Floats, ...]) -> None:
        self._tree = tree
        self._probabilities = probabilities
        self._rank = {axis: i for i, axis in enumerate(table_order(tree.shape))}
        self._sets = [frozenset(clique) for clique in tree.cliques]
        self._neighbours = tree.neighbours
        self._cliques_by_axis = _cliques_by_axis(self._sets)
        self._beyond: dict[tuple[int, int], frozenset[str]] = {}
        self._towards: dict[int, dict[str, int]] = {}
        self._kept: dict[tuple[int, int, AxisNames], Floats] = {}
        self._kept_cells = 0
        self._sizes: dict[tuple[int, int, AxisNames], int] = {}

    def marginal(self, axes: AxisNames) -> Floats:
        """The probabilities, one dimension for each of `axes`, in their order.

        Raises `ValueError` for axes that are unknown or named twice.
        """
        check_axes(self._tree.shape, axes, None)
        if len(set(axes)) != len(axes):
            raise ValueError("a marginal cannot have the same axis twice")
        wanted = self._ordered(axes)
        home = self._tree.home(wanted)
        if home is None:
            table = self._collect(self._best_clique(wanted), _NO_CLIQUE, wanted, ())
        else:
            table = self._project(home, wanted)
        return np.ascontiguousarray(table.transpose([wanted.index(axis) for axis in axes]))

    def _ordered(self, axes: Iterable[str]) -> AxisNames:
        return tuple(sorted(set(axes), key=self._rank.__getitem__))

    def _best_clique(self, wanted: AxisNames) -> int:
        """The clique where the messages are combined.

        It is the clique that holds most of the wanted axes, weighted by their cells. If that
        needs a large intermediate table, it is the clique whose largest table is smallest.
        """
        shape = self._tree.shape
        # A clique with none of the axes counts as one cell. Among equals the first clique wins,
        # so that the answer is the same in every run.
        near = {0}.union(*(self._cliques_by_axis[axis] for axis in wanted))
        nearest = max(near, key=lambda i: (cells_of(shape, self._sets[i].intersection(wanted)), -i))
        if self._largest(nearest, _NO_CLIQUE, wanted, ()) <= _LARGE:
            return nearest
        every = range(len(self._sets))
        return min(every, key=lambda i: (self._largest(i, _NO_CLIQUE, wanted, ()), i))

    def _side(self, origin: int, target: int) -> frozenset[str]:
        """All axes on the origin's side of the edge to the target."""
        side = self._beyond.get((origin, target))
        if side is None:
            side = self._sets[origin].union(
                *(self._side(n, origin) for n in self._neighbours[origin] if n != target)
            )
            self._beyond[origin, target] = side
        return side

    def _project(self, clique: int, axes: AxisNames) -> Floats:
        known = self._kept.get((clique, clique, axes))
        if known is None:
            own = self._tree.cliques[clique]
            known = self._probabilities[clique].sum(
                axis=tuple(i for i, axis in enumerate(own) if axis not in axes)
            )
            self._keep((clique, clique, axes), known)
        return known

    def _keep(self, key: tuple[int, int, AxisNames], table: Floats) -> None:
        """Keeps a message or a marginal of a clique; forgets all when they become too large."""
        if self._kept_cells + table.size > _MOST_KEPT:
            self._kept.clear()
            self._kept_cells = 0
        self._kept[key] = table
        self._kept_cells += table.size

    def _message(self, origin: int, target: int, wanted: AxisNames) -> tuple[Floats, AxisNames]:
        """The message over an edge, and its axes: `wanted` beyond the edge and the separator."""
        separator = self._ordered(self._sets[origin] & self._sets[target])
        axes = self._ordered((*wanted, *separator))
        known = self._kept.get((origin, target, wanted))
        if known is None:
            known = self._collect(origin, target, wanted, separator)
            self._keep((origin, target, wanted), known)
        return known, axes

    def _collect(self, clique: int, target: int, wanted: AxisNames, separator: AxisNames) -> Floats:
        """Probabilities over `wanted` and `separator`, from all sides but the target."""
        axes, joins = self._join_order(clique, target, wanted, separator)
        table = self._project(clique, axes)
        for arrival, out in joins:
            carried, carried_axes = self._message(arrival.origin, clique, arrival.wanted)
            probabilities = self._project(clique, arrival.between)
            conditional = given(carried, carried_axes, probabilities, arrival.between)
            table = product(table, axes, conditional, carried_axes, out)
            axes = out
        return table

    def _largest(self, clique: int, target: int, wanted: AxisNames, separator: AxisNames) -> int:
        """Cells of the largest table that `_collect` would make, here and beyond the edges."""
        known = self._sizes.get((clique, target, wanted))
        if known is None:
            axes, joins = self._join_order(clique, target, wanted, separator)
            known = cells_of(self._tree.shape, axes)
            for arrival, out in joins:
                beyond = self._largest(arrival.origin, clique, arrival.wanted, arrival.between)
                known = max(known, beyond, cells_of(self._tree.shape, out))
            self._sizes[clique, target, wanted] = known
        return known

    def _join_order(
        self, clique: int, target: int, wanted: AxisNames, separator: AxisNames
    ) -> tuple[AxisNames, list[tuple[_Arrival, AxisNames]]]:
        """The first axes at a clique, then each message with the axes that are left after it."""
        kept = frozenset((*wanted, *separator))
        arrivals = self._arrivals(clique, target, kept - self._sets[clique])
        held = self._sets[clique] & kept
        axes = first = self._ordered(held.union(*(arrival.between for arrival in arrivals)))
        joins = []
        # Greedy: the message that leaves the smallest table comes first.
        while arrivals:
            outs = [self._left(axes, kept, arrivals, i) for i in range(len(arrivals))]
            smallest = min(range(len(outs)), key=lambda i: cells_of(self._tree.shape, outs[i]))
            axes = outs[smallest]
            joins.append((arrivals.pop(smallest), axes))
        return first, joins

    def _arrivals(self, clique: int, target: int, missing: frozenset[str]) -> list[_Arrival]:
        """A message from each neighbour beyond which missing axes are, in the neighbours' order."""
        places = self._places(clique)
        parts: dict[int, list[str]] = {}
        for axis in missing:
            parts.setdefault(places[axis], []).append(axis)
        arrivals = []
        for place in sorted(parts):
            neighbour = self._neighbours[clique][place]
            if neighbour != target:
                between = self._ordered(self._sets[clique] & self._sets[neighbour])
                arrivals.append(_Arrival(neighbour, between, self._ordered(parts[place])))
        return arrivals

    def _places(self, clique: int) -> dict[str, int]:
        """For each axis outside a clique, the position of the neighbour on its side of the tree."""
        places = self._towards.get(clique)
        if places is None:
            places = {
                axis: place
                for place, neighbour in enumerate(self._neighbours[clique])
                for axis in self._side(neighbour, clique) - self._sets[clique]
            }
            self._towards[clique] = places
        return places

    def _left(
        self, axes: AxisNames, kept: frozenset[str], arrivals: list[_Arrival], joined: int
    ) -> AxisNames:
        """The axes that are still needed after one of the messages is multiplied in."""
        later = (a.between for i, a in enumerate(arrivals) if i != joined)
        return self._ordered(kept.union(*later).intersection((*axes, *arrivals[joined].wanted)))


def _cliques_by_axis(sets: Sequence[frozenset[str]]) -> dict[str, list[int]]:
    """The cliques that hold each axis."""
    holding: dict[str, list[int]] = {}
    for number, clique in enumerate(sets):
        for axis in clique:
            holding.setdefault(axis, []).append(number)
    return holding


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A message from a neighbour: the wanted axes on its side, and the separator between."""

    origin: int
    between: AxisNames
    wanted: AxisNames


def given(table: Floats, axes: AxisNames, separator: Floats, between: AxisNames) -> Floats:
    """The table given the separator: divided by its probabilities, and 0 where these are 0."""
    shape = [size if axis in between else 1 for axis, size in zip(axes, table.shape, strict=True)]
    probabilities = separator.reshape(shape)
    return np.divide(table, probabilities, out=np.zeros(table.shape), where=probabilities > 0)


def product(
    first: Floats, first_axes: AxisNames, second: Floats, second_axes: AxisNames, out: AxisNames
) -> Floats:
    """The product of two tables, summed over the axes that `out` lacks (which both hold)."""
    common = [axis for axis in first_axes if axis in second_axes]
    batch = [axis for axis in common if axis in out]
    summed = [axis for axis in common if axis not in out]
    rows = [axis for axis in first_axes if axis not in common]
    columns = [axis for axis in second_axes if axis not in common]
    left = _grouped(first, first_axes, (batch, rows, summed))
    right = _grouped(second, second_axes, (batch, summed, columns))
    sizes = dict(zip(first_axes, first.shape, strict=True))
    sizes.update(zip(second_axes, second.shape, strict=True))
    axes = [*batch, *rows, *columns]
    product: Floats = np.matmul(left, right).reshape([sizes[axis] for axis in axes])
    return product.transpose([axes.index(axis) for axis in out])


def _grouped(table: Floats, axes: AxisNames, groups: tuple[list[str], ...]) -> Floats:
    sizes = dict(zip(axes, table.shape, strict=True))
    moved = table.transpose([axes.index(axis) for group in groups for axis in group])
    grouped: Floats = moved.reshape([math.prod(sizes[axis] for axis in group) for group in groups])
    return grouped
