"""How a method on a junction tree splits its budget among its steps."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.privacy.loss import PrivacyLoss


@dataclass(frozen=True, slots=True)
class TableBudget:
    """The loss of each step; nothing is set aside for a step that is not taken.

    prior: comparing a public model with the private table. selection: choosing marginals.
    marginals: measuring them. reserve: kept for what a method asks of its fitted model.
    """

    one_way: PrivacyLoss
    prior: PrivacyLoss
    selection: PrivacyLoss
    marginals: PrivacyLoss
    reserve: PrivacyLoss


@dataclass(frozen=True, slots=True)
class BudgetWeights:
    """What each step's loss is in proportion to; see `TableBudget`."""

    one_way: float
    prior: float = 0.0
    selection: float = 0.0
    marginals: float = 0.0
    reserve: float = 0.0

    def split(self, loss: PrivacyLoss) -> TableBudget:
        weights = (self.one_way, self.prior, self.selection, self.marginals, self.reserve)
        return TableBudget(*loss.split(weights))
