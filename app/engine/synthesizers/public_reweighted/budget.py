"""How `public_reweighted` splits its budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.engine.prior.entities.params import PublicReweightedParams
from app.engine.privacy.unit_budget import UnitBudget


@dataclass(frozen=True, slots=True)
class StepBudgets:
    """The budget of each step; nothing for a step that the params leave out."""

    size: UnitBudget
    one_way: UnitBudget
    scores: UnitBudget
    counts: UnitBudget

    @classmethod
    def of(cls, budget: UnitBudget, params: PublicReweightedParams) -> StepBudgets:
        shares = params.shares
        one_way = 0.0 if params.watch == () else shares.one_way
        scores = 0.0 if params.measure is not None else shares.scores
        weights = (shares.size, one_way, scores, shares.counts)
        total = math.fsum(weights)
        return cls(*budget.split([weight / total for weight in weights]))
