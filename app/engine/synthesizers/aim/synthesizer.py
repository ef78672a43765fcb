"""The steps of `aim`."""

from __future__ import annotations

from collections.abc import Callable

from app.engine.columns.axes import Axes
from app.engine.columns.estimates import rows_per_count
from app.engine.graphical.method import FittedTable, GraphicalMethod
from app.engine.graphical.preparation import PreparationPlan, PreparedTable
from app.engine.graphical.run import BudgetWeights, MeasuredMarginals, PublicSource, TableRun
from app.engine.graphical.table_model import TableModel
from app.engine.method import Case, Example, Needs, Problem
from app.engine.prior.drift import PriorLimits
from app.engine.prior.public_model import Pair, most_pair_cells
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.synthesizers.aim import bounds
from app.engine.synthesizers.aim.bounds import BoundedModel, EntityMarginals
from app.engine.synthesizers.aim.budget import (
    budget_weights,
    first_schedule,
    prior_cells,
    shares_of,
)
from app.engine.synthesizers.aim.candidates import CandidatePool
from app.engine.synthesizers.aim.needs import form_problems, marginal_needs
from app.engine.synthesizers.aim.params import AimParams, workload_of
from app.engine.synthesizers.aim.rounds import LAST_FIT, ROUND_FIT, Rounds


class Aim(GraphicalMethod):
    name = "aim"
    title = "Marginals chosen adaptively for a workload, with bounds on every error"
    reference = "McKenna, Mullins, Sheldon and Miklau (2022), AIM"
    Params = AimParams
    example = Example(
        params={
            "columns": ["shift", "pickup_community_area", "payment_type", "fare"],
            "target": "payment_type",
        },
        rows=10000,
    )

    def form_problems(self, axes: Axes, params: AimParams) -> tuple[Problem, ...]:
        return form_problems(axes, params)

    def refusals(self, axes: Axes, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
        """A workload is made of sound params alone."""
        del axes
        return problems

    def prior_tree_cells(self, axes: Axes, params: AimParams) -> int:
        del axes
        return prior_cells(params)

    def marginal_needs(self, case: Case, plan: PreparationPlan, params: AimParams) -> Needs:
        return marginal_needs(case, plan, params)

    def weights(
        self, table: PreparedTable, params: AimParams, public: PublicSource
    ) -> BudgetWeights:
        shares = shares_of(table, params)
        return budget_weights(
            shares, workload_of(table.axes, params), has_public=public.rows is not None
        )

    def prior_limits(self, run: TableRun, params: AimParams) -> PriorLimits:
        tree = prior_cells(params)
        return PriorLimits(tree, min(tree, most_pair_cells(run.table.axes)))

    def pair_weight(self, run: TableRun, params: AimParams) -> Callable[[Pair], float]:
        return workload_of(run.table.axes, params).weight

    def select_and_measure(self, run: TableRun, params: AimParams) -> MeasuredMarginals:
        columns, workload = run.columns, workload_of(run.table.axes, params)
        if not workload.candidates:
            return MeasuredMarginals((), LAST_FIT, start=run.fit((), ROUND_FIT))
        shares = shares_of(run.table, params)
        pool = CandidatePool(
            columns.merged, workload, columns.total, params.most_cells, run.prior_cliques
        )
        one_ways = columns.measured
        return Rounds(
            run,
            pool,
            rows_per_count(one_ways.answers[0], one_ways.size),
            first_schedule(
                run.budget, shares, len(columns.shape), has_public=run.public.rows is not None
            ),
            params.winners,
        ).measure()

    def finished(self, run: TableRun, params: AimParams, model: FittedTable) -> BoundedModel:
        """With bounds of its errors, for the reserve."""
        if not run.budget.reserve.amount:
            return BoundedModel(model, ())
        run.progress(0.92, "bounding errors")
        axes, unit = run.table.axes, run.session.unit
        marginals: bounds.MarginalSource
        if isinstance(model, TableModel):
            marginals = model
        else:
            marginals = EntityMarginals(model, run.columns.axes, run.columns.size)
        one_way = UnitBudget(unit, run.budget.one_way)
        rows_error = bounds.rows_error(axes, run.table.contribution, one_way)
        cliques = bounds.bounded(axes, workload_of(axes, params).closure)
        return BoundedModel(
            model, bounds.measured_bounds(run.session, marginals, cliques, rows_error)
        )
