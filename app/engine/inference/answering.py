"""Marginals of a calibrated junction tree over any axes, within and across cliques.

Axes that no clique holds together are carried over the separators between their cliques: the
shares over (carried axes, separator) are made at one end, divided by the separator's shares, and
multiplied into the next clique (Koller and Friedman 2009, section 10.3.3). All marginals
asked of one `Answering` share what was carried.
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

# Cells of tables kept for later marginals: 8 MB.
_MOST_KEPT = 2**20

# Cells of a table on the way for which it is worth while to look for another way: 2 MB.
_LARGE = 2**18

_NOWHERE = -1


class Answering:
    """Marginals of one model; keeps tables made on the way for those to come."""

    def __init__(self, tree: JunctionTree, shares: tuple[Floats, ...]) -> None:
        self._tree = tree
        self._shares = shares
        self._rank = {axis: i for i, axis in enumerate(table_order(tree.shape))}
        self._sets = [frozenset(clique) for clique in tree.cliques]
        self._neighbours = tree.neighbours
        self._holding = _holding(self._sets)
        self._beyond: dict[tuple[int, int], frozenset[str]] = {}
        self._towards: dict[int, dict[str, int]] = {}
        self._kept: dict[tuple[int, int, AxisNames], Floats] = {}
        self._kept_cells = 0
        self._sizes: dict[tuple[int, int, AxisNames], int] = {}

    def marginal(self, axes: AxisNames) -> Floats:
        """Shares over the axes, in the order asked."""
        check_axes(self._tree.shape, axes, None)
        if len(set(axes)) != len(axes):
            raise ValueError("the axes of a marginal are distinct")
        wanted = self._ordered(axes)
        home = self._tree.home(wanted)
        if home is None:
            table = self._meet(self._meeting_place(wanted), _NOWHERE, wanted, ())
        else:
            table = self._project(home, wanted)
        return np.ascontiguousarray(table.transpose([wanted.index(axis) for axis in axes]))

    def _ordered(self, axes: Iterable[str]) -> AxisNames:
        return tuple(sorted(set(axes), key=self._rank.__getitem__))

    def _meeting_place(self, wanted: AxisNames) -> int:
        """The clique that holds most of the axes, weighed by their cells, unless that makes a
        large table on the way: then the clique whose largest one is smallest."""
        shape = self._tree.shape
        # One that holds none counts as a cell, as one whose axes have one each: the first wins.
        near = {0}.union(*(self._holding[axis] for axis in wanted))
        nearest = max(near, key=lambda i: (cells_of(shape, self._sets[i].intersection(wanted)), -i))
        if self._largest(nearest, _NOWHERE, wanted, ()) <= _LARGE:
            return nearest
        every = range(len(self._sets))
        return min(every, key=lambda i: (self._largest(i, _NOWHERE, wanted, ()), i))

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
            known = self._shares[clique].sum(
                axis=tuple(i for i, axis in enumerate(own) if axis not in axes)
            )
            self._keep((clique, clique, axes), known)
        return known

    def _keep(self, key: tuple[int, int, AxisNames], table: Floats) -> None:
        """Tables carried over edges and summed within cliques, until there are too many."""
        if self._kept_cells + table.size > _MOST_KEPT:
            self._kept.clear()
            self._kept_cells = 0
        self._kept[key] = table
        self._kept_cells += table.size

    def _carry(self, origin: int, target: int, wanted: AxisNames) -> tuple[Floats, AxisNames]:
        """Shares over `wanted`, axes beyond the edge, and the separator."""
        separator = self._ordered(self._sets[origin] & self._sets[target])
        axes = self._ordered((*wanted, *separator))
        known = self._kept.get((origin, target, wanted))
        if known is None:
            known = self._meet(origin, target, wanted, separator)
            self._keep((origin, target, wanted), known)
        return known, axes

    def _meet(self, clique: int, target: int, wanted: AxisNames, separator: AxisNames) -> Floats:
        """Shares over `wanted` and `separator`, gathered at a clique from all sides but one."""
        axes, joins = self._joins(clique, target, wanted, separator)
        table = self._project(clique, axes)
        for arrival, out in joins:
            carried, carried_axes = self._carry(arrival.origin, clique, arrival.wanted)
            shares = self._project(clique, arrival.between)
            conditional = given(carried, carried_axes, shares, arrival.between)
            table = product(table, axes, conditional, carried_axes, out)
            axes = out
        return table

    def _largest(self, clique: int, target: int, wanted: AxisNames, separator: AxisNames) -> int:
        """Cells of the largest table that `_meet` makes on the way, beyond each edge once."""
        known = self._sizes.get((clique, target, wanted))
        if known is None:
            axes, joins = self._joins(clique, target, wanted, separator)
            known = cells_of(self._tree.shape, axes)
            for arrival, out in joins:
                beyond = self._largest(arrival.origin, clique, arrival.wanted, arrival.between)
                known = max(known, beyond, cells_of(self._tree.shape, out))
            self._sizes[clique, target, wanted] = known
        return known

    def _joins(
        self, clique: int, target: int, wanted: AxisNames, separator: AxisNames
    ) -> tuple[AxisNames, list[tuple[_Arrival, AxisNames]]]:
        """The axes to begin with at a clique; what arrives, in order, and the axes after it."""
        kept = frozenset((*wanted, *separator))
        arrivals = self._arrivals(clique, target, kept - self._sets[clique])
        held = self._sets[clique] & kept
        axes = first = self._ordered(held.union(*(arrival.between for arrival in arrivals)))
        joins = []
        while arrivals:
            outs = [self._left(axes, kept, arrivals, i) for i in range(len(arrivals))]
            smallest = min(range(len(outs)), key=lambda i: cells_of(self._tree.shape, outs[i]))
            axes = outs[smallest]
            joins.append((arrivals.pop(smallest), axes))
        return first, joins

    def _arrivals(self, clique: int, target: int, missing: frozenset[str]) -> list[_Arrival]:
        """From the neighbours beyond which the missing axes are, in the neighbours' order."""
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
        """Of each axis that a clique lacks, the place of the one neighbour beyond which it is."""
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
        """The axes still needed once one of the arrivals has been joined."""
        later = (a.between for i, a in enumerate(arrivals) if i != joined)
        return self._ordered(kept.union(*later).intersection((*axes, *arrivals[joined].wanted)))


def _holding(sets: Sequence[frozenset[str]]) -> dict[str, list[int]]:
    """The cliques that hold each axis."""
    holding: dict[str, list[int]] = {}
    for number, clique in enumerate(sets):
        for axis in clique:
            holding.setdefault(axis, []).append(number)
    return holding


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Axes wanted from beyond a neighbour, and the separator they are carried over."""

    origin: int
    between: AxisNames
    wanted: AxisNames


def given(table: Floats, axes: AxisNames, separator: Floats, between: AxisNames) -> Floats:
    """The table divided by the separator's shares; 0 where these are 0."""
    shape = [size if axis in between else 1 for axis, size in zip(axes, table.shape, strict=True)]
    shares = separator.reshape(shape)
    return np.divide(table, shares, out=np.zeros(table.shape), where=shares > 0)


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
