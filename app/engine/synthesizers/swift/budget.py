"""How `swift` splits its budget.

What the columns need depends on how many rows there are: noise that a million rows never feel
hides a thousand. So a small part of the loss measures their number first, where nothing else says
it yet; all else about the split is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from app.engine.columns.table_size import SizeEstimate
from app.engine.graphical.preparation import PreparedTable, one_way_errors
from app.engine.graphical.run import BudgetWeights, TableBudget
from app.engine.method import Session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.synthesizers.swift.params import Shares, SwiftParams
from app.engine.synthesizers.swift.tuning import TUNING


def budget_weights(shares: Shares, columns: int, *, is_named: bool, is_read: bool) -> BudgetWeights:
    """Weights of the steps; a step that is not taken has none.

    is_named: whether the request names a public table: pairs are then scored even if there are two
    columns. is_read: whether rows of it fit, so that scores are distances from a public model.
    """
    scores = shares.scores if columns > (1 if is_named else 2) else 0.0
    return BudgetWeights(
        one_way=shares.one_way,
        prior=scores if is_read else 0.0,
        selection=0.0 if is_read else scores,
        marginals=shares.two_way if columns > 1 else 0.0,
    )


@dataclass(frozen=True, slots=True)
class PairBudget:
    """The loss of scoring all pairs and of measuring the chosen ones: once, or of each choice.

    `first` and `second_scores` are for a first choice of pairs and for scoring the others again,
    where there are two choices; `marginals` is then for the second.
    """

    scores: PrivacyLoss
    marginals: PrivacyLoss
    first: PrivacyLoss | None = None
    second_scores: PrivacyLoss | None = None

    @classmethod
    def of(cls, budget: TableBudget, columns: int, *, has_public: bool) -> PairBudget:
        if not chooses_twice(columns, has_public=has_public):
            return cls(budget.selection, budget.marginals)
        again = TUNING.second_scores
        scores, second = budget.selection.split((1 - again, again))
        first, last = budget.marginals.split((TUNING.first_choice, 1 - TUNING.first_choice))
        return cls(scores, last, first, second)

    @property
    def scored(self) -> tuple[PrivacyLoss, ...]:
        """The loss of each question about all pairs."""
        return (self.scores,) if self.second_scores is None else (self.scores, self.second_scores)

    @property
    def measured(self) -> tuple[PrivacyLoss, ...]:
        """The loss of the pairs of each choice."""
        return (self.marginals,) if self.first is None else (self.marginals, self.first)


def chooses_twice(columns: int, *, has_public: bool) -> bool:
    """Whether pairs are chosen twice; a public model says what a first choice would."""
    is_covered = columns * TUNING.coverage_of_one_choice <= 2
    is_slow = columns**3 > TUNING.most_work_of_two_choices
    return not (is_covered or is_slow or has_public)


@dataclass(frozen=True, slots=True)
class MostCells:
    """Of the junction tree, and of all measured pairs together."""

    tree: int
    measured: int

    @classmethod
    def of(cls, params: SwiftParams, columns: int, *, has_public: bool) -> MostCells:
        tree = params.most_cells or _usual_tree(columns, has_public)
        return cls(tree, min(tree, TUNING.most_cells))


def _usual_tree(columns: int, has_public: bool) -> int:
    large = TUNING.most_cells_of_two_choices
    has_memory = large * columns <= TUNING.most_cells_times_columns
    is_worth_it = chooses_twice(columns, has_public=has_public)
    return large if is_worth_it and has_memory else TUNING.most_cells


def with_row_count(session: Session, table: PreparedTable, params: SwiftParams) -> PreparedTable:
    """The table, with a noisy number of rows where the split follows from it.

    Measured entities say it already; where there are none, a unit has one row.
    """
    is_needed = params.shares is None and len(table.axes.names) > 1
    if not is_needed or table.size is not None:
        return table
    part = rows_loss(table.budget.loss)
    (counted,) = session.count((Count(()),), part)
    rows, variance = float(counted.values), counted.variance
    known = SizeEstimate(rows, variance, rows, variance)
    left = UnitBudget(session.unit, table.budget.loss - part)
    return replace(table, budget=left, counted=known)


def rows_loss(loss: PrivacyLoss) -> PrivacyLoss:
    """The part of a loss for the number of rows."""
    share = TUNING.rows if loss.kind == "zcdp" else TUNING.rows_of_pure
    return loss.split((share, 1 - share))[0]


def usual_shares(table: PreparedTable, *, has_public: bool = False) -> Shares:
    """What the columns get by the guarantee, and more where noise would hide them.

    By the loss it is a quarter at rho 0.01, less where there is more. Noise of standard deviation
    sigma in each of c cells makes up c sigma of all that is counted, but no more than all; 1.6
    times the mean of that part over the columns, were a quarter of the loss for them, is the least
    that they get.
    """
    quarter, _ = table.budget.split((TUNING.one_way, 1 - TUNING.one_way))
    errors = one_way_errors(table.axes, table.contribution, quarter)
    counts = max(_counts(table), 1.0)
    noise = [
        min(cells * error / counts, 1.0)
        for cells, error in zip(table.axes.shape, errors, strict=False)
    ]
    noise_part = math.fsum(noise) / max(len(noise), 1)
    one_way = max(_by_guarantee(table.budget.loss), TUNING.noise_factor * noise_part)
    return _shares(round(min(one_way, TUNING.most_one_way), 3), has_public)


def _counts(table: PreparedTable) -> float:
    """About how much a histogram counts, by what is known of rows and entities.

    Of n rows of an entity about sqrt(n) are taken to be distinct, and their norm to be n^(3/4),
    half-way between all apart and all in one cell.
    """
    known, rule = table.size, table.contribution
    if known is None:
        return 0.0
    entities = max(known.entities, 1.0)
    rows = max(known.rows / entities, 1.0)
    match rule.rule:
        case "clipped":
            assert rule.norm is not None
            return entities * rows * min(1.0, rule.norm / math.pow(rows, 0.75))
        case "distinct":
            assert rule.limit is not None
            return entities * min(math.sqrt(rows), rule.limit)
        case "one":
            return entities
    return known.rows


def _by_guarantee(loss: PrivacyLoss) -> float:
    """Whatever a unit is: its noise, not its size, decides how much is left of its rows."""
    share = TUNING.one_way * math.pow(max(_rho(loss), 1e-30) / TUNING.rho, -TUNING.power)
    return max(share, TUNING.least_one_way)


def _rho(loss: PrivacyLoss) -> float:
    return loss.value**2 / 2 if loss.kind == "pure" else loss.value


def possible_shares(*, has_public: bool) -> tuple[Shares, ...]:
    """What is expected of a table nobody knows, then the ends of what `usual_shares` gives."""
    ends = (TUNING.one_way, TUNING.least_one_way, TUNING.most_one_way)
    return tuple(_shares(one_way, has_public) for one_way in ends)


def _shares(one_way: float, has_public: bool) -> Shares:
    scores = TUNING.scores_with_public if has_public else TUNING.scores
    return Shares(one_way=one_way, scores=scores, two_way=1 - scores - one_way)
