"""How the budget is split among lengths, and which counts are kept: the published formulas.

Source: "Differentially private aggregation and synthesis" (Synthetic Data Showcase,
Microsoft, 2022), sections 3.2 and 3.3, with our corrections beside the formulas. The source calls
its thresholds rho_k; they are tau_k here, since rho is the parameter of zCDP.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from app.engine.columns.contribution import UNMEASURED
from app.engine.privacy.loss import PrivacyLoss


def first_threshold(sigma: float, sensitivity: int, delta: float) -> float:
    """tau_1 = 1 + sigma_1 sqrt(Delta_1) PhiInv((1 - delta / 2)^(1 / Delta_1)).

    `sensitivity` is Delta_1: how many tuples of a unit count at length 1.
    """
    # By symmetry -PhiInv(tail) is PhiInv(1 - tail), and exact for a tiny delta.
    tail = -math.expm1(math.log1p(-delta / 2) / sensitivity)
    return 1 - sigma * math.sqrt(sensitivity) * NormalDist().inv_cdf(tail)


def adaptive_threshold(sigma: float, sensitivity: int, eta: float) -> float:
    """tau_k = sigma_k sqrt(Delta_k) PhiInv(1 - eta_k / 2).

    The source writes Delta_1; Delta_k is right, since the noise at length k has this scale.
    """
    return -sigma * math.sqrt(sensitivity) * NormalDist().inv_cdf(eta / 2)


def scale_of(loss: PrivacyLoss) -> float:
    """1 / sqrt(2 rho); `UNMEASURED`, larger than any noise, where rho is 0."""
    return 1 / math.sqrt(2 * loss.value) if loss.amount > 0 else UNMEASURED


@dataclass(frozen=True, slots=True)
class CombinationBudget:
    """The loss of the table's size, then of a percentile and of the counts of each length."""

    size: PrivacyLoss
    percentiles: tuple[PrivacyLoss, ...]
    counts: tuple[PrivacyLoss, ...]

    def sigma(self, length: int) -> float:
        """The scale of the noise at length k for one tuple a unit, 1 / sqrt(2 rho_k)."""
        return scale_of(self.counts[length - 1])

    @property
    def least(self) -> PrivacyLoss:
        return min((self.size, *self.percentiles, *self.counts), key=lambda part: part.amount)


@dataclass(frozen=True, slots=True)
class BudgetWeights:
    """Parts of the whole for the size, and of the rest for all percentiles. What is left goes to
    the counts, in proportion to 1 / p_k^2."""

    size: float
    percentiles: float
    proportions: Sequence[float]

    def split(self, loss: PrivacyLoss) -> CombinationBudget:
        length, rest = len(self.proportions), 1 - self.size
        inverse = [1 / proportion**2 for proportion in self.proportions]
        total = math.fsum(inverse)
        parts = loss.split(
            [self.size]
            + [rest * self.percentiles / length] * length
            + [rest * (1 - self.percentiles) * each / total for each in inverse]
        )
        return CombinationBudget(parts[0], parts[1 : 1 + length], parts[1 + length :])
