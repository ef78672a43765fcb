"""How `mst`, `swift` and `aim` begin: cells and entities are bought, columns counted, rare cells
merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from app.engine.columns import one_way
from app.engine.columns.axes import Axes, Bins
from app.engine.columns.contribution import (
    ChosenRule,
    RuleForm,
    contribution_problems,
    expected_error,
    expected_errors,
)
from app.engine.columns.estimates import ColumnEstimates
from app.engine.columns.one_way import OneWayHistograms, measure_one_ways
from app.engine.columns.private_bins import (
    USUAL_BINS_SHARE,
    USUAL_VALUES_SHARE,
    USUAL_WITHIN_BINS,
    BinsShare,
    ValuesShare,
    WithinBins,
    plan_axes,
)
from app.engine.columns.resources import table_bytes
from app.engine.columns.table_size import SizeEstimate
from app.engine.constraints.structural_zeros import zeros_bytes
from app.engine.entities.contribution_choice import chosen_rule
from app.engine.entities.measurement import MeasuredEntities, plan_entities
from app.engine.entities.model import Entities
from app.engine.entities.params import EntityForm
from app.engine.graphical.table_model import TableModel
from app.engine.inference.model import GraphicalModel
from app.engine.method.base import Limits, Params, Preflight, Problem, Progress, Session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.public.rows import PublicRows
from app.engine.schema import PrivacyUnit, Schema

Weight = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
"""How much an error counts beside the others'."""


PublicEntityUse = Literal["auto", "keep", "group"]
"""What becomes of public entities beside a model of rows."""


class PreparationParams(Params):
    """What forms say of cells and entities."""

    columns: tuple[str, ...] | None = Field(
        None, description="Columns of the synthetic table; all columns if omitted."
    )
    bins: dict[str, Bins] = Field(
        default_factory=dict, description="Bins of a column, in place of its dictionary's."
    )
    bins_share: BinsShare = USUAL_BINS_SHARE
    within_bins: WithinBins = USUAL_WITHIN_BINS
    values_share: ValuesShare = USUAL_VALUES_SHARE
    contribution: RuleForm = Field(
        default_factory=ChosenRule,
        description="How much one privacy unit counts in each histogram. "
        "Scores and selections count rows; where a public dataset has entities too, scores "
        "count distinct cells.",
    )
    entities: EntityForm = Field(
        default_factory=EntityForm,
        description="How rows are made entities, on an entity unit.",
    )


class TableParams(PreparationParams):
    """What the forms of the three have in common."""

    rare_below: float = Field(
        2.0,
        ge=0,
        le=1000,
        description="Cells below this many standard errors are merged before marginals are "
        "counted.",
    )
    public_entities: PublicEntityUse = Field(
        "auto",
        description="On an entity unit beside a public dataset with entities: `keep` weighs its "
        "entities with all their rows, `group` makes rows of a model and groups them, `auto` "
        "takes what noisy distances tell to be nearer.",
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known before anything is bought: `axes` have as many cells as can come out.

    `contribution` is the rule of the largest noise that may be chosen, `loss` the least that is
    left for counting; `draws` are the noisy numbers of what is
    bought, `memory_bytes` what any model takes beside its own tables. Under the rule of the
    smallest noise that may be chosen, errors are `least_error` times as large.
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


def forecast(
    schema: Schema, unit: PrivacyUnit, params: PreparationParams, loss: PrivacyLoss, limits: Limits
) -> Plan:
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
    return Plan(
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
    """The cells and entities that were bought, how units count, and what is left to spend."""

    axes: Axes
    contribution: Contribution
    loss: PrivacyLoss
    bought: MeasuredEntities | None = None
    counted: SizeEstimate | None = None

    @property
    def entities(self) -> Entities | None:
        return None if self.bought is None else self.bought.entities

    @property
    def known(self) -> SizeEstimate | None:
        """What is known of the size, by the entities or by having been counted."""
        return self.counted if self.bought is None else self.bought.size


def start(session: Session, params: PreparationParams, progress: Progress) -> PreparedTable:
    plan = plan_axes(
        session.schema, session.unit, params, session.allowance, within_bins=params.within_bins
    )
    progress(0.01, "buying cells")
    axes = plan.measure(session)
    bought = plan_entities(axes, session.unit, params.entities, plan.left(session)).measure(session)
    left = plan.left(session)
    return PreparedTable(
        axes, _contribution(params, axes, bought, session.unit, left), left, bought
    )


def _contribution(
    params: PreparationParams,
    axes: Axes,
    bought: MeasuredEntities | None,
    unit: PrivacyUnit,
    loss: PrivacyLoss,
) -> Contribution:
    if params.contribution.rule != "auto":
        return params.contribution.contribution()
    if bought is None:
        return Contribution()
    return chosen_rule(bought.entities, bought.size.entities, len(axes.names), unit, loss)


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """The noisy histogram of each column, and what it tells."""

    measured: OneWayHistograms
    columns: ColumnEstimates
    bought: MeasuredEntities | None = None

    def model(self, method: str, graph: GraphicalModel) -> TableModel:
        """A graph over the merged cells, as the model of a table."""
        columns = self.columns
        return TableModel(
            method,
            columns.axes,
            columns.compressions,
            graph,
            columns.size,
            columns.densities,
            None if self.bought is None else self.bought.entities,
        )


def measure_columns(
    session: Session,
    prepared: PreparedTable,
    params: TableParams,
    loss: PrivacyLoss,
    progress: Progress,
    public: PublicRows | None = None,
) -> MeasuredTable:
    progress(0.02, "counting columns")
    measured = measure_one_ways(session, prepared.axes, prepared.contribution, loss, prepared.known)
    columns = ColumnEstimates.of(prepared.axes, session.schema, measured, params.rare_below, public)
    return MeasuredTable(measured, columns, prepared.bought)


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
