"""Projection of noisy counts onto counts that could be real."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def onto_simplex(values: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The non-negative array of sum `total` nearest to `values` in Euclidean distance.

    Any shape, kept; all zero if `total` is not positive. The answer is
    `max(values - shift, 0)` for the one shift that meets the total (Held, Wolfe and
    Crowder 1974).
    """
    if total <= 0:
        return np.zeros(values.shape)
    falling = np.sort(values, axis=None)[::-1]
    excess = np.cumsum(falling) - total
    rank = np.arange(1, falling.size + 1)
    kept = np.flatnonzero(falling * rank > excess)[-1]
    projected = np.maximum(values - excess[kept] / (kept + 1), 0.0)
    rescaled: NDArray[np.float64] = projected * (total / projected.sum())
    return rescaled
