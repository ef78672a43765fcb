"""A privacy unit beside the loss that it may bear: what every forecast of noise needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit


@dataclass(frozen=True, slots=True)
class UnitBudget:
    """The privacy loss that some questions may cost each privacy unit."""

    unit: PrivacyUnit
    loss: PrivacyLoss

    def split(self, weights: Sequence[float]) -> tuple[UnitBudget, ...]:
        """Parts in proportion to `weights`: see `PrivacyLoss.split`."""
        return tuple(UnitBudget(self.unit, part) for part in self.loss.split(weights))

    def of_each(self, parts: int) -> UnitBudget:
        """One of so many equal parts, without delta."""
        return UnitBudget(self.unit, self.loss.of_each(parts))
