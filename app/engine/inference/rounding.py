"""Whole counts: at random with given expectations and little variance, or with margins kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled


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


def round_keeping_margins(
    counts: NDArray[np.float64], total: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Counts, int64, that add up to `total`, each the floor or the ceiling of the given one.

    counts: non-negative, any shape with an axis for each column, and of sum `total` up to float
    error. The largest fractions are rounded up, equal ones in random order (method of largest
    remainders, Hamilton 1792). No value of a column gets more of them than the sum of its
    fractions, rounded up. Otherwise slightly larger counts in one part of the table would take
    all units from a flat part. If units are left over under these limits, the limits are lifted
    column by column, the last column first.
    """
    # Float error must not push a whole number below itself.
    whole = np.floor(counts + 1e-9).astype(np.int64)
    fractions = np.maximum(counts - whole, 0.0)
    left = total - int(whole.sum())
    order = _falling(fractions, rng)
    strides = np.array([int(np.prod(counts.shape[axis + 1 :])) for axis in range(counts.ndim)])
    rooms = [_rooms(fractions, axis) for axis in range(counts.ndim)]
    starts = np.concatenate([[0], np.cumsum([len(room) for room in rooms])])
    room = np.concatenate(rooms)
    flat = whole.reshape(-1)
    up = np.zeros(flat.size, dtype=np.bool_)
    # The first turn keeps the limits of all columns; each later turn lifts one more.
    for axis in range(counts.ndim, -1, -1):
        if left <= 0:
            break
        room[starts[axis] :] += left
        left = int(_round_up(order, np.array(counts.shape), strides, starts, room, left, up)[0])
    flat += up
    return whole


def _falling(fractions: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Cells with a fraction, the largest first, equal ones in random order."""
    flat = fractions.ravel()
    cells = np.flatnonzero(flat)
    rng.shuffle(cells)
    order: NDArray[np.int64] = cells[np.argsort(-flat[cells], kind="stable")].astype(np.int64)
    return order


def _rooms(fractions: NDArray[np.float64], axis: int) -> NDArray[np.int64]:
    sums = fractions.sum(axis=tuple(other for other in range(fractions.ndim) if other != axis))
    rooms: NDArray[np.int64] = np.ceil(sums - 1e-6).astype(np.int64)
    return rooms


@compiled
def _round_up(
    order: Any, shape: Any, strides: Any, starts: Any, room: Any, left: Any, up: Any
) -> Any:
    """Marks cells in order, if each of their values has room; the units left, shape (1,)."""
    for cell in order:
        if left == 0:
            break
        if up[cell]:
            continue
        fits = True
        for axis in range(len(shape)):
            fits &= room[starts[axis] + cell // strides[axis] % shape[axis]] > 0
        if not fits:
            continue
        up[cell] = True
        left -= 1
        for axis in range(len(shape)):
            room[starts[axis] + cell // strides[axis] % shape[axis]] -= 1
    return np.array([left])
