"""The only place that draws noise: OpenDP's samplers over 64-bit integers.

Scales are chosen in floats and then *verified*: OpenDP's own `map` gives the cost of the
mechanism, rounded up, and that must not exceed the integer charge. Where it does, the scale is
raised until it no longer does.

What OpenDP 0.16 does over i64, checked by the tests beside this file: the samplers are
exact (rational arithmetic, no float noise); a sum beyond 64 bits saturates, which is
post-processing of the true sum; a scale of 0 adds nothing and its `map` is infinite, so
it can never be charged here; `map` of `noisy_max` counts a score vector that moves by
Delta in every coordinate in either direction ("not monotone").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# Not `opendp.prelude`, which imports pandas and scikit-learn besides.
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace, make_noisy_max
from opendp.measures import max_divergence, zero_concentrated_divergence
from opendp.metrics import l1_distance, l2_distance, linf_distance
from opendp.mod import enable_features

from app.engine.privacy.deviations import gaussian_deviation, laplace_deviation
from app.engine.privacy.limits import LARGEST_SCALE
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Noise

enable_features("contrib")

# Values pass through Python lists, of which this many at a time cost little memory.
_DRAWS_AT_ONCE = 2**16
# Floats are off by a few parts in 2^52, so a few steps of 2^-48 make a scale large enough.
_NUDGE = 1.0 + 2.0**-48


class ScaleTooLarge(ValueError):
    """The noise for so small a loss passes the largest scale the kernel draws."""


def _integers() -> Any:
    return vector_domain(atom_domain(T="i64"))


def _gaussian(scale: float) -> Any:
    return make_gaussian(_integers(), l2_distance(T=float), scale=scale)


def _laplace(scale: float) -> Any:
    return make_laplace(_integers(), l1_distance(T="i64"), scale=scale)


def _noisy_max(kind: Literal["pure", "zcdp"], scale: float) -> Any:
    measure = zero_concentrated_divergence() if kind == "zcdp" else max_divergence()
    return make_noisy_max(_integers(), linf_distance(T="i64"), measure, scale=scale)


def _root_up(square: int) -> float:
    """A float just above the root of `square`: its own square is at least `square`, exactly."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def _verified(start: float, cost: Callable[[float], float], amount: int) -> float:
    """A scale from `start` up at which OpenDP's cost is at most `amount` units of 1e-12."""
    scale = start
    while True:
        if not 0 < scale < math.inf:
            raise ScaleTooLarge
        price = cost(scale)
        if math.isfinite(price) and Fraction(price) * 10**12 <= amount:
            return scale
        scale *= _NUDGE


def _within(scale: float, largest: float) -> float:
    if scale > largest:
        raise ScaleTooLarge
    return scale


@lru_cache(maxsize=1024)
def count_scale(loss: PrivacyLoss, l1: int, l2_squared: int) -> tuple[Noise, float]:
    """The noise and its scale for an integer vector that one unit moves by at most this much.

    Pure: discrete Laplace of b = l1 / epsilon. zCDP: discrete Gaussian of
    sigma = l2 / sqrt(2 rho) (Canonne, Kamath and Steinke 2020).
    Raises `ScaleTooLarge`, which depends on the loss and the sensitivity alone.
    """
    if loss.amount <= 0:
        raise ScaleTooLarge
    if loss.kind == "pure":
        start = _within(l1 / loss.value, LARGEST_SCALE)
        return "laplace", _verified(start, lambda scale: _laplace(scale).map(l1), loss.amount)
    l2 = _root_up(l2_squared)
    start = _within(l2 / math.sqrt(2 * loss.value), LARGEST_SCALE)
    return "gaussian", _verified(start, lambda scale: _gaussian(scale).map(l2), loss.amount)


def add_noise(values: NDArray[np.int64], noise: Noise, scale: float) -> NDArray[np.int64]:
    """`values`, flat int64, with independent discrete noise of this scale in every entry."""
    mechanism = _gaussian(scale) if noise == "gaussian" else _laplace(scale)
    noisy = np.empty_like(values)
    for first in range(0, len(values), _DRAWS_AT_ONCE):
        part = slice(first, first + _DRAWS_AT_ONCE)
        noisy[part] = mechanism(values[part].tolist())
    return noisy


def standard_deviation(noise: Noise, scale: float) -> float:
    """The exact standard deviation of discrete noise of this scale."""
    return laplace_deviation(scale) if noise == "laplace" else gaussian_deviation(scale)


@lru_cache(maxsize=1024)
def selection_scale(loss: PrivacyLoss, sensitivity: int, score_unit: int) -> float:
    """The scale of noisy max for scores that each move by at most `sensitivity`.

    scale = 2 Delta / epsilon. In a pure session the cost is epsilon (permute-and-flip,
    McKenna and Sheldon 2020); in a zCDP session Gumbel noise makes it the exponential
    mechanism, whose range is bounded by epsilon, so rho = epsilon^2 / 8 (Cesar and Rogers
    2021). `score_unit` is how many steps of the integer scores make one count.
    """
    if loss.amount <= 0:
        raise ScaleTooLarge
    epsilon = loss.value if loss.kind == "pure" else math.sqrt(8 * loss.value)
    start = _within(2 * sensitivity / epsilon, LARGEST_SCALE * score_unit)
    return _verified(
        start, lambda scale: _noisy_max(loss.kind, scale).map(sensitivity), loss.amount
    )


def noisy_winners(
    scores: Sequence[int], kind: Literal["pure", "zcdp"], scale: float, winners: int
) -> tuple[int, ...]:
    """Indices of the noisily largest scores: one noisy max after another, without replacement.

    Each draw is a mechanism of its own on the candidates that remain, so `winners` draws
    cost `winners` times one. Time grows with `winners` times candidates, which a question
    bounds. (One draw of permute-and-flip's noise for all winners has another distribution,
    which the cost of `winners` single draws does not cover.)
    """
    select = _noisy_max(kind, scale)
    left = list(range(len(scores)))
    chosen = []
    for _ in range(winners):
        chosen.append(left.pop(select([scores[index] for index in left])))
    return tuple(chosen)
