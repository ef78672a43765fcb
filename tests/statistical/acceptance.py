"""Accepts or rejects a law for a sample, with a false alarm in at most a million.

Tests of "accepts" fail for a right implementation with probability `FALSE_ALARM`; `accepts_law`
takes no sample so small that a scale 10 % off would be missed more often than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

FALSE_ALARM = 1e-6
_LEAST_EXPECTED = 100
_WIDEST = 12

FEWEST_DRAWS = 12_000
"""Of a discrete Laplace, |x| / scale has mean and deviation 1: tested at 1.1 times its scale, its
mean is off by 0.1 / 1.1 sqrt(n) deviations of a mean, 9.96 here. It passes below 5.16, 5.3 of its
own deviations away, with probability 6e-8; tested at the scale / 1.1, 5.26 away. A Gaussian's x^2
is further off."""

Law = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Weights of integers, up to a factor."""


def discrete_gaussian(scale: float) -> Law:
    return lambda support: np.exp(-(support**2) / (2 * scale**2))


def discrete_laplace(scale: float) -> Law:
    return lambda support: np.exp(-np.abs(support) / scale)


def accepts_law(sample: NDArray[np.int64], law: Law, scale: float) -> bool:
    """Whether integers follow `law`, whose scale this is.

    By chi-square over bins of about a third of `scale`, which sees any shape; and, since so many
    bins see a wrong scale too seldom, by the mean logarithm of the law's weights, which is the
    mean of |x| for a Laplace and of x^2 for a Gaussian.
    """
    assert len(sample) >= FEWEST_DRAWS, "too few draws to tell a scale 10 % off"
    reach = int(_WIDEST * scale) * 3
    support = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = law(support)
    chances = weights / weights.sum()
    width = max(1, round(scale / 3))
    edges = np.arange(-reach, reach + width + 1, width)
    expected, _ = np.histogram(support, edges, weights=chances * len(sample))
    observed, _ = np.histogram(np.clip(sample, -reach, reach), edges)
    has_shape = _chi_square(*_merged_tails(observed, expected)) >= FALSE_ALARM / 2
    return has_shape and _has_mean_weight(np.clip(sample, -reach, reach), support, chances)


def _has_mean_weight(
    sample: NDArray[np.int64], support: NDArray[np.float64], chances: NDArray[np.float64]
) -> bool:
    """Whether the logarithms of a sample's chances have the mean that the law says.

    They are skewed, so that tails of the normal law are passed up to twice as often: FALSE_ALARM
    is divided by 4.
    """
    logarithms = np.log(np.maximum(chances, np.finfo(float).tiny))
    mean = float(np.dot(chances, logarithms))
    deviation = float(np.sqrt(np.dot(chances, (logarithms - mean) ** 2) / len(sample)))
    found = float(np.interp(sample, support, logarithms).mean())
    return bool(2 * scipy.stats.norm.sf(abs(found - mean) / deviation) >= FALSE_ALARM / 4)


def accepts_frequencies(observed: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Whether counts are a multinomial draw of these expectations (which are brought to scale)."""
    return _chi_square(observed, expected) >= FALSE_ALARM


def _chi_square(observed: NDArray[Any], expected: NDArray[Any]) -> float:
    scaled = np.asarray(expected, dtype=np.float64)
    scaled = scaled * (np.sum(observed) / scaled.sum())
    assert scaled.min() >= _LEAST_EXPECTED / 2, "too few draws for the chi-square law"
    return float(scipy.stats.chisquare(observed, scaled).pvalue)


def accepts_probability(successes: int, trials: int, probability: float) -> bool:
    """Whether independent trials succeed with this probability, by the exact binomial law."""
    return bool(scipy.stats.binomtest(successes, trials, probability).pvalue >= FALSE_ALARM)


def _merged_tails(
    observed: NDArray[Any], expected: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The bins with everything beyond the first and last well-filled one added to those."""
    filled = np.flatnonzero(expected >= _LEAST_EXPECTED)
    first, last = filled[0], filled[-1]

    def merged(counts: NDArray[Any]) -> NDArray[Any]:
        middle = counts[first : last + 1].astype(np.float64)
        middle[0] += counts[:first].sum()
        middle[-1] += counts[last + 1 :].sum()
        return middle

    return merged(observed), merged(expected)
