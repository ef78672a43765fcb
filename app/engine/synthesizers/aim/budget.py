"""How `aim` splits its budget: among its steps, and among rounds that may spend faster."""

from __future__ import annotations

import math
from dataclasses import dataclass

from app.engine.columns import one_way
from app.engine.columns.axes import Axes
from app.engine.columns.contribution import expected_error
from app.engine.graphical.preparation import PreparedTable
from app.engine.graphical.run import BudgetWeights, TableBudget
from app.engine.prior.tuning import TUNING as TUNING_OF_PRIORS
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.synthesizers.aim.params import AimParams, Shares
from app.engine.synthesizers.aim.tuning import TUNING
from app.engine.synthesizers.aim.workload import Workload


def budget_weights(shares: Shares, workload: Workload, *, has_public: bool) -> BudgetWeights:
    """The rounds are paid for choosing and measuring together; a step that is not taken has no
    weight."""
    is_choosing = bool(workload.candidates)
    prior, selection = _selection(shares, has_public)
    return BudgetWeights(
        one_way=shares.one_way,
        prior=prior if is_choosing else 0.0,
        marginals=selection + shares.marginals if is_choosing else 0.0,
        reserve=shares.bounds,
    )


def first_schedule(
    budget: TableBudget, shares: Shares, columns: int, *, has_public: bool
) -> Schedule:
    _, selection = _selection(shares, has_public)
    return Schedule.start(budget.marginals, selection / (selection + shares.marginals), columns)


def _selection(shares: Shares, has_public: bool) -> tuple[float, float]:
    """What of the weight of selections goes to comparing a public model, and what is left."""
    prior = TUNING_OF_PRIORS.drift_share * shares.selection if has_public else 0.0
    return prior, shares.selection - prior


def shares_of(table: PreparedTable, params: AimParams) -> Shares:
    return params.shares or usual_shares(table.budget, table.axes, table.contribution)


def usual_shares(budget: UnitBudget, axes: Axes, contribution: Contribution) -> Shares:
    """Little noise leaves more for marginals: what it would be with a quarter decides."""
    quarter, _ = budget.split((1.0, 3.0))
    part, *_ = quarter.split(one_way.weights(axes, contribution, quarter))
    error = expected_error(contribution, max(axes.shape), part)
    tens = math.log10(max(error, 1e-3) / TUNING.usual_error)
    one = TUNING.one_way
    one += tens * (TUNING.more_for_ten_times if tens > 0 else TUNING.less_for_a_tenth)
    one = round(min(max(one, TUNING.least_one_way), TUNING.most_one_way), 3)
    rest = 1 - one - TUNING.bounds
    return Shares(
        one_way=one,
        selection=TUNING.selection * rest,
        marginals=(1 - TUNING.selection) * rest,
        bounds=TUNING.bounds,
    )


def prior_cells(params: AimParams) -> int:
    """The most cells of the tree that public rows make: less than the first round leaves."""
    return params.most_cells // TUNING.prior_part


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cost of choosing one marginal and of measuring it, in units of one kind of loss.

    Annealing halves the noise of both: in rho that costs four times as much, in epsilon twice.
    """

    select: PrivacyLoss
    measure: PrivacyLoss

    @classmethod
    def start(cls, loss: PrivacyLoss, selection_share: float, columns: int) -> Schedule:
        """As if `loss` had to do for all `expected_winners`."""
        (each, *_) = loss.split([1.0] * expected_winners(columns))
        return cls._divided(each, selection_share)

    @classmethod
    def _divided(cls, each: PrivacyLoss, selection_share: float) -> Schedule:
        select, _ = each.split((selection_share, 1 - selection_share))
        return cls(select, each - select)

    @property
    def cost(self) -> int:
        return self.select.amount + self.measure.amount

    def annealed(self) -> Schedule:
        times = 2 if self.select.kind == "pure" else 4
        return Schedule(_times(self.select, times), _times(self.measure, times))

    def round(self, left: PrivacyLoss, most_winners: int) -> tuple[Schedule, int]:
        """What each of how many winners costs in the next round, if `left` is left.

        What does not do for another round is divided among the last winners, so that the last
        round spends it all.
        """
        affordable = left.amount // self.cost if self.cost else 0
        if affordable > most_winners:
            return self, most_winners
        winners = max(affordable, 1)
        (each, *_) = left.split([1.0] * winners)
        return self._divided(each, self.select.amount / self.cost if self.cost else 0.0), winners


def expected_winners(columns: int) -> int:
    """Three for each column, but no more than 60, or one for each."""
    return min(TUNING.winners_of_column * columns, max(TUNING.enough_winners, columns))


def _times(loss: PrivacyLoss, times: int) -> PrivacyLoss:
    return PrivacyLoss(loss.kind, loss.amount * times)
