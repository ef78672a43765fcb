"""What a public table adds to the needs of a run, from public facts."""

from __future__ import annotations

from app.engine.columns.axes import Axes
from app.engine.method import Case, Needs, Problem
from app.engine.prior.distances import distance_errors
from app.engine.prior.entities.near_entities import entity_bytes, entity_cells, entity_problems
from app.engine.prior.entities.params import PublicEntityUse
from app.engine.prior.public_model import compared_cells, public_model_bytes, public_model_problems
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.unit_budget import UnitBudget


def prior_problems(case: Case, axes: Axes, entity_use: PublicEntityUse) -> tuple[Problem, ...]:
    """Why a public table is of no use to these columns, or its entities cannot be kept."""
    schema, unit, public = case.schema, case.unit, case.public
    problems = public_model_problems(schema, unit, public, axes.names, case.limits)
    return problems + entity_problems(unit, public, entity_use)


def prior_needs(case: Case, axes: Axes, entity_use: PublicEntityUse, tree_cells: int) -> Needs:
    """Memory of the public rows, the public model and its entities, and the largest message.

    `tree_cells`: the most cells of the public model's tree.
    """
    if case.public is None:
        return Needs()
    memory = public_model_bytes(case.public, len(axes.names), tree_cells)
    memory += entity_bytes(case.unit, case.public, entity_use, axes)
    return Needs(memory_bytes=memory, message_bytes=8 * max(compared_cells(axes), tree_cells))


def drawn_cells(case: Case, axes: Axes, entity_use: PublicEntityUse, measured: int) -> int:
    """The most cells drawn with noise: a run measures marginals of so many or, where public
    entities are kept, pairs of theirs."""
    return max(measured, entity_cells(case.unit, case.public, entity_use, axes))


def prior_errors(
    case: Case, axes: Axes, loss: PrivacyLoss, entity_use: PublicEntityUse
) -> tuple[float, ...]:
    """Noise in the distance of a pair from the public model; none without a public table."""
    if case.public is None:
        return ()
    return distance_errors(axes, case.public, UnitBudget(case.unit, loss), entity_use)
