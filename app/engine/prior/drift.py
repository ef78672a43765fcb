"""Whether dependence has drifted since a public table was made, and where a model starts then.

Pairs of columns are compared with the public model and with independence (`distances`). A pair of
the model's tree that is nearer to independence is taken out, and all are if the pairs together
are: what is left is not further from the truth than no public model at all, but for the noise of
these distances. Public entities take the place of a model of rows where they are nearer.

`prior_problems` and `prior_needs` say beforehand what that can need, from public facts alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from app.engine.columns.axes import Axes
from app.engine.columns.estimates import ColumnEstimates
from app.engine.entities.measurement import MeasuredEntities
from app.engine.inference.measurements import AxisNames
from app.engine.inference.prior import Factor
from app.engine.method import Case, Needs, Problem, Session
from app.engine.prior.distances import (
    PairDistances,
    distance_errors,
    distance_rule,
    independent_counts,
    pair_distances,
)
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.prior.entities.near_entities import (
    WeightedEntities,
    entity_bytes,
    entity_cells,
    entity_problems,
    weighted_entities,
)
from app.engine.prior.entities.params import PublicEntityUse
from app.engine.prior.public_model import (
    Pair,
    PublicModel,
    compared_cells,
    pairs_within,
    public_model_bytes,
    public_model_problems,
)
from app.engine.prior.tuning import TUNING
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import GridReference
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.public.rows import PublicRows
from app.engine.table import PublicTable


@dataclass(frozen=True, slots=True)
class PriorLimits:
    """The most cells of the junction tree that public rows make, and of a pair that is compared."""

    tree: int
    pair: int


@dataclass(frozen=True)
class PublicPrior:
    """What a fit starts from: the public model without the pairs that have drifted (None where
    all have), and the distances by which that was judged from the `compared` model."""

    model: PublicModel | None
    compared: PublicModel
    distances: tuple[PairDistances, ...]

    @property
    def cliques(self) -> tuple[AxisNames, ...]:
        return () if self.model is None else self.model.cliques

    @property
    def factors(self) -> tuple[Factor, ...] | None:
        """The base measure of the fit; None stands for independent columns."""
        return None if self.model is None else self.model.factors

    def references(self, pairs: Sequence[Pair]) -> dict[Pair, GridReference] | None:
        """Rows that the model expects in each cell; None where it is independent columns."""
        return None if self.model is None else self.model.references(pairs)

    @cached_property
    def gains(self) -> dict[Pair, float]:
        """How far each compared pair is from the model, in rows, at the lower end of what noise
        allows.

        If pairs were taken out since, the distance is that from the nearer one of what was
        compared.
        """
        if self.model is None:
            return {each.pair: each.from_independence for each in self.distances}
        total = self.compared.cells.columns.total
        pairs = [each.pair for each in self.distances]
        found = {}
        for each, table, old in zip(
            self.distances, self.model.marginals(pairs), self.compared.marginals(pairs), strict=True
        ):
            to_old = float(np.abs(table - old).sum())
            product = independent_counts(self.compared, each.pair)
            to_product = float(np.abs(total * table - product).sum()) / total
            nearer = each.from_model if to_old <= to_product else each.from_independence
            found[each.pair] = nearer - TUNING.caution * each.error
        return found


@dataclass(frozen=True)
class NearEntities:
    """Public entities that are nearer to the truth than the public model is, and how far they are
    off in each pair, as a share of all rows."""

    entities: WeightedEntities
    distances: Mapping[Pair, float]

    def model(
        self, session: Session, left: PrivacyLoss, method: str, weight: Callable[[Pair], float]
    ) -> PublicReweightedModel:
        """The model of them, for what is left but its delta; `weight` is how much the error of a
        pair counts."""
        loss = PrivacyLoss(left.kind, left.amount)
        return replace(self.entities.measured(session, self.distances, loss, weight), method=method)


def public_prior(
    session: Session,
    columns: ColumnEstimates,
    measured_entities: MeasuredEntities | None,
    public: PublicTable,
    rows: PublicRows,
    loss: PrivacyLoss,
    limits: PriorLimits,
    *,
    entity_use: PublicEntityUse,
    seed: int,
) -> PublicPrior | NearEntities | None:
    """The public model without what seems to have drifted, or the entities if they are nearer.

    All of the loss goes to comparing. None where there is no pair to compare. `rows` are those of
    `public` that fit.
    """
    pairs = pairs_within(columns, limits.pair)
    if not pairs or not loss.amount:
        return None
    entities = weighted_entities(
        session, columns, measured_entities, rows, entity_use, public=public, seed=seed
    )
    model = PublicModel.of(rows, session.schema, columns, limits.tree, limits.pair)
    rule = distance_rule(session.unit, public)
    distances = pair_distances(session, model, pairs, rule, loss, entities)
    near = near_entities(entities, distances, entity_use)
    return near or PublicPrior(without_drifted_pairs(model, distances), model, distances)


def without_drifted_pairs(
    model: PublicModel, distances: Sequence[PairDistances]
) -> PublicModel | None:
    """The model without the pairs that seem to have drifted; none if all pairs together have."""
    dependent = [each for each in distances if each.model_dependence > 0]
    if not model.pairs or (dependent and _has_drifted(dependent)):
        return None
    return model.without([each.pair for each in dependent if _has_drifted([each])])


def _has_drifted(distances: Sequence[PairDistances]) -> bool:
    """Whether the model is further from the truth than independence is, as far as noise allows to
    say."""
    surplus = math.fsum(each.from_model - each.from_independence for each in distances)
    dependence = math.fsum(each.model_dependence for each in distances)
    return _posterior_is_positive(surplus, dependence, distances)


def _posterior_is_positive(surplus: float, most: float, distances: Sequence[PairDistances]) -> bool:
    """Whether a difference of two distances is thought to be positive, by its noisy value.

    By the triangle inequality it lies within `most`, up or down. The prior is normal with mean
    -most/2 and standard deviation most/2: public tables are usually of some use. With noise of
    variance v the posterior mean is positive if surplus * (most/2)^2 > (most/2) * v, that is
    surplus * most > 2 v.
    """
    return surplus * most > 2 * _variance(distances)


def _variance(distances: Sequence[PairDistances]) -> float:
    """Of the difference of two distances, summed over the pairs."""
    return math.fsum(2 * each.error**2 for each in distances)


def near_entities(
    entities: WeightedEntities | None,
    distances: Sequence[PairDistances],
    entity_use: PublicEntityUse,
) -> NearEntities | None:
    """The entities, if they seem no further from the truth than the public model, nor than half as
    far as independence: measured pairs correct a model of rows, but not what entities lack.

    The posterior mean decides, as of pairs that may have drifted. The model is to be nearer by some
    standard errors, since pairs do not show what it lacks: how all columns, and all rows of an
    entity, depend on each other.
    """
    compared = [each for each in distances if each.from_entities is not None]
    if entities is None or not compared:
        return None
    far = math.fsum(each.from_entities or 0.0 for each in compared)
    error = math.sqrt(_variance(compared))
    nearest = min(
        math.fsum(each.from_model for each in compared) + TUNING.caution * error,
        TUNING.far_entities * math.fsum(each.from_independence for each in compared),
    )
    most = math.fsum(each.entities_to_model for each in compared)
    if entity_use == "auto" and _posterior_is_positive(far - nearest, most, compared):
        return None
    total = entities.columns.total
    return NearEntities(
        entities,
        {
            each.pair: ((each.from_entities or 0.0) - TUNING.caution * each.error) / total
            for each in compared
        },
    )


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
