"""What a public table adds to the needs of a run, from public facts."""

from __future__ import annotations

from dataclasses import dataclass

from app.engine.columns.axes import Axes
from app.engine.method import Case, Problem
from app.engine.prior.distances import distance_errors
from app.engine.prior.entities.near_entities import entity_bytes, entity_cells, entity_problems
from app.engine.prior.entities.params import PublicEntityUse
from app.engine.prior.public_model import (
    compared_cells,
    public_model_bytes,
    public_model_problems,
)
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.unit_budget import UnitBudget


def prior_problems(case: Case, axes: Axes, entity_use: PublicEntityUse) -> tuple[Problem, ...]:
    """Why a public table is of no use to these columns, or its entities cannot be kept."""
    schema, unit, public = case.schema, case.unit, case.public
    problems = public_model_problems(schema, unit, public, axes.names, case.limits)
    return problems + entity_problems(unit, public, entity_use)


@dataclass(frozen=True, slots=True)
class PriorNeeds:
    """memory_bytes: of the public rows, the public model and its entities. entity_cells: the most
    that are drawn with noise if entities are kept. sent_cells: the most of one message. All are 0
    without a public table."""

    memory_bytes: int
    entity_cells: int
    sent_cells: int

    @classmethod
    def of(cls, case: Case, axes: Axes, entity_use: PublicEntityUse, tree_cells: int) -> PriorNeeds:
        """`tree_cells`: the most cells of the public model's tree."""
        if case.public is None:
            return cls(0, 0, 0)
        memory = public_model_bytes(case.public, len(axes.names), tree_cells)
        memory += entity_bytes(case.unit, case.public, entity_use, axes)
        drawn = entity_cells(case.unit, case.public, entity_use, axes)
        return cls(memory, drawn, max(compared_cells(axes), tree_cells))


def prior_errors(
    case: Case, axes: Axes, loss: PrivacyLoss, entity_use: PublicEntityUse
) -> tuple[float, ...]:
    """Noise in the distance of a pair from the public model; none without a public table."""
    if case.public is None:
        return ()
    return distance_errors(axes, case.public, UnitBudget(case.unit, loss), entity_use)
