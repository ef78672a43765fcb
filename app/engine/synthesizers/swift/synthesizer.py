"""The steps of `swift`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.engine.columns.axes import Axes
from app.engine.columns.estimates import ColumnEstimates
from app.engine.graphical.method import GraphicalMethod
from app.engine.graphical.preparation import PreparationPlan, PreparedTable
from app.engine.graphical.run import BudgetWeights, MeasuredMarginals, PublicSource, TableRun
from app.engine.method import Case, Needs, Problem, PublicFacts, Session
from app.engine.prior.drift import PriorLimits
from app.engine.prior.public_model import pairs_within
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Count
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.swift import needs
from app.engine.synthesizers.swift.budget import (
    MostCells,
    PairBudget,
    budget_weights,
    chooses_twice,
    usual_shares,
    with_row_count,
)
from app.engine.synthesizers.swift.params import SwiftParams
from app.engine.synthesizers.swift.portfolio import Option, Pair
from app.engine.synthesizers.swift.rounds import PairRounds, cell_noise
from app.engine.synthesizers.swift.tuning import TUNING


class Swift(GraphicalMethod):
    name = "swift"
    title = "Junction tree over the pairs that are worth their noise"
    reference = (
        "After SWIFT (google/dpsynth, 2026); estimation after McKenna, Sheldon and Miklau (2019) "
        "and Dudik, Phillips and Schapire (2007)"
    )
    Params = SwiftParams
    auto_rank = 10

    def auto_reason(self, columns: int, unit: PrivacyUnit, public: PublicFacts | None) -> str:
        reason = (
            "`swift` had the least error on most kinds of tables that were measured, in seconds"
        )
        if public is not None and unit.kind == "entity":
            return (
                f"{reason}, and keeps the entities of the public dataset where noisy distances"
                " tell these to be near"
            )
        if public is not None:
            return (
                f"{reason}, and starts from the public dataset, whose drift it finds by noisy"
                " scores"
            )
        if chooses_twice(columns, has_public=False):
            return f"{reason}, and looks twice at the pairs of so many columns"
        return reason

    def form_problems(self, axes: Axes, params: SwiftParams) -> tuple[Problem, ...]:
        return needs.form_problems(axes, params)

    def prior_tree_cells(self, axes: Axes, params: SwiftParams) -> int:
        del axes
        return needs.prior_cells(params)

    def marginal_needs(self, case: Case, plan: PreparationPlan, params: SwiftParams) -> Needs:
        return needs.marginal_needs(case, plan, params)

    def prepared(
        self, session: Session, table: PreparedTable, params: SwiftParams
    ) -> PreparedTable:
        return with_row_count(session, table, params)

    def weights(
        self, table: PreparedTable, params: SwiftParams, public: PublicSource
    ) -> BudgetWeights:
        # What was forecast for a public table holds for one of which no row fits.
        is_named = public.table is not None
        shares = params.shares or usual_shares(table, has_public=is_named)
        columns = len(table.axes.names)
        return budget_weights(shares, columns, is_named=is_named, is_read=public.rows is not None)

    def prior_limits(self, run: TableRun, params: SwiftParams) -> PriorLimits:
        pair = _most_pair_cells(run, params)
        noise = cell_noise(run, pair, run.budget.marginals)
        return PriorLimits(needs.prior_cells(params, noise.deviation / run.columns.total), pair)

    def pair_weight(self, run: TableRun, params: SwiftParams) -> Callable[[Pair], float]:
        del run
        return params.weight

    def select_and_measure(self, run: TableRun, params: SwiftParams) -> MeasuredMarginals:
        columns = len(run.table.axes.names)
        has_public = run.public.table is not None
        budget = PairBudget.of(run.budget, columns, has_public=has_public)
        most_pair = _most_pair_cells(run, params)
        run.progress(0.1, "scoring pairs")
        options = _options(run, params, budget.scores, most_pair)
        rounds = PairRounds(run, options, most_pair)
        if columns > 1:
            run.progress(0.4, "choosing and measuring pairs")
            rounds.measure(MostCells.of(params, columns, has_public=has_public), budget)
        return MeasuredMarginals(rounds.measured, rounds.settings(TUNING.tolerance))


def _most_pair_cells(run: TableRun, params: SwiftParams) -> int:
    axes, has_public = run.table.axes, run.public.table is not None
    most = MostCells.of(params, len(axes.names), has_public=has_public).measured
    return min(most, needs.most_pair_cells(axes, has_public=has_public))


def _options(
    run: TableRun, params: SwiftParams, loss: PrivacyLoss, most_cells: int
) -> tuple[Option, ...]:
    """The pairs that can be measured. Gains are noisy distances: from the public model, if there
    is one, else from independence.

    With two columns there is nothing to choose: no score is asked or paid, and the gain is 0.
    """
    columns = run.columns
    pairs = pairs_within(columns, most_cells)
    if run.prior is not None:
        gains = [run.prior.gains[pair] for pair in pairs]
    elif len(columns.shape) > 2 and pairs:
        gains = _scores(run, pairs, loss)
    else:
        gains = [0.0] * len(pairs)
    return _as_options(columns, params, pairs, gains)


def _as_options(
    columns: ColumnEstimates, params: SwiftParams, pairs: Sequence[Pair], gains: Sequence[float]
) -> tuple[Option, ...]:
    shape = columns.shape
    return tuple(
        Option(
            pair,
            gain,
            columns.counts[pair[0]],
            columns.counts[pair[1]],
            params.weight(pair),
            params.emphasis(min(shape[name] for name in pair)),
        )
        for pair, gain in zip(pairs, gains, strict=True)
    )


def _scores(run: TableRun, pairs: Sequence[Pair], loss: PrivacyLoss) -> list[float]:
    """How far each pair's histogram is from the product of its columns' noisy shares, in rows."""
    columns = run.columns
    candidates = [
        Candidate(
            Count(pair, {name: columns.merged.groupings[name] for name in pair}),
            (columns.counts[pair[0]], columns.shares[pair[1]]),
        )
        for pair in pairs
    ]
    return [float(gain) for gain in run.session.scores(candidates, loss).values]
