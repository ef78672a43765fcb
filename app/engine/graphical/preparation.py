"""How methods on a junction tree prepare a table: bins and entities are measured, then columns.

`plan_preparation` says beforehand what that can need, from public facts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.columns import one_way
from app.engine.columns.axes import Axes
from app.engine.columns.contribution import (
    contribution_problems,
    expected_error,
    expected_errors,
    noise_scale,
)
from app.engine.columns.private_bins import plan_axes
from app.engine.columns.table_size import SizeEstimate
from app.engine.constraints.structural_zeros import zeros_bytes
from app.engine.entities.contribution_choice import chosen_rule
from app.engine.entities.measurement import MeasuredEntities, plan_entities
from app.engine.graphical.params import PreparationParams
from app.engine.method import Case, Needs, Progress, Session
from app.engine.privacy.queries import Contribution
from app.engine.privacy.unit_budget import UnitBudget


@dataclass(frozen=True, slots=True)
class PreparationPlan:
    """What is known before anything is measured: `axes` have as many cells as can come out.

    `contribution` is the rule of the largest noise that may be chosen, `budget` the least that is
    left for counting columns and marginals; `needs` are those of bins and entities, of counting
    columns, and of the first sample. Under the rule of the smallest noise that may be chosen,
    errors are `least_error` times as large.
    """

    axes: Axes
    contribution: Contribution
    budget: UnitBudget
    needs: Needs
    least_error: float

    def noise(self, errors: Sequence[float], scores: Sequence[float] = ()) -> Needs:
        """Errors under `contribution`, of which the first is stated, and of noisy distances."""
        return Needs(
            noise_scale=noise_scale(errors, self.contribution, scores),
            expected_error=errors[0],
            least_expected_error=errors[0] * self.least_error,
        )


def plan_preparation(case: Case, params: PreparationParams) -> PreparationPlan:
    plan = plan_axes(case.schema, params, case.budget, within_bins=params.within_bins)
    entities = plan_entities(plan.axes, params.entities, plan.rest)
    form = params.contribution
    contribution = form.widest(entities.rest) if form.rule == "auto" else form.contribution()
    problems = (
        *plan.problems,
        *entities.problems,
        *contribution_problems(contribution, entities.rest),
    )
    least = form.narrowest(entities.rest) if form.rule == "auto" else contribution
    # Of a histogram so large that its number of cells limits no rule.
    one, most = (expected_error(rule, 2**62, entities.rest) for rule in (least, contribution))
    columns = sum(plan.axes.shape)
    needs = Needs.of_table(len(plan.axes.names), case.limits) + Needs(
        cells=columns,
        memory_bytes=zeros_bytes(case.schema) + entities.memory_bytes(case.limits),
        draws=columns + plan.draws + entities.draws,
        header_cells=plan.axes.header_cells,
        problems=problems,
    )
    return PreparationPlan(
        plan.axes, contribution, entities.rest, needs, one / most if most else 1.0
    )


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """The columns' cells, what was measured of entities (None: nothing), how units count, and what
    they may still cost. `counted` is a noisy number of rows, where it was asked by itself."""

    axes: Axes
    contribution: Contribution
    budget: UnitBudget
    entities: MeasuredEntities | None = None
    counted: SizeEstimate | None = None

    @property
    def size(self) -> SizeEstimate | None:
        """What is known of the size, by the entities or by having been counted."""
        return self.counted if self.entities is None else self.entities.size


def prepare(session: Session, params: PreparationParams, progress: Progress) -> PreparedTable:
    """Measures values, bins and entities, where there are any to measure."""
    allowance = UnitBudget(session.unit, session.allowance)
    plan = plan_axes(session.schema, params, allowance, within_bins=params.within_bins)
    progress(0.01, "measuring bins and entities")
    axes = plan.measure(session)
    # Entities before columns: what is measured of them decides how a unit counts in the columns.
    entities = None
    if session.unit.repeats:
        entities = plan_entities(axes, params.entities, plan.left(session)).measure(session)
    left = plan.left(session)
    rule = _contribution(params, axes, entities, left)
    return PreparedTable(axes, rule, left, entities)


def _contribution(
    params: PreparationParams, axes: Axes, measured: MeasuredEntities | None, budget: UnitBudget
) -> Contribution:
    if params.contribution.rule != "auto":
        return params.contribution.contribution()
    if measured is None:
        return Contribution()
    return chosen_rule(measured.entities, measured.size.entities, len(axes.names), budget)


def one_way_errors(axes: Axes, contribution: Contribution, budget: UnitBudget) -> tuple[float, ...]:
    """Standard deviations of the noise in a cell of each histogram, in counts."""
    return expected_errors(
        one_way.questions(axes, contribution, budget.unit),
        one_way.weights(axes, contribution, budget),
        budget,
    )
