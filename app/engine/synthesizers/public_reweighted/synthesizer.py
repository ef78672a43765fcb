"""The steps of `public_reweighted`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes, choose_axes
from app.engine.columns.contribution import (
    contribution_problems,
    expected_error,
    expected_errors,
    noise_problems,
)
from app.engine.columns.private_bins import AxisPlan, delta_for_values, plan_axes
from app.engine.columns.resources import (
    bounded,
    counting_bytes,
    message_problems,
    question_problems,
    run_problems,
    table_bytes,
)
from app.engine.method import (
    Example,
    Limits,
    Preflight,
    Problem,
    Progress,
    PublicChunks,
    PublicFacts,
    Session,
    Synthesizer,
)
from app.engine.prior.entities.fitting import fitted, one_way, unit_weights
from app.engine.prior.entities.missing_values import with_missing_values
from app.engine.prior.entities.model import PublicReweightedModel, load_model
from app.engine.prior.entities.params import PublicReweightedParams
from app.engine.prior.entities.rows import changes_keeping_rules, in_order, rows_keeping_rules
from app.engine.prior.entities.selection import most_informative
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Count
from app.engine.privacy.scores import expected_distance_errors
from app.engine.privacy.sensitivity import GRID
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.public.compatibility import fit_problems
from app.engine.public.contributions import features_of
from app.engine.public.rows import PublicRows, public_problems, read_public
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.public_reweighted.questions import (
    candidates,
    cells_of,
    in_cells,
    scored_rule,
    shape_of,
    size_questions,
    watched,
)
from app.engine.table import PublicTable, generator

Floats = NDArray[np.float64]

# Standard errors by which a noisy distance is lessened: the largest of many are so by luck.
_CAUTION = 2.0

# Rows times chosen histograms: a step of the descent then takes a fifth of a second.
_MOST_TERMS = 2**23

# As read, translated, in order, moved, mixed, joined, and in the stored model.
_COPIES_OF_PUBLIC = 8

# For each public row and histogram: cells, amounts and terms, of the row and its mixed one.
_BYTES_OF_FEATURES = 64


class PublicReweighted(Synthesizer):
    name = "public_reweighted"
    title = "Public rows and entities, reweighted to noisy marginals"
    reference = "Maximum entropy over public atoms, as Liu et al., Leveraging Public Data (2021)"
    uses_public = "required"
    Params = PublicReweightedParams
    example = Example(
        params={"preset": "sprint3"},
        guarantee={"epsilon": 1, "delta": "2.5e-5"},
    )
    auto_rank = 15

    def auto_reason(
        self, columns: int, unit: PrivacyUnit, public: PublicFacts | None
    ) -> str | None:
        del columns
        if public is None or unit.kind != "entity":
            return None
        return "`public_reweighted` weighs the entities of the public dataset by noisy measurements"

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: PublicReweightedParams,
        loss: PrivacyLoss,
        public: PublicFacts | None,
        limits: Limits,
    ) -> Preflight:
        plan = _plan(schema, params, UnitBudget(unit, loss))
        axes, budget = plan.axes, plan.rest
        problems = plan.problems + _named_problems(axes, params)
        problems += public_problems(schema, unit, public, axes.names, needs_entities=True)
        rule = params.rule(budget)
        problems += contribution_problems(rule, budget)
        counts = candidates(axes, params, rule)
        problems += _candidate_problems(counts)
        columns = watched(axes, params, rule)
        sizes = [cells_of(count) for count in (*counts, *columns)]
        cells, largest = bounded(sum(sizes)), max(sizes, default=1)
        problems += question_problems(cells, "/params/measure", "measure fewer histograms")
        problems += message_problems(axes, 0 if params.measure is not None else cells)
        parts = _split(budget.loss, params)
        error = expected_error(rule, largest, UnitBudget(unit, parts.counts))
        questions = size_questions(unit)
        errors = expected_errors(questions, (1.0,) * len(questions), UnitBudget(unit, parts.size))
        # Columns are looked at together, and all candidates may be chosen.
        for together, part in ((columns, parts.one_way), (counts, parts.counts)):
            if together:
                errors += (
                    expected_error(rule, largest, UnitBudget(unit, part.of_each(len(together)))),
                )
        scored = [replace(count, contribution=scored_rule(unit)) for count in counts]
        scores: tuple[float, ...] = ()
        if params.measure is None and scored:
            weights = [1.0] * len(scored)
            scores = (
                max(expected_distance_errors(scored, weights, UnitBudget(unit, parts.scores))),
            )
        problems += noise_problems((error, *errors), rule, scores)
        rows = 0 if public is None else public.rows
        memory = rows * 8 * (len(axes.names) + 1) * _COPIES_OF_PUBLIC
        memory += rows * _BYTES_OF_FEATURES * len(sizes)
        memory += counting_bytes(cells, largest) + 8 * cells + table_bytes(len(axes.names), limits)
        problems += run_problems(memory, cells + plan.draws, limits, len(axes.names))
        return Preflight(cells, memory, error, problems)

    def check_public(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: PublicReweightedParams,
        loss: PrivacyLoss,
        public: PublicChunks,
    ) -> tuple[Problem, ...]:
        del unit, loss
        axes, _ = choose_axes(schema, params.columns, params.bins, measures_bins=True)
        return fit_problems(schema, public, axes.names, schema.constraints)

    def delta_share(self, params: PublicReweightedParams, schema: Schema) -> float:
        return delta_for_values(schema, params)

    def fit(
        self,
        session: Session,
        params: PublicReweightedParams,
        public: PublicTable | None,
        seed: int,
        progress: Progress,
    ) -> PublicReweightedModel:
        assert public is not None
        unit = session.unit
        plan = _plan(session.schema, params, UnitBudget(unit, session.allowance))
        progress(0.02, "buying cells")
        axes, budget = plan.measure(session), plan.left(session)
        schema, parts = session.schema, _split(budget.loss, params)
        progress(0.05, "reading the public table")
        rows = rows_keeping_rules(read_public(public, schema, axes.names).for_unit(unit), schema)
        rows = in_order(rows, unit, seed)
        rng = generator(seed + 1)
        progress(0.2, "counting units")
        units = unit_weights(session.count(size_questions(unit), parts.size), rows, schema)
        rule = params.rule(budget)
        progress(0.3, "looking for values that the public table lacks")
        columns = in_cells(axes, watched(plan.axes, params, rule))
        found = session.count(columns, parts.one_way) if columns else ()
        base = units[rows.entity]
        moved = with_missing_values(rows, base, [one_way(each, rows) for each in found], rng)
        rows = changes_keeping_rules(moved, rows, schema)
        counts = in_cells(axes, candidates(plan.axes, params, rule))
        if params.measure is None:
            progress(0.4, "scoring histograms")
            counts = _chosen(session, counts, rows, base, parts.scores)
        progress(0.5, "counting")
        left = session.remaining
        answers = session.count(counts, PrivacyLoss(left.kind, left.amount))
        progress(0.7, "weighing public rows")
        return fitted(axes, params, unit, schema, rows, units, (*found, *answers), rng)

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> PublicReweightedModel:
        return load_model(schema, unit, data)


def _plan(schema: Schema, params: PublicReweightedParams, budget: UnitBudget) -> AxisPlan:
    """Bins that are not cut further: within them rows lie as the public ones do."""
    return plan_axes(schema, params, budget, far_cuts=0)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The loss of each step; nothing for a step that the params leave out."""

    size: PrivacyLoss
    one_way: PrivacyLoss
    scores: PrivacyLoss
    counts: PrivacyLoss


def _split(loss: PrivacyLoss, params: PublicReweightedParams) -> _Parts:
    shares = params.shares
    one_way = 0.0 if params.watch == () else shares.one_way
    scores = 0.0 if params.measure is not None else shares.scores
    wanted = (shares.size, one_way, scores, shares.counts)
    return _Parts(*loss.split([share / math.fsum(wanted) for share in wanted]))


def _named_problems(axes: Axes, params: PublicReweightedParams) -> tuple[Problem, ...]:
    problems: list[Problem] = []
    fields = {"watch": params.watch, "pool": params.pool, "keep": params.keep}
    fields |= {f"measure/{i}": names for i, names in enumerate(params.measure or ())}
    for field, names in fields.items():
        problems += _column_problems(f"/params/{field}", names or (), axes)
    return tuple(problems)


def _column_problems(pointer: str, names: Sequence[str], axes: Axes) -> list[Problem]:
    problems = [
        Problem(
            f"{pointer}/{place}",
            f"`{name}` is not among the chosen columns",
            "name columns that `columns` has",
        )
        for place, name in enumerate(names)
        if name not in axes.names
    ]
    if len(set(names)) != len(names):
        problems.append(Problem(pointer, "a column is named twice", "name each column once"))
    return problems


def _candidate_problems(counts: Sequence[Count]) -> tuple[Problem, ...]:
    if counts:
        return ()
    message = "there is no histogram to measure: every column has more cells than are allowed"
    return (Problem("/params/most_cells", message, "allow more cells, or give coarser `bins`"),)


def _chosen(
    session: Session, counts: Sequence[Count], rows: PublicRows, base: Floats, loss: PrivacyLoss
) -> tuple[Count, ...]:
    """The histograms in which the public table seems to be off by more than the noise."""
    unit, left = session.unit, session.remaining - loss
    asked = [replace(count, contribution=scored_rule(unit)) for count in counts]
    references = [features_of(count, rows).counts(base) for count in asked]
    scored = session.scores(
        [
            Candidate(count, (_on_grid(reference).reshape(shape_of(count)),))
            for count, reference in zip(asked, references, strict=True)
        ],
        loss,
    )
    certain = scored.values - _CAUTION * scored.standard_error
    expected = [features_of(count, rows).counts(base) for count in counts]
    in_counts = [
        float(distance) * float(each.sum() / reference.sum())
        for each, reference, distance in zip(expected, references, certain, strict=True)
    ]
    most = max(1, _MOST_TERMS // max(1, rows.rows))
    return most_informative(counts, expected, in_counts, UnitBudget(unit, left), most=most)


def _on_grid(reference: Floats) -> Floats:
    """In steps of 1/1024, so that a run that is started again asks the very same question."""
    gridded: Floats = np.rint(GRID * reference) / GRID
    return gridded
