"""Methods on a junction tree: one way through, of which each supplies one step.

    prepare          bins and entities are measured, where the dictionary leaves them open
    measure columns  a noisy histogram of each column; rare cells are merged
    public prior     with a public table: a public model of how columns depend on each other,
                     without what has drifted; or public entities, if these are nearer
    SELECT AND MEASURE
                     which marginals of several columns are measured, and with what loss
    fit              one graphical model of all that was measured

A method says how its budget is split, how large a public model may be, and takes the step in
capitals.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app.engine.columns.axes import Axes
from app.engine.columns.estimates import ColumnEstimates
from app.engine.columns.one_way import measure_one_ways
from app.engine.columns.private_bins import delta_for_values
from app.engine.graphical.params import TableParams
from app.engine.graphical.preparation import (
    PreparationPlan,
    PreparedTable,
    plan_preparation,
    prepare,
)
from app.engine.graphical.run import BudgetWeights, MeasuredMarginals, PublicSource, TableRun
from app.engine.graphical.table_model import TableModel
from app.engine.method import Case, Needs, Problem, Progress, Session, Synthesizer
from app.engine.prior.drift import (
    NearEntities,
    PriorLimits,
    PublicPrior,
    prior_needs,
    prior_problems,
    public_prior,
)
from app.engine.prior.entities.model import PublicReweightedModel, holds_public_entities, load_model
from app.engine.prior.public_model import Pair
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable

# A selection or a scoring offers every pair, and one question holds no more than so many.
MOST_COLUMNS = 200

FittedTable = TableModel | PublicReweightedModel


class GraphicalMethod(Synthesizer):
    """What `mst`, `swift` and `aim` have in common."""

    uses_public = "optional"

    @abstractmethod
    def weights(self, table: PreparedTable, params: Any, public: PublicSource) -> BudgetWeights:
        """How what is left after `prepare` is split among the steps."""

    @abstractmethod
    def marginal_needs(self, case: Case, plan: PreparationPlan, params: Any) -> Needs:
        """What choosing and measuring marginals of several columns, and the fit, can need, beside
        what `prepare` and a public table do."""

    @abstractmethod
    def prior_tree_cells(self, axes: Axes, params: Any) -> int:
        """The most cells of the public model's tree, for its memory and messages."""

    @abstractmethod
    def prior_limits(self, run: TableRun, params: Any) -> PriorLimits:
        """How large the public model may be."""

    @abstractmethod
    def select_and_measure(self, run: TableRun, params: Any) -> MeasuredMarginals:
        """Spends what `run.left` says, on marginals of several columns."""

    def prepared(
        self,
        session: Session,  # noqa: ARG002
        table: PreparedTable,
        params: Any,  # noqa: ARG002
    ) -> PreparedTable:
        """The table, after what a method asks before it splits its budget."""
        return table

    def form_problems(self, axes: Axes, params: Any) -> tuple[Problem, ...]:  # noqa: ARG002
        """What is wrong with the method's own params."""
        return ()

    def refusals(self, axes: Axes, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
        """Problems with which nothing more can be said of a run; none if it can."""
        columns = len(axes.names)
        if columns <= MOST_COLUMNS:
            return ()
        message = f"every pair of {columns} columns would be offered; {MOST_COLUMNS} are the most"
        return (*problems, Problem("/params/columns", message, "name fewer columns"))

    def pair_weight(self, run: TableRun, params: Any) -> Callable[[Pair], float]:  # noqa: ARG002
        """How much the error of a pair counts beside the others'."""
        return lambda _: 1.0

    def finished(self, run: TableRun, params: Any, model: FittedTable) -> Any:  # noqa: ARG002
        """The model that the release keeps, after what a method asks of it."""
        return model

    def delta_share(self, params: TableParams, schema: Schema) -> float:
        return delta_for_values(schema, params)

    def needs(self, case: Case, params: Any) -> Needs:
        plan = plan_preparation(case, params)
        axes = plan.axes
        own = self.form_problems(axes, params)
        own += prior_problems(case, axes, params.public_entities)
        if refusals := self.refusals(axes, plan.needs.problems + own):
            return Needs(cells=sum(axes.shape), problems=refusals)
        prior = prior_needs(case, axes, params.public_entities, self.prior_tree_cells(axes, params))
        return plan.needs + Needs(problems=own) + prior + self.marginal_needs(case, plan, params)

    def fit(
        self,
        session: Session,
        params: Any,
        public: PublicTable | None,
        seed: int,
        progress: Progress,
    ) -> Any:
        # The budget is split only now: it depends on what bins and entities have cost.
        table = self.prepared(session, prepare(session, params, progress), params)
        source = PublicSource.of(public, session.schema, table.axes.names)
        budget = self.weights(table, params, source).split(table.budget.loss)
        progress(0.02, "measuring columns")
        one_ways = measure_one_ways(
            session, table.axes, table.contribution, budget.one_way, table.size
        )
        columns = ColumnEstimates.of(
            table.axes, session.schema, one_ways, params.rare_below, source.rows
        )
        run = TableRun(session, table, columns, budget, source, progress)
        prior = self._prior(run, params, seed)
        if isinstance(prior, NearEntities):
            progress(0.3, "weighting public entities")
            weight = self.pair_weight(run, params)
            return self.finished(run, params, prior.model(session, run.left, self.name, weight))
        run = replace(run, prior=prior)
        measured = self.select_and_measure(run, params)
        progress(0.87, "fitting the model")
        graph = run.fit(measured.marginals, measured.settings, measured.start)
        return self.finished(run, params, run.model(self.name, graph))

    def _prior(self, run: TableRun, params: Any, seed: int) -> PublicPrior | NearEntities | None:
        public = run.public
        if public.table is None or public.rows is None:
            return None
        run.progress(0.05, "learning from the public table")
        return public_prior(
            run.session,
            run.columns,
            run.table.entities,
            public.table,
            public.rows,
            run.budget.prior,
            self.prior_limits(run, params),
            entity_use=params.public_entities,
            seed=seed,
        )

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> FittedTable:
        """A stored model, of rows or of public entities; raises `ModelFormatError`."""
        if holds_public_entities(data):
            return load_model(schema, unit, data, self.name)
        return TableModel.load(self.name, schema, unit, data)
