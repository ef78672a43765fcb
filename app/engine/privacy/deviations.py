"""Standard deviations of the discrete noise that the kernel draws; formulas alone, no noise."""

from __future__ import annotations

import math

import numpy as np

# Beyond this sinh overflows, and the deviation is 0 to double precision.
_LARGEST_EXPONENT = 350.0
# Above it the discrete and the continuous Gaussian's variance agree beyond double precision.
_LARGE_SCALE = 8.0


def laplace_deviation(scale: float) -> float:
    """Of the discrete Laplace, P(x) ~ exp(-|x| / scale).

    Its variance is 2 q / (1 - q)^2 with q = exp(-1 / scale), which is 1 / (2 sinh(1 / 2b)^2).
    """
    half = 1 / (2 * scale)
    return 0.0 if half > _LARGEST_EXPONENT else 1 / (math.sqrt(2) * math.sinh(half))


def gaussian_deviation(scale: float) -> float:
    """Of the discrete Gaussian, P(x) ~ exp(-x^2 / (2 scale^2))."""
    if scale > _LARGE_SCALE:
        return scale
    support = np.arange(1, 400, dtype=np.float64)
    weights = np.exp(-(support**2) / (2 * scale**2))
    return math.sqrt(2 * float(support**2 @ weights) / (1 + 2 * float(weights.sum())))
