"""Graphical models fitted to noisy marginals: regularised maximum entropy.

The estimate is the distribution p over the axes that minimises

    1/2 sum_i (N mu_i(p) - y_i)^2 / sigma_i^2  +  c KL(p || prior),

where mu_i(p) are the probabilities of the measured cells, y_i the noisy counts, sigma_i their
standard deviations, and N the number of rows. The prior has independent axes with the noisy
one-way marginals, unless a base measure is given in its place. The terms are half the chi-square
of the noise, and a penalty of `c` for each nat. The penalty is more than a numerical device: it
shrinks noise that looks like dependence, and the estimate is nearer to the truth than the one
with the least chi-square. The best p has log-linear form, p ~ prior exp(sum_i theta_i [cell i]),
and theta minimises the smooth, strongly convex dual (Dudik, Phillips and Schapire 2007, section
5)

    log Z(theta) - <theta, y> / N + (c / 2) sum_i (sigma_i / N)^2 theta_i^2.

Its gradient, N mu_i - y_i + c sigma_i^2 theta_i / N in counts, also measures how far p is from
the best: the duality gap is half the sum of squares of gradient_i / sigma_i, in half chi-squares.

If the cells of an axis have an order, squares of differences between adjoining theta are added
to the squares of theta (`smoothness_penalty`). In the primal problem this lowers the cost of
noise that jumps from cell to cell. The duality gap does not become larger.
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
    PooledMarginal,
    StructuralZeros,
    check_axes,
    into_table_order,
    pool,
    table_order,
)
from app.engine.inference.model import GraphicalModel
from app.engine.inference.prior import Factor, in_table_order, independent_axes
from app.engine.inference.propagation import Propagation
from app.engine.inference.smoothness_penalty import random_walks

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

    The cliques of its junction tree contain every measured set of axes, and those of `cliques`,
    `zeros` and `base`. `base` replaces the prior of independent axes: what is not measured stays
    as in the base. `shrinkage` sets the strength of the penalty: a potential of 1 moves the count
    of a typical measured cell by that many standard deviations. So c is shrinkage * N / sigma,
    where sigma is the root mean square of the standard deviations. The best values lie between
    0.5, for counts far above the noise, and 3. Near 0 the fit minimises the chi-square alone and
    is slow: below 0.01 it may end by `most_steps`. `ordered` gives for an axis how many of its
    cells, from the first on, have an order. In marginals of several axes, the penalty on the
    differences of adjoining potentials is `smoothness` times that on the potentials.

    The fit ends when the root mean square of the gradient, in standard deviations of each noisy
    count, is at most `tolerance`. The objective then exceeds its minimum by at most
    `tolerance**2 / 2` for each cell. `start` is a model from which the potentials of the same
    measured axes are taken. A total below one row counts as one row.

    Raises `ValueError` for axes that the shape lacks and `InfeasibleZerosError` for structural
    zeros that leave no cell.
    """
    if not 0 < shrinkage < np.inf or not tolerance > 0:
        raise ValueError("shrinkage and tolerance must be positive, shrinkage also finite")
    if not 0 <= smoothness < np.inf:
        raise ValueError("smoothness must be finite and not negative")
    targets = pool(shape, measured)
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

    If a marginal's noisy counts do not add up to N, the difference is distributed over its cells
    in proportion to their variances. That changes theta by a constant and changes no probability,
    but it removes a nearly flat direction from the search.
    """

    def __init__(
        self,
        propagation: Propagation,
        targets: Sequence[PooledMarginal],
        total: float,
        shrinkage: float,
        ordered: Mapping[str, int],
        smoothness: float,
    ) -> None:
        self._propagation = propagation
        self._observed = np.empty(propagation.length)
        variances = np.empty(propagation.length)
        for target, place in zip(targets, propagation.places.values(), strict=True):
            missing = total - target.values.sum()
            part = target.variance / target.variance.sum()
            self._observed[place] = (target.values + missing * part) / total
            variances[place] = target.variance / total**2
        self._precisions = 1 / variances
        self._pulls = shrinkage * variances / np.sqrt(variances.mean() if variances.size else 1.0)
        self._walks = tuple(
            walk
            for target, place in zip(targets, propagation.places.values(), strict=True)
            for walk in random_walks(
                target.axes,
                propagation.tree.shape,
                ordered,
                place.start,
                smoothness * float(self._pulls[place].mean()),
            )
        )

    def start(self, model: GraphicalModel | None) -> Floats:
        """Zero, or the model's potentials where it measured the same axes.

        At the minimum without a smoothness penalty, probability + pull * theta = observed. A
        probability is not negative, so theta is at most observed / pull; larger ones are cut.
        """
        theta = np.zeros(self._observed.size)
        if model is not None:
            for axes, place in self._propagation.places.items():
                known = model.potentials.get(axes)
                if known is not None and known.size == place.stop - place.start:
                    theta[place] = known
        most: Floats = np.minimum(theta, self._observed / self._pulls)
        return most

    def at(self, theta: Floats) -> Point:
        log_partition, probabilities = self._propagation.run(theta)
        pull = self._pulls * theta
        # The second derivative of log Z is the covariance of the cells; this is its diagonal.
        diagonal = probabilities * (1 - probabilities) + self._pulls
        for walk in self._walks:
            walk.add(theta, pull, diagonal)
        gradient = probabilities - self._observed + pull
        value = log_partition - dot(theta, self._observed - 0.5 * pull)
        squares = dot(gradient * gradient, self._precisions)
        residual = float(np.sqrt(squares / max(1, theta.size)))
        return Point(theta, value, gradient, diagonal, residual)


def _model(propagation: Propagation, descent: Descent) -> GraphicalModel:
    theta = descent.point.place
    # The last evaluation may have been a trial step that was refused, so the buffers are refilled.
    propagation.run(theta)
    return GraphicalModel(
        propagation.tree,
        propagation.probabilities(),
        {axes: theta[place].copy() for axes, place in propagation.places.items()},
        descent.point.residual,
        descent.evaluations,
    )
