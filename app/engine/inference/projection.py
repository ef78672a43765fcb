"""Projection of noisy counts onto counts that could be real."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def onto_simplex(
    values: NDArray[np.float64], total: float, variance: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """The non-negative array of sum `total` nearest to `values` in squared distance.

    Any shape, kept; all zero if `total` is not positive. Squares are divided by `variance`,
    positive and of the same shape, if it is given. The answer is
    `max(values - shift * variance, 0)` for the one shift that meets the total (Held, Wolfe and
    Crowder 1974).
    """
    if total <= 0:
        return np.zeros(values.shape)
    steps = np.ones(values.shape) if variance is None else variance
    order = np.argsort(-(values / steps), axis=None, kind="stable")
    falling, room = values.ravel()[order], np.cumsum(steps.ravel()[order])
    excess = np.cumsum(falling) - total
    kept = np.flatnonzero(falling * room > excess * steps.ravel()[order])[-1]
    projected = np.maximum(values - excess[kept] / room[kept] * steps, 0.0)
    rescaled: NDArray[np.float64] = projected * (total / projected.sum())
    return rescaled
