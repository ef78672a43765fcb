"""Noisy distances of pairs of columns: from the public model, from independence, from entities.

All pairs are compared in one joint release of L1 distances. Where the public model says little
else than that two columns are independent, one distance stands for both.

*Counts.* On an entity unit distances are of distinct cells, at most 7 of each entity, so that one
entity moves a distance by at most 7. A reference is then what the rows expected in a cell add to
such a count: as much as the rows of public entities do, times what private entities add in all
compared with that, which a first small question measures (the distances of some pairs from
nothing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.contribution import UNMEASURED
from app.engine.method import PublicFacts, Session
from app.engine.prior.entities.near_entities import WeightedEntities, may_use_entities
from app.engine.prior.entities.params import PublicEntityUse
from app.engine.prior.public_model import Pair, PublicModel, grid_reference
from app.engine.prior.tuning import TUNING
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Contribution, Count
from app.engine.privacy.references import LARGEST_REFERENCE
from app.engine.privacy.scores import expected_distance_errors
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.public.contributions import DistinctCells
from app.engine.schema import PrivacyUnit
from app.engine.table import PublicTable

Floats = NDArray[np.float64]


def distance_rule(unit: PrivacyUnit, public: PublicFacts | PublicTable) -> Contribution:
    """By which rule distances are measured: by distinct cells where public entities show how often
    entities repeat a cell; a distance then moves far less than by all rows of an entity."""
    if unit.kind == "row" or public.schema.entity is None:
        return Contribution()
    return Contribution("distinct", limit=TUNING.distinct_cells)


def distance_errors(
    axes: Axes, public: PublicFacts, budget: UnitBudget, entity_use: PublicEntityUse = "auto"
) -> tuple[float, ...]:
    """The standard error, in counts, of a distance if all pairs are compared twice, or three times
    where entities may be kept; none where there are no pairs."""
    unit, loss = budget.unit, budget.loss
    rule = distance_rule(unit, public)
    times = 3 if may_use_entities(unit, public, entity_use) else 2
    counts = [Count(pair, axes.groupings, rule) for pair in combinations(axes.names, 2)] * times
    if not counts:
        return ()
    if rule.rule == "rows":
        return expected_distance_errors(counts, [1.0] * len(counts), budget)[:1]
    parts = loss.split(TUNING.scale_split)
    # Merged pairs of few cells move less than others, and their parts must not come to nothing.
    power = 1 if loss.kind == "pure" else 2
    if min(part.amount for part in parts) < len(counts) * (rule.limit or 1) ** power:
        return (UNMEASURED,)
    cells = {name: grouping.cells for name, grouping in axes.groupings.items()}
    widest = max(counts, key=lambda count: math.prod(cells[name] for name in count.columns))
    some = [widest] * min(len(counts) // times, TUNING.pairs_for_scale)
    return tuple(
        max(expected_distance_errors(asked, [1.0] * len(asked), UnitBudget(unit, part)))
        for asked, part in zip((some, counts), parts, strict=True)
    )


@dataclass(frozen=True, slots=True)
class PairDistances:
    """A pair's noisy L1 distances, in rows, and the standard error of each.

    from_model, from_independence, from_entities: how far the private histogram is from the public
    model's marginal, from that of independent columns, and from that of weighted public entities
    (None where there are none). model_dependence: how far the model's marginal is from
    independence, 0 if one distance stood for both; entities_to_model: how far that of the entities
    is from the model's. Both are public.
    """

    pair: Pair
    from_model: float
    from_independence: float
    model_dependence: float
    error: float
    from_entities: float | None = None
    entities_to_model: float = 0.0


def pair_distances(
    session: Session,
    model: PublicModel,
    pairs: Sequence[Pair],
    rule: Contribution,
    loss: PrivacyLoss,
    entities: WeightedEntities | None = None,
) -> tuple[PairDistances, ...]:
    """The noisy distances of the pairs, in one joint release."""
    total = model.cells.columns.total
    independent = [independent_counts(model, pair) for pair in pairs]
    tables = [total * table for table in model.marginals(pairs)]
    dependence = [
        float(np.abs(table - product).sum())
        for table, product in zip(tables, independent, strict=True)
    ]
    scales = [_counts_per_row(model, pair, rule) for pair in pairs]
    if rule.rule != "rows":
        part, loss = loss.split(TUNING.scale_split)
        expected = [table * scale for table, scale in zip(tables, scales, strict=True)]
        times = _private_scale(session, model, pairs, expected, rule, part)
        scales = [times * each for each in scales]
    is_dependent = [each > TUNING.least_model_dependence * total for each in dependence]
    candidates, rows_per_count, entities_to_model = [], [], []
    for pair, table, product, scale, both in zip(
        pairs, tables, independent, scales, is_dependent, strict=True
    ):
        references = [table * scale]
        references += [product * scale] if both else []
        if entities is not None:
            references.append(entities.expected(_count(model, pair, rule)))
            entities_to_model.append(total * _share_distance(references[0], references[-1]))
        references = [_within_kernel_bound(reference) for reference in references]
        candidates += [
            Candidate(_count(model, pair, rule), grid_reference(reference))
            for reference in references
        ]
        rows_per_count += [total / float(reference.sum()) for reference in references]
    scored = session.scores(candidates, loss)
    answers = iter((scored.values * np.array(rows_per_count)).tolist())
    errors = iter((scored.standard_error * np.array(rows_per_count)).tolist())
    found = []
    for number, (pair, both) in enumerate(zip(pairs, is_dependent, strict=True)):
        from_model, error = next(answers), next(errors)
        from_independence, _ = (next(answers), next(errors)) if both else (from_model, error)
        model_dependence = dependence[number] if both else 0.0
        distances = PairDistances(pair, from_model, from_independence, model_dependence, error)
        if entities is not None:
            from_entities, error = next(answers), max(error, next(errors))
            distances = replace(
                distances,
                error=error,
                from_entities=from_entities,
                entities_to_model=entities_to_model[number],
            )
        found.append(distances)
    return tuple(found)


def independent_counts(model: PublicModel, pair: Pair) -> Floats:
    """The pair's rows, were its columns independent."""
    columns = model.cells.columns
    product: Floats = np.multiply.outer(columns.counts[pair[0]], columns.shares[pair[1]])
    return product


def _within_kernel_bound(reference: Floats) -> Floats:
    """No more counts than the kernel takes, however many a noisy number says that there are."""
    most = LARGEST_REFERENCE / 2
    total = float(reference.sum())
    return reference if total <= most else reference * (most / total)


def _share_distance(one: Floats, other: Floats) -> float:
    """The L1 distance of the shares of two histograms."""
    return float(np.abs(one / one.sum() - other / other.sum()).sum())


def _private_scale(
    session: Session,
    model: PublicModel,
    pairs: Sequence[Pair],
    expected: Sequence[Floats],
    rule: Contribution,
    loss: PrivacyLoss,
) -> float:
    """How many times more than `expected` private entities add to the counts of some pairs, by
    the noisy distances from nothing."""
    some = range(0, len(pairs), -(-len(pairs) // TUNING.pairs_for_scale))
    nothing = [
        Candidate(_count(model, pairs[i], rule), grid_reference(np.zeros(expected[i].shape)))
        for i in some
    ]
    counted = float(session.scores(nothing, loss).values.sum())
    foreseen = math.fsum(float(expected[i].sum()) for i in some)
    return min(max(counted / foreseen, 1 / TUNING.largest_scale), TUNING.largest_scale)


def _count(model: PublicModel, pair: Pair, rule: Contribution) -> Count:
    groupings = model.cells.columns.merged.groupings
    return Count(pair, {name: groupings[name] for name in pair}, rule)


def _counts_per_row(model: PublicModel, pair: Pair, rule: Contribution) -> Floats:
    """What a row of each cell adds to the count, as the rows of public entities do; 1 if all rows
    are counted. A cell of few rows takes the mean of all cells."""
    cells = model.cells
    shape = [cells.columns.shape[name] for name in pair]
    if rule.rule == "rows":
        return np.ones(shape)
    flat, size = cells.some.flat(pair), math.prod(shape)
    amounts = DistinctCells.of(cells.some.rows, flat, size, rule.limit or 1).counts(size)
    rows_in = np.bincount(flat, minlength=size)
    mean = float(amounts.sum()) / max(float(rows_in.sum()), 1.0)
    table: Floats = ((amounts + mean) / (rows_in + 1.0)).reshape(shape)
    return table
