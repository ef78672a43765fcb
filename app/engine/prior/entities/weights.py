"""Weights of public atoms (rows or entities) that agree with noisy counts: maximum entropy.

Of all weights w >= 0 those are wanted that minimise

    KL(w || base) + 1/2 sum_i phi_i ((F'w)_i - y_i)^2 / sigma_i^2,

with KL(w || b) = sum (w ln(w / b) - w + b), F'w the expected counts, y_i the noisy ones, and
phi_i how much more a count strays from the public one than a Poisson number would (below). The
best have the form w = base exp(F theta), and theta minimises the dual (Dudik, Phillips and
Schapire 2007, section 5, without the constraint that weights add up)

    sum base exp(F theta) - <theta, y> + 1/2 sum_i (sigma_i^2 / phi_i) theta_i^2.

A cell whose public count is m moves to about m + (y - m) phi m / (phi m + sigma^2): the posterior
mean of a count whose prior variance is phi m. So phi says how far the public table is believed,
and it is estimated from the noisy counts themselves, by empirical Bayes: (y - m)^2 has the
expectation phi m + sigma^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.descent import Point, dot, minimise
from app.engine.public.contributions import Features

Floats = NDArray[np.float64]

_ROUNDS = 20
_LEAST_VARIANCE = 1e-3
_LARGEST_EXPONENT = 30.0
_TOLERANCE = 1e-3
_MOST_STEPS = 300


@dataclass(frozen=True)
class Target:
    """A noisy histogram, flat, the variance of its noise, and what the atoms add to it."""

    features: Features
    values: Floats
    variance: float


def dispersion(expected: Floats, values: Floats, variance: float) -> float:
    """phi: how much more counts stray from `expected` than Poisson numbers, from noisy values.

    The mean of ((y - m)^2 - sigma^2) / m, weighted by its precision m^2 / (phi m + sigma^2)^2 (so
    the equation of maximum likelihood, solved by iteration), less its standard error, so that
    noise alone is seldom taken for a difference; at least 0. Cells that expect nothing say
    nothing.
    """
    known = expected > 0
    m, excess = expected[known], (values - expected)[known] ** 2 - variance
    if not m.size:
        return 0.0
    phi = error = 0.0
    for _ in range(_ROUNDS):
        precision = (m / (phi * m + max(variance, _LEAST_VARIANCE))) ** 2
        phi = max(0.0, dot(precision, excess / m) / float(precision.sum()))
        error = np.sqrt(2 / float(precision.sum()))
    return float(max(0.0, phi - error))


def reweighted(base: Floats, targets: Sequence[Target]) -> Floats:
    """The best weights of atoms whose weights were `base` (positive); deterministic.

    Histograms that say nothing new (a dispersion of 0) leave the weights alone.
    """
    beliefs = [dispersion(t.features.counts(base), t.values, t.variance) for t in targets]
    informative = [(t, phi) for t, phi in zip(targets, beliefs, strict=True) if phi > 0]
    return maximum_entropy(base, [t for t, _ in informative], [phi for _, phi in informative])


def maximum_entropy(base: Floats, targets: Sequence[Target], phis: Sequence[float]) -> Floats:
    """The best weights, with the positive dispersion of each target given."""
    if not targets:
        return base
    dual = _Dual(base, targets, phis)
    start = np.zeros(dual.length)
    descent = minimise(dual.at, start, tolerance=_TOLERANCE, most_steps=_MOST_STEPS)
    return dual.weights(descent.point.place)


class _Dual:
    """The dual, with a variable for each cell that some atom is in."""

    def __init__(self, base: Floats, targets: Sequence[Target], phis: Sequence[float]) -> None:
        self._base = base
        self._features = [target.features for target in targets]
        ends = np.cumsum([0, *(prod(each.shape) for each in self._features)])
        self._parts = [slice(a, b) for a, b in pairwise(ends)]
        self._values = np.concatenate([target.values for target in targets])
        self._pulls = np.concatenate(
            [
                np.full(prod(t.features.shape), max(t.variance, _LEAST_VARIANCE) / phi)
                for t, phi in zip(targets, phis, strict=True)
            ]
        )
        reached = np.concatenate([each.counts(base) > 0 for each in self._features])
        self._values[~reached] = 0.0

    @property
    def length(self) -> int:
        return self._values.size

    def weights(self, theta: Floats) -> Floats:
        exponent = np.zeros(self._base.size)
        for each, part in zip(self._features, self._parts, strict=True):
            exponent += theta[part][each.cells] * each.amounts
        weights: Floats = self._base * np.exp(
            np.clip(exponent, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
        )
        return weights

    def at(self, theta: Floats) -> Point:
        weights = self.weights(theta)
        counts = np.concatenate([each.counts(weights) for each in self._features])
        gradient = counts - self._values + self._pulls * theta
        value = float(weights.sum()) - dot(theta, self._values) + dot(self._pulls, theta**2) / 2
        curvature = np.concatenate(
            [
                np.bincount(each.cells, weights * each.amounts**2, minlength=prod(each.shape))
                for each in self._features
            ]
        )
        diagonal = curvature + self._pulls
        residual = float(np.sqrt(dot(gradient / diagonal, gradient) / max(1, theta.size)))
        return Point(theta, value, gradient, diagonal, residual)
