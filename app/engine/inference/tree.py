"""Distributions over named axes whose dependence is a forest, and their estimation.

On a forest, a distribution is given by the marginals of its axes and edges, and any
consistent set of these belongs to one (Wainwright and Jordan 2008, section 4.1). Noisy
marginals are fitted by least squares over that set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.measurements import NoisyMarginal
from app.engine.inference.projection import onto_simplex
from app.engine.inference.rounding import apportion, shuffled_cells

Floats = NDArray[np.float64]
Edge = tuple[str, str]

_CHECK_EVERY = 20
_MOST_DOUBLINGS = 60
_EASING = 0.9


@dataclass(frozen=True)
class Forest:
    """Axes with their number of cells, and edges that form no cycle, as (parent, child).

    Edges are stored parents first. Raises `ValueError` for a cycle or an unknown axis.
    """

    shape: Mapping[str, int]
    edges: tuple[Edge, ...]

    @classmethod
    def spanning(cls, shape: Mapping[str, int], pairs: Sequence[Edge]) -> Forest:
        """The forest of undirected pairs, each tree hung from its first axis."""
        neighbours: dict[str, list[str]] = {axis: [] for axis in shape}
        for first, second in pairs:
            if first not in neighbours or second not in neighbours:
                raise ValueError("an edge joins two axes of the shape")
            neighbours[first].append(second)
            neighbours[second].append(first)
        seen: set[str] = set()
        edges: list[Edge] = []
        for root in shape:
            if root in seen:
                continue
            seen.add(root)
            queue = [root]
            for parent in queue:
                for child in neighbours[parent]:
                    if child not in seen:
                        seen.add(child)
                        queue.append(child)
                        edges.append((parent, child))
        if len(edges) != len(pairs):
            raise ValueError("the edges of a forest form no cycle")
        return cls(dict(shape), tuple(edges))

    @cached_property
    def roots(self) -> tuple[str, ...]:
        children = {child for _, child in self.edges}
        return tuple(axis for axis in self.shape if axis not in children)

    @cached_property
    def slices(self) -> dict[tuple[str, ...], slice]:
        """Where each axis and each edge lies in a flat vector of marginals."""
        places: dict[tuple[str, ...], slice] = {}
        start = 0
        for key in self._keys():
            size = math.prod(self.shape[axis] for axis in key)
            places[key] = slice(start, start + size)
            start += size
        return places

    def _keys(self) -> Iterator[tuple[str, ...]]:
        yield from ((axis,) for axis in self.shape)
        yield from self.edges

    @cached_property
    def length(self) -> int:
        return sum(math.prod(self.shape[axis] for axis in key) for key in self._keys())

    def node(self, flat: Floats, axis: str) -> Floats:
        return flat[self.slices[(axis,)]]

    def edge(self, flat: Floats, edge: Edge) -> Floats:
        """View of shape (parent cells, child cells)."""
        return flat[self.slices[edge]].reshape(self.shape[edge[0]], self.shape[edge[1]])

    def marginals(self, potentials: Floats) -> tuple[Floats, float]:
        """Flat marginals and log partition of exp(potentials), by belief propagation."""
        belief = {axis: self.node(potentials, axis).copy() for axis in self.shape}
        given: dict[Edge, Floats] = {}
        for parent, child in reversed(self.edges):
            joint = self.edge(potentials, (parent, child)) + belief[child]
            top = joint.max(axis=1, keepdims=True)
            joint = np.exp(joint - top)
            mass = joint.sum(axis=1, keepdims=True)
            given[parent, child] = joint / mass
            belief[parent] += (np.log(mass) + top)[:, 0]
        flat = np.empty(self.length)
        log_partition = 0.0
        for root in self.roots:
            top_belief = belief[root].max()
            weight = np.exp(belief[root] - top_belief)
            log_partition += float(np.log(weight.sum()) + top_belief)
            self.node(flat, root)[:] = weight / weight.sum()
        self._descend(flat, given)
        return flat, log_partition

    def _descend(self, flat: Floats, given: Mapping[Edge, Floats]) -> None:
        for edge in self.edges:
            joint = self.node(flat, edge[0])[:, None] * given[edge]
            self.edge(flat, edge)[:] = joint
            self.node(flat, edge[1])[:] = joint.sum(axis=0)

    def potentials(self, marginals: Floats) -> Floats:
        """Potentials of the distribution with these consistent marginals."""
        logs = np.log(np.maximum(marginals, 1e-300))
        flat = logs.copy()
        for parent, child in self.edges:
            self.edge(flat, (parent, child))[:] -= self.node(logs, parent)[:, None] + self.node(
                logs, child
            )
        return flat

    def least(self, costs: Floats) -> float:
        """The smallest total cost of any assignment of cells, by min-sum."""
        belief = {axis: self.node(costs, axis).copy() for axis in self.shape}
        for parent, child in reversed(self.edges):
            belief[parent] += (self.edge(costs, (parent, child)) + belief[child]).min(axis=1)
        return float(sum(belief[root].min() for root in self.roots))


@dataclass(frozen=True)
class TreeModel:
    """A distribution over the axes of a forest: its marginals as shares, consistent.

    `gap` bounds how far the fit is from the best, in the units of half a chi-square.
    """

    forest: Forest
    shares: Floats
    gap: float = 0.0

    def marginal(self, axes: tuple[str, ...]) -> Floats:
        """Shares over one axis, or over an edge in either order."""
        if len(axes) == 1:
            return self.forest.node(self.shares, axes[0])
        if axes in self.forest.slices:
            return self.forest.edge(self.shares, (axes[0], axes[1]))
        return self.forest.edge(self.shares, (axes[1], axes[0])).T

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
        """Cells of `rows` rows, int64 for each axis; counts follow the shares closely.

        Roots are dealt in an order of their own, so separate trees are independent.
        """
        cells: dict[str, NDArray[np.int64]] = {}
        for root in self.forest.roots:
            counts = apportion(self.marginal((root,)), rows, rng) if rows else np.zeros(1, int)
            cells[root] = shuffled_cells(counts, rng)
        for parent, child in self.forest.edges:
            cells[child] = _drawn_given(cells[parent], self.marginal((parent, child)), rng)
        return {axis: cells[axis] for axis in self.forest.shape}


def _drawn_given(
    parents: NDArray[np.int64], joint: Floats, rng: np.random.Generator
) -> NDArray[np.int64]:
    """A child's cell for each row, apportioned and shuffled among rows of the same parent."""
    drawn = np.empty(parents.size, dtype=np.int64)
    order = np.argsort(parents, kind="stable")
    start = 0
    for parent, count in enumerate(np.bincount(parents, minlength=joint.shape[0])):
        if not count:
            continue
        weights = joint[parent] if joint[parent].sum() > 0 else np.ones(joint.shape[1])
        drawn[order[start : start + count]] = shuffled_cells(
            apportion(weights, int(count), rng), rng
        )
        start += count
    return drawn


def _dot(first: Floats, second: Floats) -> float:
    """Without BLAS, whose threads cost more than they save and change the rounding."""
    return float(np.sum(first * second))


@dataclass(frozen=True)
class _Target:
    """Pooled noisy marginals in flat form: f(p) = 1/2 sum precision (total p - values)^2."""

    values: Floats
    precision: Floats
    total: float

    @classmethod
    def pooled(cls, forest: Forest, measured: Sequence[NoisyMarginal], total: float) -> _Target:
        precision = np.zeros(forest.length)
        weighted = np.zeros(forest.length)
        for marginal in measured:
            axes, values = marginal.axes, marginal.values
            variance = np.broadcast_to(marginal.variance, values.shape)
            if axes not in forest.slices:
                axes, values, variance = axes[::-1], values.T, variance.T
            place = forest.slices[axes]
            precision[place] += (1 / variance).ravel()
            weighted[place] += (values / variance).ravel()
        values = np.divide(weighted, precision, out=np.zeros(forest.length), where=precision > 0)
        return cls(values, precision, total)

    def loss(self, shares: Floats) -> float:
        return 0.5 * _dot(self.precision, (self.total * shares - self.values) ** 2)

    def gradient(self, shares: Floats) -> Floats:
        return self.total * self.precision * (self.total * shares - self.values)

    def curvature(self, step: Floats) -> float:
        return 0.5 * self.total**2 * _dot(self.precision, step**2)

    def gap(self, forest: Forest, shares: Floats) -> float:
        """Frank-Wolfe gap: no distribution on the forest has a loss lower by more."""
        slope = self.gradient(shares)
        return _dot(slope, shares) - forest.least(slope)


def fit_tree(
    forest: Forest,
    measured: Sequence[NoisyMarginal],
    total: float,
    *,
    tolerance: float = 0.1,
    most_steps: int = 4000,
) -> TreeModel:
    """The weighted least-squares fit of noisy marginals among distributions on a forest.

    Accelerated mirror descent on the marginals (Tseng 2008, algorithm 1; entropy as in
    McKenna, Sheldon and Miklau 2019), restarted when it overshoots. Ends when the duality
    gap is below `tolerance` for each measured cell, in half chi-squares, or after
    `most_steps`. Deterministic.
    """
    target = _Target.pooled(forest, measured, max(total, 1.0))
    allowed_gap = tolerance * max(1, int(np.count_nonzero(target.precision)))
    descent = _Descent(forest, target, _independent(forest, target))
    gap = math.inf
    for step in range(most_steps):
        if step % _CHECK_EVERY == 0:
            gap = target.gap(forest, descent.best)
            if gap <= allowed_gap:
                break
        descent.advance()
    return TreeModel(forest, descent.best, gap)


def _independent(forest: Forest, target: _Target) -> Floats:
    """Marginals of independent axes, none zero: where the descent starts."""
    flat = np.empty(forest.length)
    for axis, cells in forest.shape.items():
        counts = forest.node(target.values, axis)
        measured = forest.node(target.precision, axis).any()
        shares = onto_simplex(counts, target.total) / target.total if measured else 1 / cells
        forest.node(flat, axis)[:] = 0.99 * shares + 0.01 / cells
    for parent, child in forest.edges:
        forest.edge(flat, (parent, child))[:] = np.outer(
            forest.node(flat, parent), forest.node(flat, child)
        )
    return flat


class _Descent:
    """The running state: `best` (the averaged iterate) and the mirror point behind it."""

    def __init__(self, forest: Forest, target: _Target, start: Floats) -> None:
        self.forest = forest
        self.target = target
        self.best = start
        self.smoothness = target.total**2 * float(target.precision.max(initial=1e-12))
        self._restart()

    def _restart(self) -> None:
        self.inertia = math.inf
        self.theta = self.forest.potentials(self.best)
        self.mirror, self.log_partition = self.forest.marginals(self.theta)
        self.loss = self.target.loss(self.best)

    def advance(self) -> None:
        """One accelerated step; a smoothness that does not bound the quadratic is doubled."""
        self.smoothness *= _EASING
        for _ in range(_MOST_DOUBLINGS):
            weight = _step_weight(self.inertia / self.smoothness)
            point = (1 - weight) * self.best + weight * self.mirror
            theta = self.theta - self.target.gradient(point) / (self.smoothness * weight)
            mirror, log_partition = self.forest.marginals(theta)
            distance = _dot(theta - self.theta, mirror) - log_partition + self.log_partition
            if self.target.curvature(mirror - self.mirror) <= self.smoothness * distance + 1e-12:
                break
            self.smoothness *= 2
        moved = (1 - weight) * self.best + weight * mirror
        loss = self.target.loss(moved)
        if loss > self.loss:
            self._restart()
            return
        self.theta, self.mirror, self.log_partition = theta, mirror, log_partition
        self.best, self.loss = moved, loss
        self.inertia = self.smoothness * weight**2


def _step_weight(ratio: float) -> float:
    """The weight w of the next mirror point, with w^2 = (1 - w) ratio; 1 at the start."""
    if math.isinf(ratio):
        return 1.0
    return (math.sqrt(ratio**2 + 4 * ratio) - ratio) / 2
