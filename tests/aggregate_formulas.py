"""The published division of rho among the lengths of `aggregate_seeded`, as an oracle.

Source: "Differentially private aggregation and synthesis" (Synthetic Data Showcase, Microsoft,
2022), sections 3.2 and 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile_epsilon(rho: float, share: float, length: int) -> float:
    """sqrt(8 rho Q_p / R): the exponential mechanism costs epsilon^2 / 8, where the document has
    epsilon^2 / 2, and so half of this for the same share."""
    return math.sqrt(8 * rho * share / length)


def sigmas(rho: float, quantile_share: float, proportions: Sequence[float]) -> tuple[float, ...]:
    """sigma_k = p_k sqrt(sum 1 / p_i^2 / (2 rho (1 - Q_p))), k = 1 to R."""
    inverse = math.fsum(1 / proportion**2 for proportion in proportions)
    sigma = math.sqrt(inverse / (2 * rho * (1 - quantile_share)))
    return tuple(proportion * sigma for proportion in proportions)
