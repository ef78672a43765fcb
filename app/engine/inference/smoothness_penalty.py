"""A penalty on the differences between the potentials of adjoining cells.

Where a column's cells lie in order, adjoining cells relate to another column in much the same
way. The prior for the potentials of a measured set is therefore a random walk of first order
along the column, with small independent steps (Rue and Held 2005, section 3.3). The objective
of the fit then includes the squares of those steps. Noise, which jumps from cell to cell, is
smoothed out of the model; what adjoining cells have in common stays.
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
class Walk:
    """Steps along one axis of one measured set, whose potentials lie flat from `start` on.

    A potential lies `stride` before the next one on the axis. The axis has `cells` cells, the
    first `ordered` of them in order; `outer` is how many runs of the axis there are at each
    offset within the stride. `pull` is paid for half the square of each step.
    """

    start: int
    outer: int
    cells: int
    ordered: int
    stride: int
    pull: float

    def add(self, theta: Floats, pulls: Floats, diagonal: Floats) -> None:
        """Adds the gradient at theta to `pulls` and its own derivative to `diagonal`."""
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


def walks(
    axes: AxisNames,
    shape: Mapping[str, int],
    ordered: Mapping[str, int],
    start: int,
    pull: float,
) -> tuple[Walk, ...]:
    """One for each axis of the set that has cells in order.

    A single column has none: whoever measured it has smoothed its counts already if need be.
    """
    if len(axes) < 2 or not pull > 0:
        return ()
    sizes = [shape[axis] for axis in axes]
    return tuple(
        Walk(
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
