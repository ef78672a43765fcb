"""What choosing and measuring marginals can need at most, from public facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from app.engine.columns.axes import Axes, not_chosen_problems
from app.engine.columns.contribution import expected_error, expected_score_error
from app.engine.graphical.preparation import PreparationPlan, one_way_errors
from app.engine.json_pointer import escaped
from app.engine.method import Case, Needs, Problem, Step
from app.engine.method.needs import counting_bytes
from app.engine.prior.drift import drawn_cells, prior_errors
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.scores import expected_distance_errors
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.aim import bounds
from app.engine.synthesizers.aim.budget import (
    Schedule,
    budget_weights,
    expected_winners,
    first_schedule,
    usual_shares,
)
from app.engine.synthesizers.aim.candidates import MOST_MEASURED_CELLS, MOST_OFFERED_CELLS
from app.engine.synthesizers.aim.params import AimParams, workload_of
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


def marginal_needs(case: Case, plan: PreparationPlan, params: AimParams) -> Needs:
    axes, has_public = plan.axes, case.public is not None
    workload = workload_of(axes, params)
    forecast = _Forecast.of(axes, workload, params.most_cells)
    shares = params.shares or usual_shares(plan.budget, axes, plan.contribution)
    budget = budget_weights(shares, workload, has_public=has_public).split(plan.budget.loss)
    schedule = first_schedule(budget, shares, len(axes.names), has_public=has_public)
    errors = one_way_errors(axes, plan.contribution, UnitBudget(case.unit, budget.one_way))
    errors = _errors(errors, plan.contribution, case.unit, params.most_cells, schedule, workload)
    scores = _bound_errors(axes, case.unit, budget.reserve, workload)
    if budget.prior.amount:
        scores += prior_errors(case, axes, budget.prior, params.public_entities)
    needs = Needs(
        cells=forecast.measured,
        memory_bytes=forecast.memory_bytes,
        draws=drawn_cells(case, axes, params.public_entities, forecast.measured),
        message_bytes=8 * max(params.most_cells, forecast.offered),
        steps=(_choosing(axes, workload),),
    )
    return needs + plan.noise(errors, scores)


def form_problems(axes: Axes, params: AimParams) -> tuple[Problem, ...]:
    named = [] if params.target is None else [("/params/target", params.target)]
    named += [(f"/params/column_weights/{escaped(name)}", name) for name in params.column_weights]
    return (
        *not_chosen_problems(named, axes),
        *_marginal_problems(axes, params),
        *_size_problems(axes, params),
    )


def _marginal_problems(axes: Axes, params: AimParams) -> tuple[Problem, ...]:
    problems: list[Problem] = []
    for number, marginal in enumerate(params.workload or ()):
        pointer = f"/params/workload/{number}/columns"
        problems += not_chosen_problems(((pointer, name) for name in marginal.columns), axes)
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
            candidates = len(workload_of(axes, params).closure)
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


def _choosing(axes: Axes, workload: Workload) -> Step:
    looks = expected_winners(len(axes.names)) * len(workload.candidates)
    return Step(
        looks * _SECONDS_PER_LOOK,
        f"choosing among {len(workload.candidates)} marginals",
        "choose fewer columns, a lower `degree`, or a smaller `workload`",
        "/params",
    )


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


@dataclass(frozen=True, slots=True)
class _Forecast:
    """The most cells that are offered at once, and measured with noise beside the columns."""

    offered: int
    measured: int
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
        own = bounds.bounded(axes, workload.closure)
        at_once = min(sum(_sizes(own, shape)), MOST_OFFERED_CELLS)
        memory = (
            _BYTES_PER_OFFERED_CELL * max(offered, at_once)
            + _BYTES_PER_EXPECTED_CELL * max((*_sizes(own, shape), most_cells))
            + _BYTES_PER_TREE_CELL * most_cells
            + _BYTES_PER_MEASURED_CELL * (sum(axes.shape) + most_measured)
            + counting_bytes(max(offered, at_once))
        )
        return cls(offered, most_measured, memory)


def _sizes(cliques: Sequence[Clique], shape: Mapping[str, int]) -> list[int]:
    return [prod(shape[name] for name in clique) for clique in cliques]
