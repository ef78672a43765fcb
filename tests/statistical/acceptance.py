"""Accepts or rejects a law for a sample, with a false alarm in at most a million.

Tests of "accepts" fail for a right implementation with probability `FALSE_ALARM`; tests of
"rejects" choose sample sizes at which a law 10 % off is missed about as seldom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FALSE_ALARM = 1e-6
_LEAST_EXPECTED = 100
_WIDEST = 12

Law = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Weights of integers, up to a factor."""


def discrete_gaussian(scale: float) -> Law:
    return lambda support: np.exp(-(support**2) / (2 * scale**2))


def discrete_laplace(scale: float) -> Law:
    return lambda support: np.exp(-np.abs(support) / scale)


def accepts_law(sample: NDArray[np.int64], law: Law, scale: float) -> bool:
    """Whether integers follow `law`, by chi-square over bins of about a third of `scale`."""
    reach = int(_WIDEST * scale) * 3
    support = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = law(support)
    width = max(1, round(scale / 3))
    edges = np.arange(-reach, reach + width + 1, width)
    expected, _ = np.histogram(support, edges, weights=weights / weights.sum() * len(sample))
    observed, _ = np.histogram(np.clip(sample, -reach, reach), edges)
    return accepts_frequencies(*_merged_tails(observed, expected))


def accepts_frequencies(observed: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Whether counts are a multinomial draw of these expectations (which are brought to scale)."""
    scaled = np.asarray(expected, dtype=np.float64)
    scaled = scaled * (np.sum(observed) / scaled.sum())
    assert scaled.min() >= _LEAST_EXPECTED / 2, "too few draws for the chi-square law"
    return bool(stats.chisquare(observed, scaled).pvalue >= FALSE_ALARM)


def accepts_probability(successes: int, trials: int, probability: float) -> bool:
    """Whether independent trials succeed with this probability, by the exact binomial law."""
    return bool(stats.binomtest(successes, trials, probability).pvalue >= FALSE_ALARM)


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
