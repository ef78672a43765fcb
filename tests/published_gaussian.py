"""The noise scales that the published system used (classical) and promised (analytic)."""

from __future__ import annotations

import math

import scipy

LARGEST_EPSILON = 0.999999999
"""The classical formula holds below 1, so that epsilon was clamped to this."""


def classical_scale(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """sigma of the Gaussian mechanism (Dwork and Roth 2014, theorem A.1), epsilon clamped."""
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / min(epsilon, LARGEST_EPSILON)


def analytic_scale(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The least sigma of continuous Gaussian noise (Balle and Wang 2018, theorem 8)."""

    def excess(log_sigma: float) -> float:
        ratio = sensitivity / math.exp(log_sigma)
        inside, outside = ratio / 2 - epsilon / ratio, -ratio / 2 - epsilon / ratio
        norm = scipy.stats.norm
        return float(norm.cdf(inside) - math.exp(epsilon + norm.logcdf(outside)) - delta)

    return math.exp(scipy.optimize.brentq(excess, -5, 15))
