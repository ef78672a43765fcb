"""Projection of noisy counts onto the simplex: non-negative counts with a given total."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def onto_simplex(
    values: NDArray[np.float64], total: float, variance: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """The non-negative array of sum `total` nearest to `values` in squared distance.

    The result has the shape of `values`. It is zero everywhere if `total` is not positive. If
    `variance` is given, positive and of the same shape, squares are divided by it. The result is
    `max(values - shift * variance, 0)`, where one shift gives the total (Held, Wolfe and Crowder
    1974).
    """
    if total <= 0:
        return np.zeros(values.shape)
    steps = np.ones(values.shape) if variance is None else variance
    order = np.argsort(-(values / steps), axis=None, kind="stable")
    falling, room = values.ravel()[order], np.cumsum(steps.ravel()[order])
    excess = np.cumsum(falling) - total
    # The cells that stay positive come first in this order; the last of them fixes the shift.
    kept = np.flatnonzero(falling * room > excess * steps.ravel()[order])[-1]
    projected = np.maximum(values - excess[kept] / room[kept] * steps, 0.0)
    # Rounding leaves the sum slightly off; callers rely on the exact total.
    rescaled: NDArray[np.float64] = projected * (total / projected.sum())
    return rescaled
