"""Whether dependence has drifted since a public table was made, and where a model starts then.

Pairs of columns are asked, in one joint release, how far they are from the public start and how
far from independence. A pair of the start's tree that is nearer to independence is taken out, and
all are if the pairs together are: what is left is not further from the truth than no start at all,
but for the noise of these answers.

*Counts.* On an entity unit distances are of distinct cells, at most 7 of each entity, so that one
entity moves a distance by at most 7. A reference is then what the rows expected in a cell add to
such a count: as much as the rows of public entities do, times what private entities add in all
compared with that, which a first small question tells (the distances of some pairs from nothing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.contribution import UNMEASURED
from app.engine.graphical.preparation import MeasuredTable, PublicEntityUse
from app.engine.method.base import PublicFacts, Session
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.prior.entities.near_entities import (
    WeightedEntities,
    may_use_entities,
    weighted_entities,
)
from app.engine.prior.public_model import (
    Pair,
    PublicModel,
    most_pair_cells,
    pairs_within,
)
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import SCORE_STEP, Candidate, Contribution, Count, GridReference
from app.engine.privacy.references import LARGEST_REFERENCE
from app.engine.privacy.scores import expected_distance_errors
from app.engine.public.rows import PublicRows
from app.engine.schema import PrivacyUnit
from app.engine.table import PublicTable

Floats = NDArray[np.float64]

DRIFT_SHARE = 0.4
"""What `mst` and `aim` spend on it, of what else would go to selections."""

_DISTINCT = 7
"""Cells that an entity counts in, of those that its rows are in."""

_CAUTION = 2.0
"""Standard errors by which a noisy distance is lessened: the largest of many are so by luck."""

_TELLING = 0.02
"""A pair is compared with independence if M is further from it than this share of the rows."""

_FAR = 0.5
"""Entities that are so much of the way to independence from the truth are not kept."""

_SCALE_SHARES = (0.1, 0.9)
_PAIRS_FOR_SCALE = 3
_MOST_SCALE = 16.0
"""How much of the scores' loss tells how many counts there are, of how many pairs."""


def distance_rule(unit: PrivacyUnit, public: PublicFacts | PublicTable) -> Contribution:
    """By which rule distances are measured: by distinct cells where public entities tell how often
    entities repeat a cell; a distance then moves far less than by all rows of an entity."""
    if unit.kind == "row" or public.schema.entity is None:
        return Contribution()
    return Contribution("distinct", limit=_DISTINCT)


def distance_errors(
    axes: Axes,
    unit: PrivacyUnit,
    public: PublicFacts,
    loss: PrivacyLoss,
    entity_use: PublicEntityUse = "auto",
) -> tuple[float, ...]:
    """The standard error, in counts, of a distance if all pairs are compared twice, or three times
    where entities may be kept; none where there are no pairs."""
    rule = distance_rule(unit, public)
    times = 3 if may_use_entities(unit, public, entity_use) else 2
    counts = [Count(pair, axes.groupings, rule) for pair in combinations(axes.names, 2)] * times
    if not counts:
        return ()
    if rule.rule == "rows":
        return expected_distance_errors(counts, [1.0] * len(counts), unit, loss)[:1]
    parts = loss.split(_SCALE_SHARES)
    # Merged pairs of few cells move less than others, and their parts must not come to nothing.
    power = 1 if loss.kind == "pure" else 2
    if min(part.amount for part in parts) < len(counts) * (rule.limit or 1) ** power:
        return (UNMEASURED,)
    cells = {name: grouping.cells for name, grouping in axes.groupings.items()}
    widest = max(counts, key=lambda count: math.prod(cells[name] for name in count.columns))
    some = [widest] * min(len(counts) // times, _PAIRS_FOR_SCALE)
    return tuple(
        max(expected_distance_errors(asked, [1.0] * len(asked), unit, part))
        for asked, part in zip((some, counts), parts, strict=True)
    )


@dataclass(frozen=True, slots=True)
class PairDistances:
    """A pair's noisy distances, in rows, and the standard error of each.

    apart: how far the start's marginal is from that of independent columns. from_entities: how far
    the histogram of weighed public entities is from the truth, entities_apart: from the start's;
    None where there are none.
    """

    pair: Pair
    from_start: float
    from_independence: float
    apart: float
    error: float
    from_entities: float | None = None
    entities_apart: float = 0.0


def compare(
    session: Session,
    start: PublicModel,
    pairs: Sequence[Pair],
    rule: Contribution,
    loss: PrivacyLoss,
    kept: WeightedEntities | None = None,
) -> tuple[PairDistances, ...]:
    """The distances of the pairs, in one joint release. Where the start says little else than that
    the columns are independent, one distance stands for both."""
    total = start.cells.columns.total
    independent = [_independent(start, pair) for pair in pairs]
    tables = [total * table for table in start.marginals(pairs)]
    apart = [
        float(np.abs(table - product).sum())
        for table, product in zip(tables, independent, strict=True)
    ]
    scales = [_amounts(start, pair, rule) for pair in pairs]
    if rule.rule != "rows":
        part, loss = loss.split(_SCALE_SHARES)
        expected = [table * scale for table, scale in zip(tables, scales, strict=True)]
        times = _times_counted(session, start, pairs, expected, rule, part)
        scales = [times * each for each in scales]
    candidates, in_rows, further = [], [], []
    for pair, table, product, far, scale in zip(
        pairs, tables, independent, apart, scales, strict=True
    ):
        asked = [table * scale]
        asked += [product * scale] if far > _TELLING * total else []
        if kept is not None:
            asked.append(kept.expected(_count(start, pair, rule)))
            further.append(total * _apart(asked[0], asked[-1]))
        asked = [_bounded(reference) for reference in asked]
        candidates += [_candidate(start, pair, reference, rule) for reference in asked]
        in_rows += [total / float(reference.sum()) for reference in asked]
    scored = session.scores(candidates, loss)
    answers = iter((scored.values * np.array(in_rows)).tolist())
    errors = iter((scored.standard_error * np.array(in_rows)).tolist())
    found = []
    for number, (pair, far) in enumerate(zip(pairs, apart, strict=True)):
        both = far > _TELLING * total
        from_start, error = next(answers), next(errors)
        from_independence, _ = (next(answers), next(errors)) if both else (from_start, error)
        compared = PairDistances(pair, from_start, from_independence, far if both else 0.0, error)
        if kept is not None:
            from_entities, error = next(answers), max(error, next(errors))
            compared = replace(
                compared,
                error=error,
                from_entities=from_entities,
                entities_apart=further[number],
            )
        found.append(compared)
    return tuple(found)


def _bounded(reference: Floats) -> Floats:
    """No more counts than the kernel takes, which much noise can tell there are."""
    most = LARGEST_REFERENCE / 2
    total = float(reference.sum())
    return reference if total <= most else reference * (most / total)


def _apart(one: Floats, other: Floats) -> float:
    """The L1 distance of the shares of two histograms."""
    return float(np.abs(one / one.sum() - other / other.sum()).sum())


def _times_counted(
    session: Session,
    start: PublicModel,
    pairs: Sequence[Pair],
    expected: Sequence[Floats],
    rule: Contribution,
    loss: PrivacyLoss,
) -> float:
    """How many times more than `expected` private entities add to the counts of some pairs, as the
    noisy distances from nothing tell."""
    some = range(0, len(pairs), -(-len(pairs) // _PAIRS_FOR_SCALE))
    nothing = [_candidate(start, pairs[i], np.zeros(expected[i].shape), rule) for i in some]
    counted = float(session.scores(nothing, loss).values.sum())
    foreseen = math.fsum(float(expected[i].sum()) for i in some)
    return min(max(counted / foreseen, 1 / _MOST_SCALE), _MOST_SCALE)


def _independent(start: PublicModel, pair: Pair) -> Floats:
    columns = start.cells.columns
    product: Floats = np.multiply.outer(columns.counts[pair[0]], columns.shares[pair[1]])
    return product


def _candidate(start: PublicModel, pair: Pair, reference: Floats, rule: Contribution) -> Candidate:
    """On a dyadic grid, which hides in what order a processor adds up floats."""
    steps = np.rint(reference / SCORE_STEP).astype(np.int64)
    return Candidate(_count(start, pair, rule), GridReference(steps))


def _count(start: PublicModel, pair: Pair, rule: Contribution) -> Count:
    groupings = start.cells.columns.merged.groupings
    return Count(pair, {name: groupings[name] for name in pair}, rule)


def _amounts(start: PublicModel, pair: Pair, rule: Contribution) -> Floats:
    """What a row of each cell adds to the count, as the rows of public entities do; 1 if all rows
    are counted. A cell of few rows takes what is usual."""
    cells = start.cells
    shape = [cells.columns.shape[name] for name in pair]
    if rule.rule == "rows":
        return np.ones(shape)
    flat, owner = cells.some.flat(pair), cells.some.rows.entity
    size = math.prod(shape)
    distinct = np.unique(owner * size + flat)
    entity, cell = distinct // size, distinct % size
    drawn = np.minimum(1.0, (rule.limit or 1) / np.bincount(entity))
    amounts = np.bincount(cell, drawn[entity], minlength=size)
    rows_in = np.bincount(flat, minlength=size)
    usual = float(amounts.sum()) / max(float(rows_in.sum()), 1.0)
    table: Floats = ((amounts + usual) / (rows_in + 1.0)).reshape(shape)
    return table


def without_drifted_pairs(
    start: PublicModel, compared: Sequence[PairDistances]
) -> PublicModel | None:
    """The start without the pairs that seem to have drifted; none if all pairs together have."""
    told = [each for each in compared if each.apart > 0]
    if not start.pairs or (told and _is_worse(told)):
        return None
    return start.without([each.pair for each in told if _is_worse([each])])


def public_prior(
    session: Session,
    opened: MeasuredTable,
    rows: PublicRows,
    loss: PrivacyLoss,
    *,
    public: PublicTable,
    entity_use: PublicEntityUse,
    most_cells: int,
    seed: int,
) -> PublicModel | NearEntities | None:
    """The public start, its tree of at most `most_cells` cells, without what seems to have
    drifted, or the entities if they are nearer: all of the loss goes to comparing. None where
    there is no pair to compare. `rows` are those of `public` that fit."""
    columns = opened.columns
    most = min(most_cells, most_pair_cells(columns.axes))
    pairs = pairs_within(columns, most)
    if not pairs or not loss.amount:
        return None
    kept = weighted_entities(session, opened, rows, entity_use, public=public, seed=seed)
    start = PublicModel.of(rows, session.schema, columns, most_cells, most)
    compared = compare(session, start, pairs, distance_rule(session.unit, public), loss, kept)
    return near_entities(kept, compared, entity_use) or without_drifted_pairs(start, compared)


def _is_worse(compared: Sequence[PairDistances]) -> bool:
    """Whether the start is further from the truth than independence is, for all that one can say.

    How much further a pair is lies within `apart`, up or down; before anything is asked it is
    thought to be less by half of that, give or take as much. The posterior mean decides.
    """
    surplus = math.fsum(each.from_start - each.from_independence for each in compared)
    return _is_surplus(surplus, math.fsum(each.apart for each in compared), compared)


def _is_surplus(surplus: float, apart: float, compared: Sequence[PairDistances]) -> bool:
    return surplus * apart > 2 * _variance(compared)


def _variance(compared: Sequence[PairDistances]) -> float:
    """Of the difference of two distances of all pairs."""
    return math.fsum(2 * each.error**2 for each in compared)


@dataclass(frozen=True)
class NearEntities:
    """Public entities that are nearer to the truth than the start is, and how far they are off."""

    kept: WeightedEntities
    distances: Mapping[Pair, float]

    def model(
        self, session: Session, left: PrivacyLoss, method: str, weight: Callable[[Pair], float]
    ) -> PublicReweightedModel:
        """The model of them, for what is left but its delta; `weight` tells how much the error of
        a pair counts."""
        loss = PrivacyLoss(left.kind, left.amount)
        counted = self.kept.counted(session, self.distances, loss, weight)
        return replace(counted, method=method)


def near_entities(
    kept: WeightedEntities | None, compared: Sequence[PairDistances], entity_use: PublicEntityUse
) -> NearEntities | None:
    """The entities, if for all that one can say they are no further from the truth than the
    start, nor than half as far as independence: counts of pairs mend a model of rows, but not
    what entities lack. That is thought of them before they are asked, and the posterior mean
    decides, as of pairs that may have drifted. The start is to be nearer by some standard errors,
    since pairs do not tell what it lacks: how all columns, and all rows of an entity, go together.
    """
    told = [each for each in compared if each.from_entities is not None]
    if kept is None or not told:
        return None
    far = math.fsum(each.from_entities or 0.0 for each in told)
    error = math.sqrt(_variance(told))
    nearest = min(
        math.fsum(each.from_start for each in told) + _CAUTION * error,
        _FAR * math.fsum(each.from_independence for each in told),
    )
    apart = math.fsum(each.entities_apart for each in told)
    if entity_use == "auto" and _is_surplus(far - nearest, apart, told):
        return None
    total = kept.opened.columns.total
    return NearEntities(
        kept,
        {each.pair: ((each.from_entities or 0.0) - _CAUTION * each.error) / total for each in told},
    )


def distances(
    start: PublicModel | None, asked: PublicModel, compared: Sequence[PairDistances]
) -> dict[Pair, float]:
    """How far each compared pair is at least from where the model now starts, in rows.

    If pairs were taken out since, the distance is that from the nearer one of what was asked.
    """
    if start is None:
        return {each.pair: each.from_independence for each in compared}
    total = asked.cells.columns.total
    pairs = [each.pair for each in compared]
    found = {}
    for each, table, old in zip(
        compared, start.marginals(pairs), asked.marginals(pairs), strict=True
    ):
        to_old = float(np.abs(table - old).sum())
        to_product = float(np.abs(total * table - _independent(asked, each.pair)).sum()) / total
        nearer = each.from_start if to_old <= to_product else each.from_independence
        found[each.pair] = nearer - _CAUTION * each.error
    return found
