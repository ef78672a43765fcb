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
        """The schedule that would spend `loss` evenly on `expected_winners`."""
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
        factor = 2 if self.select.kind == "pure" else 4
        return Schedule(_scaled(self.select, factor), _scaled(self.measure, factor))

    def next_round(self, left: PrivacyLoss, max_winners: int) -> tuple[Schedule, int]:
        """The cost of each winner, and the number of winners, of the next round.

        If `left` cannot pay for one more winner than this round takes, the round is the last, and
        its winners share all that is left.
        """
        affordable = left.amount // self.cost if self.cost else 0
        if affordable > max_winners:
            return self, max_winners
        winners = max(affordable, 1)
        (each, *_) = left.split([1.0] * winners)
        return self._divided(each, self.select.amount / self.cost if self.cost else 0.0), winners


def expected_winners(columns: int) -> int:
    """Some for each column, up to a limit that is never below one for each column."""
    return min(TUNING.winners_of_column * columns, max(TUNING.enough_winners, columns))


def _scaled(loss: PrivacyLoss, factor: int) -> PrivacyLoss:
    return PrivacyLoss(loss.kind, loss.amount * factor)
