"""`mst`: noisy marginals along a privately chosen spanning tree of the columns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from pydantic import Field

from app.engine.columns.axes import Axes
from app.engine.columns.contribution import expected_distance, expected_error, expected_score_error
from app.engine.graphical.method import GraphicalMethod
from app.engine.graphical.params import TableParams
from app.engine.graphical.preparation import PreparationPlan, PreparedTable, one_way_errors
from app.engine.graphical.run import (
    BudgetWeights,
    FitSettings,
    MeasuredMarginals,
    PublicSource,
    TableBudget,
    TableRun,
)
from app.engine.graphical.spanning_tree import TreePrior, choose_tree, least_loss, selection_seconds
from app.engine.method import Case, Example, Needs, Params, PublicFacts, Question, Step
from app.engine.method.needs import counting_bytes, step_faults
from app.engine.prior.drift import PriorLimits, drawn_cells, prior_errors
from app.engine.prior.public_model import most_pair_cells, pairs_within
from app.engine.prior.tuning import TUNING as TUNING_OF_PRIORS
from app.engine.privacy.queries import Contribution
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit

# Counts and their copy through the pipe, then about a dozen vectors of the descent.
_BYTES_PER_CELL = 160


@dataclass(frozen=True, slots=True)
class Tuning:
    """Tuned numbers of `mst`. The fit keeps the defaults of `inference.estimation.fit`."""

    # Cells of the tree that public rows make: chosen for time and memory, not fitted.
    prior_cells: int = 250_000
    # Parts of the default budget: a third, a sixth and a half. McKenna, Miklau and Sheldon (2021)
    # give each step a third; a spanning tree needs less noise in its pairs than in its choice.
    one_way: float = 1.0
    selection: float = 0.5
    two_way: float = 1.5


TUNING = Tuning()


class Shares(Params):
    """How the budget is divided; only the proportions matter."""

    one_way: float = Field(
        TUNING.one_way, gt=0, le=1e6, description="One-way histograms, and the size."
    )
    selection: float = Field(TUNING.selection, gt=0, le=1e6, description="Choosing the tree.")
    two_way: float = Field(
        TUNING.two_way, gt=0, le=1e6, description="Histograms of the tree's edges."
    )


class MstParams(TableParams):
    shares: Shares = Field(
        default_factory=Shares,
        description="How the budget is divided, beside what bins, values and entities take.",
    )
    most_pair_cells: int = Field(
        1_000_000,
        ge=4,
        le=20_000_000,
        description="Pairs with more cells than this after merging are not measured.",
    )


class Mst(GraphicalMethod):
    name = "mst"
    title = "Maximum spanning tree of noisy two-way marginals"
    reference = "McKenna, Miklau and Sheldon (2021), Winning the NIST Contest"
    Params = MstParams
    example = Example(rows=10000)
    auto_rank = 20

    def auto_reason(self, columns: int, unit: PrivacyUnit, public: PublicFacts | None) -> str:
        del columns, unit, public
        return "`mst` measures a single tree of pairs, and so needs less memory and time"

    def prior_tree_cells(self, axes: Axes, params: MstParams) -> int:
        # Edges of the spanning tree are joined to it.
        return TUNING.prior_cells + _most_pair_cells(params, axes, is_public=True)

    def marginal_needs(self, case: Case, plan: PreparationPlan, params: MstParams) -> Needs:
        axes, columns = plan.axes, len(plan.axes.names)
        most = _most_pair_cells(params, axes, is_public=case.public is not None)
        pair_cells = _pair_cells(axes, most)
        measured = sum(pair_cells[: max(0, columns - 1)])
        cells = sum(axes.shape) + measured
        choosing = Step(
            selection_seconds(columns),
            f"choosing a tree over {columns} columns",
            "choose fewer columns",
        )
        counting = Question(
            max(sum(pair_cells), sum(axes.shape)),
            "/params/most_pair_cells",
            "lower it, choose fewer columns, or coarser `bins`",
        )
        needs = Needs(
            cells=measured,
            memory_bytes=cells * _BYTES_PER_CELL
            + counting_bytes(sum(pair_cells), max(pair_cells, default=0)),
            draws=drawn_cells(case, axes, params.public_entities, measured),
            # A child hands over its model, and in a round each reference for every other column.
            message_bytes=8 * max(cells, (columns - 1) * sum(axes.shape)),
            questions=(counting,),
            problems=tuple(step_faults([choosing], case.limits)),
        )
        if not columns:
            return needs
        budget = _weights(params, columns, case.public is not None).split(plan.budget.loss)
        errors = _errors(axes, plan.contribution, case.unit, budget, most)
        scores = prior_errors(case, axes, budget.prior, params.public_entities)
        return needs + plan.noise(errors, scores)

    def weights(
        self, table: PreparedTable, params: MstParams, public: PublicSource
    ) -> BudgetWeights:
        return _weights(params, len(table.axes.names), public.rows is not None)

    def prior_limits(self, run: TableRun, params: MstParams) -> PriorLimits:
        del params
        pair = min(TUNING.prior_cells, most_pair_cells(run.table.axes))
        return PriorLimits(TUNING.prior_cells, pair)

    def select_and_measure(self, run: TableRun, params: MstParams) -> MeasuredMarginals:
        """The edges of a spanning tree, measured for all that is left; the columns once more, where
        no pair can be measured."""
        run.progress(0.2, "choosing the tree")
        columns, unit, rule = run.columns, run.session.unit, run.table.contribution
        most = _most_pair_cells(params, run.table.axes, is_public=run.public.rows is not None)
        error = _edge_error(run.budget, rule, unit, len(columns.shape), most)
        edges = choose_tree(
            run.session,
            columns.merged,
            columns.counts,
            run.budget.selection,
            most_cells=most,
            noise_per_cell=expected_distance(error, run.table.budget.loss),
            prior=_tree_prior(run, most),
        )
        if len(columns.shape) < 2:
            return MeasuredMarginals((), FitSettings())
        run.progress(0.6, "measuring pairs")
        measured = run.measure(edges, run.left) if edges else run.measure_columns_again()
        return MeasuredMarginals(measured, FitSettings())


def _weights(params: MstParams, columns: int, has_public: bool) -> BudgetWeights:
    """No step that is not taken has a weight: one column has no pairs, two have no choice."""
    shares = params.shares
    prior = TUNING_OF_PRIORS.drift_share * shares.selection if has_public and columns > 1 else 0.0
    return BudgetWeights(
        one_way=shares.one_way,
        prior=prior,
        selection=shares.selection - prior if columns > 2 else 0.0,
        marginals=shares.two_way if columns > 1 else 0.0,
    )


def _edge_error(
    budget: TableBudget, rule: Contribution, unit: PrivacyUnit, columns: int, cells: int
) -> float:
    """Standard deviation of the noise in a cell of a measured pair of `cells` cells."""
    edge = budget.marginals.of_each(max(1, columns - 1))
    return expected_error(rule, cells, UnitBudget(unit, edge))


def _tree_prior(run: TableRun, most: int) -> TreePrior | None:
    if run.prior is None:
        return None
    expected = run.prior.references(pairs_within(run.columns, most))
    if expected is None:
        return None
    return TreePrior(expected, run.prior.cliques, TUNING.prior_cells + most)


def _most_pair_cells(params: MstParams, axes: Axes, *, is_public: bool) -> int:
    """With a public table each pair's reference is sent cell by cell."""
    most = params.most_pair_cells
    return min(most, most_pair_cells(axes)) if is_public else most


def _pair_cells(axes: Axes, most: int) -> list[int]:
    """The most cells that each pair can have, the largest first."""
    return sorted((min(a * b, most) for a, b in combinations(axes.shape, 2)), reverse=True)


def _errors(
    axes: Axes, contribution: Contribution, unit: PrivacyUnit, budget: TableBudget, most_cells: int
) -> tuple[float, ...]:
    """Noise in a cell of the finest marginals, then of every other question."""
    columns = len(axes.names)
    errors = one_way_errors(axes, contribution, UnitBudget(unit, budget.one_way))
    if columns > 1:
        errors = (_edge_error(budget, contribution, unit, columns, most_cells), *errors)
    if columns > 2:
        least = UnitBudget(unit, least_loss(budget.selection, columns))
        errors = (*errors, expected_score_error(least))
    return errors
