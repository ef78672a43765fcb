"""How the loss is divided over the lengths, and which counts are kept: the published formulas.

Source: "Differentially private aggregation and synthesis" (Synthetic Data Showcase,
Microsoft, 2022), sections 3.2 and 3.3, with the corrections told at each formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from app.engine.columns.contribution import UNMEASURED
from app.engine.privacy.loss import PrivacyLoss


def first_threshold(sigma: float, limit: int, delta: float) -> float:
    """rho_1 = 1 + sigma_1 sqrt(Delta_1) PhiInv((1 - delta / 2)^(1 / Delta_1))."""
    tail = -math.expm1(math.log1p(-delta / 2) / limit)
    return 1 - sigma * math.sqrt(limit) * NormalDist().inv_cdf(tail)


def adaptive_threshold(sigma: float, limit: int, eta: float) -> float:
    """rho_k = sigma_k sqrt(Delta_k) PhiInv(1 - eta_k / 2); the document writes Delta_1."""
    return -sigma * math.sqrt(limit) * NormalDist().inv_cdf(eta / 2)


def scale_of(loss: PrivacyLoss) -> float:
    """1 / sqrt(2 rho), or a number beyond any noise for nothing."""
    return 1 / math.sqrt(2 * loss.value) if loss.amount > 0 else UNMEASURED


@dataclass(frozen=True, slots=True)
class Division:
    """Parts of a session's loss: the sizes, then for each length a percentile and the counts."""

    sizes: PrivacyLoss
    quantiles: tuple[PrivacyLoss, ...]
    counts: tuple[PrivacyLoss, ...]

    def sigma(self, length: int) -> float:
        """The scale of the noise at length k for one tuple a unit, 1 / sqrt(2 rho_k)."""
        return scale_of(self.counts[length - 1])

    @property
    def smallest(self) -> int:
        """The smallest part, in the ledger's units: what it buys must be paid with something."""
        return min(part.amount for part in (self.sizes, *self.quantiles, *self.counts))


def divided(
    loss: PrivacyLoss, size_share: float, quantile_share: float, proportions: Sequence[float]
) -> Division:
    """`size_share` of the loss for the sizes; of the rest, `quantile_share` in equal parts for
    the percentiles, and what is left in proportion to 1 / p_k^2."""
    length = len(proportions)
    rest = 1 - size_share
    inverse = [1 / proportion**2 for proportion in proportions]
    total = math.fsum(inverse)
    parts = loss.split(
        [size_share]
        + [rest * quantile_share / length] * length
        + [rest * (1 - quantile_share) * each / total for each in inverse]
    )
    return Division(parts[0], parts[1 : 1 + length], parts[1 + length :])
