"""Graphical models fitted to noisy marginals: regularised maximum entropy.

Of all distributions p over the axes, the one is wanted that minimises

    1/2 sum_i (N mu_i(p) - y_i)^2 / sigma_i^2  +  c KL(p || prior),

where mu_i(p) are the probabilities of the measured cells, y_i the noisy counts, sigma_i their
standard deviations, and N the number of rows. The prior has independent axes with the noisy
one-way marginals, unless a base measure is given in its place. The terms are half the chi-square
of the noise, and a penalty of `c` for each nat. The penalty is more than a numerical device: it
shrinks noise that looks like dependence, and the estimate is nearer to the truth than that of
the least chi-square. The best p has log-linear form,
p ~ prior exp(sum_i theta_i [cell i]), and theta minimises the smooth, strongly convex dual
(Dudik, Phillips and Schapire 2007, section 5)

    log Z(theta) - <theta, y> / N + (c / 2) sum_i (sigma_i / N)^2 theta_i^2.

Its gradient, N mu_i - y_i + c sigma_i^2 theta_i / N in counts, also measures how far p is from
the best: the duality gap is half the sum of squares of gradient_i / sigma_i, in half chi-squares.

Where axes have cells in order, squares of differences between adjoining theta are added to
those of theta (`smoothness_penalty`). In the primal, the chi-square then forgives noise that
jumps from cell to cell, and the gap is at most what it would be without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.descent import Descent, Point, dot, minimise
from app.engine.inference.junction_tree import JunctionTree
from app.engine.inference.measurements import (
    AxisNames,
    NoisyMarginal,
    Pooled,
    StructuralZeros,
    check_axes,
    into_table_order,
    pooled,
    table_order,
)
from app.engine.inference.model import GraphicalModel
from app.engine.inference.prior import Factor, in_table_order, independent_axes
from app.engine.inference.propagation import Propagation
from app.engine.inference.smoothness_penalty import walks

Floats = NDArray[np.float64]


def fit(
    shape: Mapping[str, int],
    measured: Sequence[NoisyMarginal],
    total: float,
    *,
    cliques: Sequence[AxisNames] = (),
    zeros: Sequence[StructuralZeros] = (),
    base: Sequence[Factor] | None = None,
    start: GraphicalModel | None = None,
    shrinkage: float = 1.5,
    ordered: Mapping[str, int] | None = None,
    smoothness: float = 1.0,
    tolerance: float = 0.05,
    most_steps: int = 2000,
) -> GraphicalModel:
    """The model of `total` rows that fits the noisy counts; deterministic.

    Its junction tree holds every measured set of axes, and those of `cliques`, `zeros` and `base`.
    `base` takes the place of the prior of independent axes: what is not measured stays as it says.
    `shrinkage` is how many standard deviations, of a typical measured cell, a potential of 1
    pulls its cell's count: c is shrinkage * N / sigma, sigma the root mean square. Best is from
    0.5, where counts are far above the noise, to 3. Towards 0 the fit becomes the least
    chi-square, and slow: below 0.01 `most_steps` may end it first. `ordered` gives how many cells
    of an axis, from the first, lie in order: in sets of several axes the potentials of neighbours
    are pulled together `smoothness` times as strongly as to 0.

    Otherwise it ends when the root mean square of the gradient, in standard deviations of each
    noisy count, is at most `tolerance`: half the chi-square plus the pull then exceeds its least
    by no more than `tolerance**2 / 2` for each cell. `start` is a model whose potentials are
    taken over where it measured the same axes. Totals below one row count as one row. Raises
    `ValueError` for axes that the shape lacks and `InfeasibleZerosError` for zeros that leave no
    cell.
    """
    if not 0 < shrinkage < np.inf or not tolerance > 0:
        raise ValueError("shrinkage and tolerance are positive")
    if not 0 <= smoothness < np.inf:
        raise ValueError("smoothness is not negative")
    targets = pooled(shape, measured)
    prior = independent_axes(shape, targets) if base is None else in_table_order(shape, base)
    fixed = [*prior, *_masks(shape, zeros)]
    factors = [target.axes for target in targets]
    tree = JunctionTree.of(shape, [*factors, *(axes for axes, _ in fixed), *cliques])
    propagation = Propagation(tree, factors, fixed)
    dual = _Dual(propagation, targets, max(total, 1.0), shrinkage, ordered or {}, smoothness)
    descent = minimise(dual.at, dual.start(start), tolerance=tolerance, most_steps=most_steps)
    return _model(propagation, descent)


def _masks(
    shape: Mapping[str, int], zeros: Sequence[StructuralZeros]
) -> list[tuple[AxisNames, Floats]]:
    rank = {axis: i for i, axis in enumerate(table_order(shape))}
    masks = []
    for zero in zeros:
        check_axes(shape, zero.axes, zero.allowed.shape)
        axes, allowed = into_table_order(rank, zero.axes, zero.allowed)
        masks.append((axes, np.where(allowed, 0.0, -np.inf)))
    return masks


class _Dual:
    """The dual function, with one variable for each measured cell.

    Where a marginal's noisy counts do not add up to N, the difference is spread over its cells
    in proportion to their variances. That changes theta by a constant, and no share; it takes
    a nearly flat direction out of the search.
    """

    def __init__(
        self,
        propagation: Propagation,
        targets: Sequence[Pooled],
        total: float,
        shrinkage: float,
        ordered: Mapping[str, int],
        smoothness: float,
    ) -> None:
        self._propagation = propagation
        self._shares = np.empty(propagation.length)
        variances = np.empty(propagation.length)
        for target, place in zip(targets, propagation.places.values(), strict=True):
            missing = total - target.values.sum()
            share = target.variance / target.variance.sum()
            self._shares[place] = (target.values + missing * share) / total
            variances[place] = target.variance / total**2
        self._precisions = 1 / variances
        self._pulls = shrinkage * variances / np.sqrt(variances.mean() if variances.size else 1.0)
        self._walks = tuple(
            walk
            for target, place in zip(targets, propagation.places.values(), strict=True)
            for walk in walks(
                target.axes,
                propagation.tree.shape,
                ordered,
                place.start,
                smoothness * float(self._pulls[place].mean()),
            )
        )

    def start(self, model: GraphicalModel | None) -> Floats:
        """Zero or the model's potentials, cut to what the best can be without neighbours: its
        shares are >= 0."""
        theta = np.zeros(self._shares.size)
        if model is not None:
            for axes, place in self._propagation.places.items():
                known = model.potentials.get(axes)
                if known is not None and known.size == place.stop - place.start:
                    theta[place] = known
        most: Floats = np.minimum(theta, self._shares / self._pulls)
        return most

    def at(self, theta: Floats) -> Point:
        log_partition, shares = self._propagation.run(theta)
        pull = self._pulls * theta
        diagonal = shares * (1 - shares) + self._pulls
        for walk in self._walks:
            walk.add(theta, pull, diagonal)
        gradient = shares - self._shares + pull
        value = log_partition - dot(theta, self._shares - 0.5 * pull)
        squares = dot(gradient * gradient, self._precisions)
        residual = float(np.sqrt(squares / max(1, theta.size)))
        return Point(theta, value, gradient, diagonal, residual)


def _model(propagation: Propagation, descent: Descent) -> GraphicalModel:
    theta = descent.point.place
    propagation.run(theta)
    return GraphicalModel(
        propagation.tree,
        propagation.shares(),
        {axes: theta[place].copy() for axes, place in propagation.places.items()},
        descent.point.residual,
        descent.evaluations,
    )
