"""Minimisation of a smooth convex function of many variables by limited-memory BFGS.

Nocedal and Wright (2006), algorithms 7.4 and 7.5, with the inverse of a diagonal that the
function supplies at each point as the first guess of the inverse Hessian. Dot products are own
loops, because those of a library change the last bits with the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled

Floats = NDArray[np.float64]

# Pairs of steps and changes of the gradient that are kept; Nocedal and Wright advise 3 to 20.
_MEMORY = 10
# The constant of the Armijo condition, as in Nocedal and Wright, section 3.1.
_DECREASE = 1e-4
# Relative differences of values below this are rounding error: a few hundred units in the last
# place, since the values are sums over all cells.
_NOISE = 1e-13
# Each trial at least halves the step; after 25 the step is within rounding of 0.
_MOST_TRIALS = 25


@dataclass(frozen=True, slots=True)
class Point:
    """The function and its derivatives at `place`; arrays have shape (variables,).

    `diagonal` approximates that of the Hessian and is positive. `residual` is the number that
    the descent brings under its tolerance.
    """

    place: Floats
    value: float
    gradient: Floats
    diagonal: Floats
    residual: float


@dataclass(frozen=True, slots=True)
class Descent:
    """Where a descent ended, after how many steps, and whether it met its tolerance."""

    point: Point
    steps: int
    evaluations: int
    converged: bool


def minimise(
    function: Callable[[Floats], Point], start: Floats, *, tolerance: float, most_steps: int
) -> Descent:
    """Descend from `start` until the residual is at most `tolerance`.

    Ends earlier after `most_steps` steps, or where rounding error hides every lower point.
    """
    search = _Search(function, start)
    steps = 0
    while steps < most_steps and search.point.residual > tolerance and search.step():
        steps += 1
    return Descent(search.point, steps, search.evaluations, search.point.residual <= tolerance)


class _Search:
    def __init__(self, function: Callable[[Floats], Point], start: Floats) -> None:
        self._function = function
        self._moves = np.empty((_MEMORY, start.size))
        self._changes = np.empty((_MEMORY, start.size))
        # The dot product of each kept move with its change of the gradient.
        self._curvatures = np.empty(_MEMORY)
        self._kept = 0
        self._newest = -1
        self.evaluations = 1
        self.point = function(start)

    def step(self) -> bool:
        """Move to a lower point. False if none is found, or rounding error hides the difference."""
        while True:
            reached = self._lower()
            if reached is not None:
                self._remember(reached)
                self.point = reached
                return True
            # Old steps can give a bad direction: forget them, and try the diagonal alone.
            if not self._kept:
                return False
            self._kept = 0

    def _lower(self) -> Point | None:
        """A lower point along the next direction, by backtracking; None if none is found."""
        point = self.point
        direction = _direction(
            point.gradient,
            point.diagonal,
            self._moves,
            self._changes,
            self._curvatures,
            self._kept,
            self._newest,
        )
        slope = dot(point.gradient, direction)
        if not slope < 0:
            return None
        length = 1.0
        for _ in range(_MOST_TRIALS):
            trial = self._function(point.place + length * direction)
            self.evaluations += 1
            rise = trial.value - point.value
            if rise <= _DECREASE * length * slope or self._level(trial, rise, direction, slope):
                return trial
            # The minimum of the parabola through both values and the slope (section 3.5).
            lowest = -slope * length**2 / (2 * (rise - length * slope))
            length = min(max(lowest, 0.1 * length), 0.5 * length) if lowest > 0 else 0.1 * length
        return None

    def _level(self, trial: Point, rise: float, direction: Floats, slope: float) -> bool:
        """Where values differ by rounding error, slopes decide (Hager and Zhang 2005, (27))."""
        if not abs(rise) <= _NOISE * (1 + abs(self.point.value)):
            return False
        return dot(trial.gradient, direction) <= (2 * _DECREASE - 1) * slope

    def _remember(self, reached: Point) -> None:
        move = reached.place - self.point.place
        change = reached.gradient - self.point.gradient
        curvature = dot(move, change)
        # The inverse Hessian stays positive definite only with positive curvature (6.7).
        if not curvature > 1e-14 * dot(change, change) ** 0.5 * dot(move, move) ** 0.5:
            return
        self._newest = (self._newest + 1) % _MEMORY
        self._kept = min(self._kept + 1, _MEMORY)
        self._moves[self._newest] = move
        self._changes[self._newest] = change
        self._curvatures[self._newest] = curvature


@compiled
def dot(first: Floats, second: Floats) -> float:
    """The dot product, by four running sums: a fixed order, and no sum waits for another."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = first.size - first.size % 4
    for i in range(0, whole, 4):
        a += first[i] * second[i]
        b += first[i + 1] * second[i + 1]
        c += first[i + 2] * second[i + 2]
        d += first[i + 3] * second[i + 3]
    for i in range(whole, first.size):
        a += first[i] * second[i]
    return (a + b) + (c + d)


@compiled
def _direction(
    gradient: Floats,
    diagonal: Floats,
    moves: Floats,
    changes: Floats,
    curvatures: Floats,
    kept: int,
    newest: int,
) -> Floats:
    """The two-loop recursion, algorithm 7.4; the memory is a ring buffer that ends at `newest`."""
    memory = moves.shape[0]
    direction = -gradient
    weights = np.empty(memory)
    for age in range(kept):
        i = (newest - age) % memory
        weights[i] = dot(moves[i], direction) / curvatures[i]
        for k in range(direction.size):
            direction[k] -= weights[i] * changes[i, k]
    # The diagonal is scaled to the curvature of the last step (Nocedal and Wright, (7.20)).
    scale = 1.0
    if kept:
        spread = 0.0
        for k in range(direction.size):
            spread += changes[newest, k] ** 2 / diagonal[k]
        scale = curvatures[newest] / spread
    for k in range(direction.size):
        direction[k] *= scale / diagonal[k]
    for age in range(kept - 1, -1, -1):
        i = (newest - age) % memory
        weight = weights[i] - dot(changes[i], direction) / curvatures[i]
        for k in range(direction.size):
            direction[k] += weight * moves[i, k]
    return direction
