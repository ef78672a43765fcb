"""Random rounding: whole counts with given expectations and little variance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def apportion(
    weights: NDArray[np.float64], total: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Counts, int64 and of the weights' shape, that add up to `total`.

    Each count is the floor or the ceiling of `total * weight / sum`, with that expectation:
    one uniform start decides which fractions round up (systematic sampling, Madow 1949).
    The weights must be non-negative and not all zero.
    """
    flat = weights.ravel()
    expected = _snapped(flat / flat.sum() * total)
    whole = np.floor(expected).astype(np.int64)
    missing = total - int(whole.sum())
    if missing > 0:
        whole += _spread(expected - whole, missing, rng)
    elif missing < 0:  # floats can lift an exact whole number over its floor
        whole[np.argsort(whole)[missing:]] -= 1
    counts: NDArray[np.int64] = whole.reshape(weights.shape)
    return counts


def _snapped(expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Expectations within rounding error of a whole number are made whole.

    Otherwise a count with a whole expectation could still be rounded up or down.
    """
    whole = np.rint(expected)
    return np.where(np.abs(expected - whole) <= 1e-12 + 1e-14 * expected, whole, expected)


def _spread(
    fractions: NDArray[np.float64], units: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    reach = np.cumsum(fractions)
    # Rounding can leave units without any fraction; then all cells are equally likely.
    if reach[-1] <= 0:
        reach = np.arange(1.0, fractions.size + 1)
    ticks = np.floor(reach * (units / reach[-1]) + rng.random()).astype(np.int64)
    ticks[-1] = units
    steps: NDArray[np.int64] = np.diff(np.minimum(ticks, units), prepend=0)
    return steps


def shuffled_cells(counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Each flat cell number as often as its count says, in random order, shape (sum of counts,)."""
    cells = np.repeat(np.arange(counts.size, dtype=np.int64), counts.ravel())
    rng.shuffle(cells)
    return cells
