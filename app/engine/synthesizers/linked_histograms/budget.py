"""How `linked_histograms` splits its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.columns.contribution import expected_error, expected_errors
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.synthesizers.linked_histograms.plan import MeasuredMean, Plan


@dataclass(frozen=True, slots=True)
class RunBudget:
    """The loss of each step; nothing is set aside for a step that is not taken.

    means: noisy means of linked columns. histograms: `Plan.questions`, one joint release split by
    `weights`. discovery: finding the cells of each group of `Plan.discovered`; these alone have a
    delta.
    """

    means: PrivacyLoss
    histograms: PrivacyLoss
    weights: tuple[float, ...]
    discovery: tuple[PrivacyLoss, ...]

    @classmethod
    def of(cls, plan: Plan, means_share: float, budget: UnitBudget) -> RunBudget:
        loss, weights = budget.loss, plan.weights(budget.unit)
        means, rest = PrivacyLoss(loss.kind, loss.amount).split((means_share, 1 - means_share))
        parts = rest.split(weights)
        listed = len(parts) - len(plan.discovered)
        histograms = PrivacyLoss(loss.kind, sum(part.amount for part in parts[:listed]))
        discovery = tuple(
            PrivacyLoss(loss.kind, part.amount, loss.delta // len(plan.discovered))
            for part in parts[listed:]
        )
        return cls(means, histograms, weights[:listed], discovery)

    def errors(self, plan: Plan, means: Sequence[MeasuredMean], budget: UnitBudget) -> list[float]:
        """Standard deviations of the noise of `plan.questions()`, which are all alike, then of
        the means."""
        of_histograms = UnitBudget(budget.unit, self.histograms)
        errors = list(expected_errors(plan.questions(), self.weights, of_histograms))
        if means:
            part = UnitBudget(budget.unit, self.means).of_each(2 * len(means))
            errors.append(expected_error(Contribution(), 1, part))
        return errors
