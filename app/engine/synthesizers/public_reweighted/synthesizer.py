"""The steps of `public_reweighted`: missing values, then histograms where public rows are off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import choose_axes
from app.engine.columns.private_bins import AxisPlan, delta_for_values, plan_axes
from app.engine.method import (
    Case,
    Example,
    Needs,
    Problem,
    Progress,
    PublicChunks,
    PublicFacts,
    Session,
    Synthesizer,
)
from app.engine.prior.entities.fitting import fitted, one_way, unit_weights
from app.engine.prior.entities.model import PublicReweightedModel, load_model
from app.engine.prior.entities.params import PublicReweightedParams
from app.engine.prior.entities.rows import (
    changes_keeping_rules,
    rows_keeping_rules,
    with_missing_values,
)
from app.engine.prior.entities.selection import most_informative
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Count
from app.engine.privacy.sensitivity import GRID
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.public.compatibility import fit_problems
from app.engine.public.contributions import features_of
from app.engine.public.rows import PublicRows, read_public
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.public_reweighted.budget import StepBudgets
from app.engine.synthesizers.public_reweighted.needs import run_needs
from app.engine.synthesizers.public_reweighted.questions import (
    candidates,
    in_cells,
    scored_rule,
    shape_of,
    size_questions,
    watched,
)
from app.engine.synthesizers.public_reweighted.tuning import TUNING
from app.engine.table import PublicTable, generator

Floats = NDArray[np.float64]


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
        return "`public_reweighted` fits the weights of public entities to noisy measurements"

    def needs(self, case: Case, params: PublicReweightedParams) -> Needs:
        return run_needs(case, _plan(case.schema, params, case.budget), params)

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
        progress(0.02, "measuring bins")
        axes, budget = plan.measure(session), plan.left(session)
        schema, budgets = session.schema, StepBudgets.of(budget, params)
        progress(0.05, "reading the public table")
        rows = read_public(public, schema, axes.names).for_unit(unit)
        rows = rows_keeping_rules(rows, schema).bounded(unit, generator(seed))
        rng = generator(seed + 1)
        progress(0.2, "counting units")
        units = unit_weights(session.count(size_questions(unit), budgets.size.loss), rows, schema)
        rule = params.rule(budget)
        progress(0.3, "looking for values that the public table lacks")
        columns = in_cells(axes, watched(plan.axes, params, rule))
        found = session.count(columns, budgets.one_way.loss) if columns else ()
        base = units[rows.entity]
        moved = with_missing_values(rows, base, [one_way(each, rows) for each in found], rng)
        rows = changes_keeping_rules(moved, rows, schema)
        counts = in_cells(axes, candidates(plan.axes, params, rule))
        if params.measure is None:
            progress(0.4, "scoring histograms")
            counts = _chosen(session, counts, rows, base, budgets.scores.loss)
        progress(0.5, "counting")
        left = session.remaining
        answers = session.count(counts, PrivacyLoss(left.kind, left.amount))
        progress(0.7, "weighting public rows")
        return fitted(axes, params, unit, schema, rows, units, (*found, *answers), rng)

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> PublicReweightedModel:
        return load_model(schema, unit, data)


def _plan(schema: Schema, params: PublicReweightedParams, budget: UnitBudget) -> AxisPlan:
    """Bins that are not cut further: within them rows lie as the public ones do."""
    return plan_axes(schema, params, budget, far_cuts=0)


def _chosen(
    session: Session, counts: Sequence[Count], rows: PublicRows, base: Floats, loss: PrivacyLoss
) -> tuple[Count, ...]:
    """The histograms in which the public table seems to be off by more than the noise."""
    unit, left = session.unit, session.remaining - loss
    scored_counts = [replace(count, contribution=scored_rule(unit)) for count in counts]
    references = [features_of(count, rows).counts(base) for count in scored_counts]
    scored = session.scores(
        [
            Candidate(count, (_on_grid(reference).reshape(shape_of(count)),))
            for count, reference in zip(scored_counts, references, strict=True)
        ],
        loss,
    )
    certain = scored.values - TUNING.caution * scored.standard_error
    expected = [features_of(count, rows).counts(base) for count in counts]
    in_counts = [
        float(distance) * float(each.sum() / reference.sum())
        for each, reference, distance in zip(expected, references, certain, strict=True)
    ]
    most = max(1, TUNING.most_terms // max(1, rows.rows))
    return most_informative(counts, expected, in_counts, UnitBudget(unit, left), most=most)


def _on_grid(reference: Floats) -> Floats:
    """In steps of 1/1024: a repeated run must put the very same question, and sums of floats may
    differ in their last digits."""
    gridded: Floats = np.rint(GRID * reference) / GRID
    return gridded
