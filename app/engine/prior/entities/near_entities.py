"""Public entities kept with all their rows, where they are nearer to the truth than a public model.

They are weighted by what has been measured of private entities and columns. So weighted they say
what a histogram would be; noisy distances from that, beside those from the public model, decide
between the two (`drift`). If they are kept, the histograms in which they are far off are measured,
as in `public_reweighted`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.estimates import ColumnEstimates
from app.engine.entities.measurement import MeasuredEntities
from app.engine.method import Problem, PublicFacts, Session
from app.engine.prior.entities.fitting import (
    fitted,
    fitting_bytes,
    one_way,
    row_weights,
    weighted_units,
)
from app.engine.prior.entities.model import PublicReweightedModel
from app.engine.prior.entities.params import PublicEntityUse, PublicReweightedParams
from app.engine.prior.entities.rows import (
    changes_keeping_rules,
    rows_keeping_rules,
    with_missing_values,
)
from app.engine.prior.entities.selection import most_informative
from app.engine.prior.public_model import compared_cells, most_pair_cells
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.public.contributions import features_of
from app.engine.public.rows import PublicDataUnfit, PublicRows
from app.engine.schema import PrivacyUnit
from app.engine.table import PublicTable, generator

Floats = NDArray[np.float64]
Pair = tuple[str, str]

# Entities of a public table of more rows are not kept: weighting them would take minutes.
MOST_ROWS = 2**18

# Rows times chosen histograms.
_MOST_TERMS = 2**22

# Of a pair whose cells are not merged; fewer where pairs are many, so that all pairs together have
# no more cells than can be compared.
_MOST_OWN_CELLS = 2**16

# What is expected in a cell, its noisy count, their copies through the pipe, and what the fit
# holds: 460 were measured for 2.6 million cells, with all else that the process holds.
_BYTES_OF_CELL = 400

_FORM = PublicReweightedParams()


@dataclass(frozen=True)
class WeightedEntities:
    """Public entities, weighted by what was measured of entities and columns.

    units: weights of entities, shape (entities,); weights: of their rows, shape (rows,).
    """

    columns: ColumnEstimates
    rows: PublicRows
    units: Floats
    weights: Floats
    seed: int

    @classmethod
    def of(
        cls,
        rows: PublicRows,
        session: Session,
        columns: ColumnEstimates,
        entities: MeasuredEntities,
        seed: int,
    ) -> WeightedEntities:
        """Raises `PublicDataUnfit` if no row keeps the rules of the dictionary."""
        schema, found = session.schema, columns.measured.answers
        rows = rows_keeping_rules(rows, schema).bounded(session.unit, generator(seed))
        units = weighted_units(entities.size.entities, [entities.by_rows], rows, schema)
        base = units[rows.entity]
        answers = [one_way(answer, rows) for answer in found]
        moved = with_missing_values(rows, base, answers, generator(seed + 1))
        rows = changes_keeping_rules(moved, rows, schema)
        return cls(columns, rows, units, row_weights(base, found, rows), seed)

    def expected(self, count: Count) -> Floats:
        """The histogram of the weighted entities, in its shape."""
        shape = [count.groupings[name].cells for name in count.columns]
        return features_of(count, self.rows).counts(self.weights).reshape(shape)

    def measured(
        self,
        session: Session,
        distances: Mapping[Pair, float],
        loss: PrivacyLoss,
        weight: Callable[[Pair], float],
    ) -> PublicReweightedModel:
        """The model, after the most informative histograms have been measured.

        `distances`: of pairs, by how much they are off at least, as a share of all counts;
        `weight`: how much the error of a pair counts beside the others'.
        """
        unit, budget = session.unit, UnitBudget(session.unit, loss)
        rule = _FORM.rule(budget)
        counts = [self._count(pair, rule) for pair in distances]
        expected = [self.expected(count).ravel() for count in counts]
        off = [
            share * float(each.sum())
            for share, each in zip(distances.values(), expected, strict=True)
        ]
        most = max(1, _MOST_TERMS // max(1, self.rows.rows))
        asked = most_informative(
            counts, expected, off, budget, most=most, weights=[weight(pair) for pair in distances]
        )
        answers = session.count(asked, loss)
        return fitted(
            self.columns.axes,
            _FORM,
            unit,
            session.schema,
            self.rows,
            self.units,
            (*self.columns.measured.answers, *answers),
            generator(self.seed + 2),
        )

    def _count(self, pair: Pair, rule: Contribution) -> Count:
        """In the cells of the dictionary, if these are few: where noise is large, cells lean on
        what public rows say of them, and need not be merged."""
        own, merged = self.columns.axes.groupings, self.columns.merged.groupings
        most = min(_MOST_OWN_CELLS, most_pair_cells(self.columns.axes))
        are_few = prod(own[name].cells for name in pair) <= most
        groupings = own if are_few else merged
        return Count(pair, {name: groupings[name] for name in pair}, rule)


def weighted_entities(
    session: Session,
    columns: ColumnEstimates,
    measured: MeasuredEntities | None,
    rows: PublicRows,
    entity_use: PublicEntityUse,
    *,
    public: PublicTable,
    seed: int,
) -> WeightedEntities | None:
    """The entities that may be kept; None where there are none, or by the form.

    `public`: the table that `rows` are those of that fit.
    """
    facts = PublicFacts(public.schema, public.table.rows)
    if measured is None or not may_use_entities(session.unit, facts, entity_use):
        return None
    try:
        return WeightedEntities.of(rows, session, columns, measured, seed)
    except PublicDataUnfit:
        return None


def may_use_entities(
    unit: PrivacyUnit, public: PublicFacts | None, entity_use: PublicEntityUse
) -> bool:
    """Whether public entities may be kept, by public facts."""
    if public is None or entity_use == "group" or public.rows > MOST_ROWS:
        return False
    return unit.repeats and public.schema.entity is not None


def entity_problems(
    unit: PrivacyUnit, public: PublicFacts | None, entity_use: PublicEntityUse
) -> tuple[Problem, ...]:
    """Why entities that are to be kept cannot be."""
    if entity_use != "keep" or may_use_entities(unit, public, entity_use):
        return ()
    if public is not None and public.rows > MOST_ROWS:
        message = f"entities of at most {MOST_ROWS} public rows can be kept"
        return (Problem("/params/public_entities", message, "choose `auto` or `group`"),)
    message = "there are no public entities to be kept"
    remedy = "name a `public_dataset` with an `entity` unit, as the private one has; or `auto`"
    return (Problem("/params/public_entities", message, remedy),)


def entity_cells(
    unit: PrivacyUnit, public: PublicFacts | None, entity_use: PublicEntityUse, axes: Axes
) -> int:
    """The most cells of pairs that are counted if entities are kept."""
    return compared_cells(axes) if may_use_entities(unit, public, entity_use) else 0


def entity_bytes(
    unit: PrivacyUnit, public: PublicFacts | None, entity_use: PublicEntityUse, axes: Axes
) -> int:
    """Memory to weight public entities, and of the model of them."""
    if public is None or not may_use_entities(unit, public, entity_use):
        return 0
    columns = len(axes.names)
    pairs = min(columns * (columns - 1) // 2, max(1, _MOST_TERMS // max(1, public.rows)))
    held = fitting_bytes(public.rows, columns, columns + pairs)
    return held + entity_cells(unit, public, entity_use, axes) * _BYTES_OF_CELL
