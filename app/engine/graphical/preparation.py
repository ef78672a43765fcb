"""How methods on a junction tree prepare a table: bins and entities are measured, then columns.

`plan_preparation` says beforehand what that can need, from public facts alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.columns import one_way
from app.engine.columns.axes import Axes
from app.engine.columns.contribution import (
    contribution_problems,
    expected_error,
    expected_errors,
)
from app.engine.columns.private_bins import plan_axes
from app.engine.columns.resources import table_bytes
from app.engine.columns.table_size import SizeEstimate
from app.engine.constraints.structural_zeros import zeros_bytes
from app.engine.entities.contribution_choice import chosen_rule
from app.engine.entities.measurement import MeasuredEntities, plan_entities
from app.engine.graphical.params import PreparationParams
from app.engine.method.base import Limits, Preflight, Problem, Progress, Session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.schema import PrivacyUnit, Schema


@dataclass(frozen=True, slots=True)
class PreparationPlan:
    """What is known before anything is measured: `axes` have as many cells as can come out.

    `contribution` is the rule of the largest noise that may be chosen, `loss` the least that is
    left for counting columns and marginals; `draws` are the noisy numbers of bins and entities,
    `memory_bytes` what any model takes beside its own tables. Under the rule of the smallest noise
    that may be chosen, errors are `least_error` times as large.
    """

    axes: Axes
    contribution: Contribution
    loss: PrivacyLoss
    draws: int
    memory_bytes: int
    problems: tuple[Problem, ...]
    least_error: float

    def preflight(
        self, cells: int, memory_bytes: int, error: float, problems: tuple[Problem, ...]
    ) -> Preflight:
        """With an error under `contribution`, and what it may come down to."""
        return Preflight(cells, memory_bytes, error, problems, error * self.least_error)


def plan_preparation(
    schema: Schema, unit: PrivacyUnit, params: PreparationParams, loss: PrivacyLoss, limits: Limits
) -> PreparationPlan:
    plan = plan_axes(schema, unit, params, loss, within_bins=params.within_bins)
    entities = plan_entities(plan.axes, unit, params.entities, plan.rest)
    form = params.contribution
    contribution = form.widest(unit, entities.rest) if form.rule == "auto" else form.contribution()
    problems = (
        *plan.problems,
        *entities.problems,
        *contribution_problems(contribution, unit, entities.rest),
    )
    memory = table_bytes(len(plan.axes.names), limits) + zeros_bytes(schema)
    memory += entities.memory_bytes(limits)
    least = form.narrowest(unit, entities.rest) if form.rule == "auto" else contribution
    one, most = (expected_error(rule, unit, 2**62, entities.rest) for rule in (least, contribution))
    return PreparationPlan(
        plan.axes,
        contribution,
        entities.rest,
        plan.draws + entities.draws,
        memory,
        problems,
        one / most if most else 1.0,
    )


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """The columns' cells, what was measured of entities (None: nothing), how units count, and the
    loss that is left. `counted` is a noisy number of rows, where it was asked by itself."""

    axes: Axes
    contribution: Contribution
    loss: PrivacyLoss
    entities: MeasuredEntities | None = None
    counted: SizeEstimate | None = None

    @property
    def size(self) -> SizeEstimate | None:
        """What is known of the size, by the entities or by having been counted."""
        return self.counted if self.entities is None else self.entities.size


def prepare(session: Session, params: PreparationParams, progress: Progress) -> PreparedTable:
    """Measures values, bins and entities, where there are any to measure."""
    plan = plan_axes(
        session.schema, session.unit, params, session.allowance, within_bins=params.within_bins
    )
    progress(0.01, "measuring bins and entities")
    axes = plan.measure(session)
    entities = plan_entities(axes, session.unit, params.entities, plan.left(session)).measure(
        session
    )
    left = plan.left(session)
    rule = _contribution(params, axes, entities, session.unit, left)
    return PreparedTable(axes, rule, left, entities)


def _contribution(
    params: PreparationParams,
    axes: Axes,
    measured: MeasuredEntities | None,
    unit: PrivacyUnit,
    loss: PrivacyLoss,
) -> Contribution:
    if params.contribution.rule != "auto":
        return params.contribution.contribution()
    if measured is None:
        return Contribution()
    return chosen_rule(measured.entities, measured.size.entities, len(axes.names), unit, loss)


def one_way_errors(
    axes: Axes, contribution: Contribution, unit: PrivacyUnit, loss: PrivacyLoss
) -> tuple[float, ...]:
    """Standard deviations of the noise in a cell of each histogram, in counts."""
    return expected_errors(
        one_way.questions(axes, contribution, unit),
        one_way.shares(axes, contribution, unit, loss),
        unit,
        loss,
    )
