"""The steps of `aim`, and their forecast from public facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from app.engine.columns import one_way
from app.engine.columns.axes import Axes
from app.engine.columns.contribution import (
    expected_error,
    expected_score_error,
    noise_problems,
)
from app.engine.columns.estimates import rows_per_count
from app.engine.columns.resources import counting_bytes, message_problems, run_problems
from app.engine.graphical.method import FittedTable, GraphicalMethod
from app.engine.graphical.preparation import PreparedTable, one_way_errors, plan_preparation
from app.engine.graphical.run import (
    BudgetWeights,
    MeasuredMarginals,
    PublicSource,
    TableBudget,
    TableRun,
)
from app.engine.graphical.table_model import TableModel
from app.engine.json_pointer import escaped
from app.engine.method import Case, Example, Limits, Preflight, Problem, PublicFacts
from app.engine.prior.drift import PriorLimits
from app.engine.prior.needs import PriorNeeds, prior_errors, prior_problems
from app.engine.prior.public_model import (
    Pair,
    most_pair_cells,
)
from app.engine.prior.tuning import TUNING as TUNING_OF_PRIORS
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.scores import expected_distance_errors
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aim import bounds
from app.engine.synthesizers.aim.bounded_model import BoundedModel, EntityMarginals
from app.engine.synthesizers.aim.candidates import (
    MOST_MEASURED_CELLS,
    MOST_OFFERED_CELLS,
    CandidatePool,
)
from app.engine.synthesizers.aim.params import AimParams, Shares
from app.engine.synthesizers.aim.rounds import LAST_FIT, ROUND_FIT, Rounds
from app.engine.synthesizers.aim.schedule import Schedule, expected_winners
from app.engine.synthesizers.aim.tuning import TUNING
from app.engine.synthesizers.aim.workload import (
    MOST_CANDIDATES,
    Clique,
    Workload,
    candidates_of_degree,
    usual_degree,
)

# A candidate's share of a selection: its reference, its place in the tree, and its score.
_SECONDS_PER_LOOK = 2.5e-4

# A reference on its grid, and the message at both ends.
_BYTES_PER_OFFERED_CELL = 16
# Shares of one marginal, once more in the cells of the dictionary, and what they are made of.
_BYTES_PER_EXPECTED_CELL = 32
# Shares and logarithms of a tree and of its successor, and what is carried between cliques.
_BYTES_PER_TREE_CELL = 400
# Values, the vectors of the descent with its memory, and the counts in the kernel.
_BYTES_PER_MEASURED_CELL = 300


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

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: AimParams,
        loss: PrivacyLoss,
        public: PublicFacts | None,
        limits: Limits,
    ) -> Preflight:
        case = Case(schema, unit, loss, public, limits)
        plan = plan_preparation(case, params)
        axes, problems, contribution = plan.axes, plan.problems, plan.contribution
        problems += _workload_problems(axes, params)
        problems += prior_problems(case, axes, params.public_entities)
        if problems:
            return Preflight(sum(axes.shape), 0, 0.0, problems)
        workload = _workload(axes, params)
        forecast = _Forecast.of(axes, workload, params.most_cells)
        memory = forecast.memory_bytes + plan.memory_bytes
        prior = PriorNeeds.of(case, axes, params.public_entities, _prior_cells(params))
        memory += prior.memory_bytes
        sent = max(params.most_cells, forecast.offered, prior.sent_cells)
        problems += message_problems(axes, 8 * sent)
        problems += run_problems(
            memory,
            max(forecast.drawn, sum(axes.shape) + prior.entity_cells) + plan.draws,
            limits,
            len(axes.names),
        )
        problems += _choosing_problems(axes, workload, limits)
        shares = params.shares or _usual_shares(plan.budget, axes, contribution)
        budget = _weights(shares, workload, has_public=public is not None).split(plan.budget.loss)
        schedule = _schedule(budget, shares, len(axes.names), has_public=public is not None)
        errors = one_way_errors(axes, contribution, UnitBudget(unit, budget.one_way))
        errors = _errors(errors, contribution, unit, params.most_cells, schedule, workload)
        scores = _bound_errors(axes, unit, budget.reserve, workload)
        if budget.prior.amount:
            scores += prior_errors(case, axes, budget.prior, params.public_entities)
        problems += noise_problems(errors, contribution, scores)
        return plan.preflight(forecast.drawn, memory, errors[0], problems)

    def weights(
        self, table: PreparedTable, params: AimParams, public: PublicSource
    ) -> BudgetWeights:
        shares = _shares(table, params)
        return _weights(shares, _workload(table.axes, params), has_public=public.rows is not None)

    def prior_limits(self, run: TableRun, params: AimParams) -> PriorLimits:
        tree = _prior_cells(params)
        return PriorLimits(tree, min(tree, most_pair_cells(run.table.axes)))

    def pair_weight(self, run: TableRun, params: AimParams) -> Callable[[Pair], float]:
        return _workload(run.table.axes, params).weight

    def select_and_measure(self, run: TableRun, params: AimParams) -> MeasuredMarginals:
        columns, workload = run.columns, _workload(run.table.axes, params)
        if not workload.candidates:
            return MeasuredMarginals((), LAST_FIT, start=run.fit((), ROUND_FIT))
        shares = _shares(run.table, params)
        pool = CandidatePool(
            columns.merged, workload, columns.total, params.most_cells, run.prior_cliques
        )
        one_ways = columns.measured
        return Rounds(
            run,
            pool,
            rows_per_count(one_ways.answers[0], one_ways.size),
            _schedule(
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
        cliques = bounds.bounded(axes, _workload(axes, params).closure)
        return BoundedModel(
            model, bounds.measured_bounds(run.session, marginals, cliques, rows_error)
        )


def _prior_cells(params: AimParams) -> int:
    """The most cells of the tree that public rows make: less than the first round leaves."""
    return params.most_cells // TUNING.prior_part


def _workload(axes: Axes, params: AimParams) -> Workload:
    if params.workload is None:
        degree = params.degree or usual_degree(len(axes.names))
        return Workload.of_degree(axes.names, degree, params.column_weights, params.target)
    return Workload.of(
        axes.names,
        [each.columns for each in params.workload],
        [each.weight for each in params.workload],
        params.column_weights,
        params.target,
    )


def _workload_problems(axes: Axes, params: AimParams) -> tuple[Problem, ...]:
    return (
        *_unknown("/params/target", [] if params.target is None else [params.target], axes),
        *(
            problem
            for name in params.column_weights
            for problem in _unknown(f"/params/column_weights/{escaped(name)}", [name], axes)
        ),
        *_marginal_problems(axes, params),
        *_size_problems(axes, params),
    )


def _unknown(pointer: str, names: Sequence[str], axes: Axes) -> tuple[Problem, ...]:
    return tuple(
        Problem(pointer, f"`{name}` is not among the chosen columns", "name a chosen column")
        for name in names
        if name not in axes.groupings
    )


def _marginal_problems(axes: Axes, params: AimParams) -> tuple[Problem, ...]:
    problems: list[Problem] = []
    for number, marginal in enumerate(params.workload or ()):
        pointer = f"/params/workload/{number}/columns"
        problems += _unknown(pointer, marginal.columns, axes)
        if len(set(marginal.columns)) != len(marginal.columns):
            problems.append(Problem(pointer, "a column is named twice", "name each column once"))
    if params.workload is not None and params.degree is not None:
        problems.append(
            Problem(
                "/params/degree",
                "a workload is named already",
                "leave out either `degree` or `workload`",
            )
        )
    return tuple(problems)


def _size_problems(axes: Axes, params: AimParams) -> tuple[Problem, ...]:
    """More candidates than are offered; of a named workload no more than this many are counted."""
    if params.workload is not None:
        candidates, pointer = sum(2 ** len(m.columns) for m in params.workload), "/params/workload"
        if candidates > MOST_CANDIDATES:
            candidates = len(_workload(axes, params).closure)
    else:
        degree = params.degree or usual_degree(len(axes.names))
        candidates = candidates_of_degree(len(axes.names), degree)
        pointer = "/params/columns" if params.degree is None else "/params/degree"
    if candidates <= MOST_CANDIDATES:
        return ()
    return (
        Problem(
            pointer,
            f"{candidates} marginals would be offered; {MOST_CANDIDATES} are the most",
            "choose fewer columns, a lower `degree`, or a smaller `workload`",
        ),
    )


def _choosing_problems(axes: Axes, workload: Workload, limits: Limits) -> tuple[Problem, ...]:
    looks = expected_winners(len(axes.names)) * len(workload.candidates)
    seconds = looks * _SECONDS_PER_LOOK
    if seconds <= limits.time_s / 2:
        return ()
    return (
        Problem(
            "/params",
            f"choosing among {len(workload.candidates)} marginals would take about "
            f"{round(seconds)} seconds",
            "choose fewer columns, a lower `degree`, or a smaller `workload`",
        ),
    )


def _weights(shares: Shares, workload: Workload, *, has_public: bool) -> BudgetWeights:
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


def _schedule(budget: TableBudget, shares: Shares, columns: int, *, has_public: bool) -> Schedule:
    _, selection = _selection(shares, has_public)
    return Schedule.start(budget.marginals, selection / (selection + shares.marginals), columns)


def _selection(shares: Shares, has_public: bool) -> tuple[float, float]:
    """What of the weight of selections goes to comparing a public model, and what is left."""
    prior = TUNING_OF_PRIORS.drift_share * shares.selection if has_public else 0.0
    return prior, shares.selection - prior


def _errors(
    one_way: tuple[float, ...],
    contribution: Contribution,
    unit: PrivacyUnit,
    most_cells: int,
    schedule: Schedule,
    workload: Workload,
) -> tuple[float, ...]:
    """Noise in a cell of a marginal of the first round, then of columns and choices."""
    found = one_way
    if workload.candidates:
        found = (
            expected_error(contribution, most_cells, UnitBudget(unit, schedule.measure)),
            *found,
        )
    if len(workload.candidates) > 1:
        found = (*found, expected_score_error(UnitBudget(unit, schedule.select)))
    return found


def _bound_errors(
    axes: Axes, unit: PrivacyUnit, loss: PrivacyLoss, workload: Workload
) -> tuple[float, ...]:
    """Noise in the distance of a bounded marginal, if any is bounded."""
    if not loss.amount:
        return ()
    groupings = axes.groupings
    counts = [
        Count(clique, {name: groupings[name] for name in clique})
        for clique in bounds.bounded(axes, workload.closure)
    ]
    return (max(expected_distance_errors(counts, [1.0] * len(counts), UnitBudget(unit, loss))),)


def _shares(table: PreparedTable, params: AimParams) -> Shares:
    return params.shares or _usual_shares(table.budget, table.axes, table.contribution)


def _usual_shares(budget: UnitBudget, axes: Axes, contribution: Contribution) -> Shares:
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


@dataclass(frozen=True, slots=True)
class _Forecast:
    """The most cells that are offered at once, held by the tree, and drawn with noise."""

    offered: int
    bounded: int
    drawn: int
    memory_bytes: int

    @classmethod
    def of(cls, axes: Axes, workload: Workload, most_cells: int) -> _Forecast:
        shape = dict(zip(axes.names, axes.shape, strict=True))
        sizes = sorted(_sizes(workload.candidates, shape))
        offered = min(sum(sizes), MOST_OFFERED_CELLS)
        most_measured = min(
            MOST_MEASURED_CELLS,
            expected_winners(len(axes.names))
            * max((size for size in sizes if size <= most_cells), default=0),
        )
        drawn = sum(axes.shape) + most_measured
        own = bounds.bounded(axes, workload.closure)
        at_once = min(sum(_sizes(own, shape)), MOST_OFFERED_CELLS)
        memory = (
            _BYTES_PER_OFFERED_CELL * max(offered, at_once)
            + _BYTES_PER_EXPECTED_CELL * max((*_sizes(own, shape), most_cells))
            + _BYTES_PER_TREE_CELL * most_cells
            + _BYTES_PER_MEASURED_CELL * drawn
            + counting_bytes(max(offered, at_once))
        )
        return cls(offered, at_once, drawn, memory)


def _sizes(cliques: Sequence[Clique], shape: Mapping[str, int]) -> list[int]:
    return [prod(shape[name] for name in clique) for clique in cliques]
