"""A penalty on the differences between the potentials of adjoining cells.

Where a column's cells lie in order, adjoining cells relate to another column in much the same
way. The prior for the potentials of a measured set is therefore a random walk of first order
along the column, with small independent steps (Rue and Held 2005, section 3.3). The objective
of the fit then includes the squares of those steps. Noise, which jumps from cell to cell, is
smoothed out of the model. What adjoining cells have in common stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.inference.measurements import AxisNames

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """The penalty along one axis of one measured marginal.

    The potentials of the marginal are flat and begin at `start`. The next cell on the axis is
    `stride` further. The axis has `cells` cells, of which the first `ordered` have an order.
    `outer` is the product of the cells of the axes before it. The penalty is `pull` times half
    the square of each difference.
    """

    start: int
    outer: int
    cells: int
    ordered: int
    stride: int
    pull: float

    def add(self, theta: Floats, pulls: Floats, diagonal: Floats) -> None:
        """Adds the gradient at theta to `pulls`, and the diagonal of the Hessian to `diagonal`."""
        _add(
            theta,
            pulls,
            diagonal,
            self.start,
            self.outer,
            self.cells,
            self.ordered,
            self.stride,
            self.pull,
        )


def random_walks(
    axes: AxisNames, shape: Mapping[str, int], ordered: Mapping[str, int], start: int, pull: float
) -> tuple[RandomWalk, ...]:
    """A penalty for each axis of the marginal whose cells have an order.

    One-way marginals get none: their counts were already smoothed before the fit (`smoothing`).
    """
    if len(axes) < 2 or not pull > 0:
        return ()
    sizes = [shape[axis] for axis in axes]
    return tuple(
        RandomWalk(
            start,
            int(np.prod(sizes[:i], dtype=np.int64)),
            sizes[i],
            min(ordered.get(axis, 0), sizes[i]),
            int(np.prod(sizes[i + 1 :], dtype=np.int64)),
            pull,
        )
        for i, axis in enumerate(axes)
        if ordered.get(axis, 0) > 1
    )


@compiled
def _add(
    theta: Floats,
    pulls: Floats,
    diagonal: Floats,
    start: int,
    outer: int,
    cells: int,
    ordered: int,
    stride: int,
    pull: float,
) -> None:
    for run in range(outer):
        first = start + run * cells * stride
        for place in range(first, first + (ordered - 1) * stride):
            step = pull * (theta[place + stride] - theta[place])
            pulls[place] -= step
            pulls[place + stride] += step
            diagonal[place] += pull
            diagonal[place + stride] += pull
