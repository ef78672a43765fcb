"""The method: groups counted in one joint release, then linked by rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.contribution import noise_scale
from app.engine.method import (
    Case,
    Example,
    Needs,
    Problem,
    Progress,
    PublicChunks,
    Session,
    Synthesizer,
)
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Discovered
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.public.compatibility import fit_problems
from app.engine.public.rows import PublicRows, public_problems, read_public
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.linked_histograms.budget import RunBudget
from app.engine.synthesizers.linked_histograms.expected import noisy_means, public_means
from app.engine.synthesizers.linked_histograms.model import LinkedHistogramsModel
from app.engine.synthesizers.linked_histograms.params import LinkedHistogramsParams
from app.engine.synthesizers.linked_histograms.plan import MeasuredMean, Plan
from app.engine.synthesizers.linked_histograms.planning import make_plan
from app.engine.synthesizers.linked_histograms.post_processing import PostProcessing, fitted_model
from app.engine.table import PublicTable, generator

MOST_CELLS = 10_000_000
# Cells of a group that is discovered are numbered in 64 bits.
MOST_NUMBERED = 2**62

# Counts, noise and their copy through the pipe, then the sort of the projection.
_BYTES_PER_CELL = 120


class LinkedHistograms(Synthesizer):
    name = "linked_histograms"
    title = "Histograms of groups of columns, linked by rank"
    reference = (
        "Jim King, NIST Temporal Map Challenge, Sprint 3 (2021), with public bins and enforced "
        "bounds"
    )
    uses_public = "optional"
    Params = LinkedHistogramsParams
    example = Example(
        params={
            "groups": [
                {"columns": ["shift", "pickup_community_area"]},
                {"columns": ["company_id", "payment_type"], "per": "entity"},
            ]
        },
        guarantee={"epsilon": 1, "delta": "2.5e-5"},
        rows=10000,
    )

    def needs(self, case: Case, params: LinkedHistogramsParams) -> Needs:
        has_public = case.public is not None
        plan, means, problems = make_plan(case.schema, params, case.budget)
        problems += _noise_kind_problems(params, case.loss)
        if params.reads_public(has_public):
            pools = params.uses_prior(has_public)
            problems += public_problems(
                case.schema, case.unit, case.public, _read(plan, pools), needs_entities=pools
            )
        problems += _discovery_problems(plan, case.loss)
        if problems:
            return Needs(cells=plan.cells, problems=problems)
        budget = _budget(plan, params, means, case.budget)
        errors = budget.errors(plan, means, case.budget)
        cells = plan.cells + sum(2 * plan.links[each.link].given.cells for each in means)
        return Needs.of_table(len(plan.output), case.limits) + Needs(
            cells=cells,
            memory_bytes=cells * _BYTES_PER_CELL,
            draws=cells,
            header_cells=max(group.axes.header_cells for group in plan.groups),
            noise_scale=noise_scale(errors, Contribution()),
            expected_error=errors[0],
            problems=_cell_problems(cells),
        )

    def check_public(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: LinkedHistogramsParams,
        loss: PrivacyLoss,
        public: PublicChunks,
    ) -> tuple[Problem, ...]:
        if not params.reads_public(True):
            return ()
        plan, _, _ = make_plan(schema, params, UnitBudget(unit, loss))
        return fit_problems(schema, public, _read(plan, params.uses_prior(True)))

    def fit(
        self,
        session: Session,
        params: LinkedHistogramsParams,
        public: PublicTable | None,
        seed: int,
        progress: Progress,
    ) -> LinkedHistogramsModel:
        allowance = UnitBudget(session.unit, session.allowance)
        plan, means, _ = make_plan(session.schema, params, allowance)
        rows = None
        pools = params.uses_prior(public is not None)
        if params.reads_public(public is not None):
            assert public is not None, "a request without is refused"
            rows = read_public(public, session.schema, _read(plan, pools))
        budget = _budget(plan, params, means, allowance)
        progress(0.0, "counting")
        answers = session.count(plan.questions(), budget.histograms, budget.weights)
        found = _discovered(session, plan, budget)
        progress(0.6, "expected values")
        expected = _expected(session, plan, means, budget.means, rows)
        progress(0.8, "post-processing")
        post_processing = PostProcessing(
            clips=params.post_processing == "clip",
            assumes_independence=params.prior != "none",
            prior=rows if pools else None,
            rng=generator(seed),
        )
        return fitted_model(session.schema, plan, answers, found, expected, post_processing)

    def delta_share(self, params: LinkedHistogramsParams, schema: Schema) -> float:
        """Half of delta is for the discovery of cells, if there is any."""
        del schema
        return 0.5 if params.discovers else 0.0

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> LinkedHistogramsModel:
        return LinkedHistogramsModel.load(schema, unit, data)


def _read(plan: Plan, pools: bool) -> tuple[str, ...]:
    """The public columns that are needed."""
    if pools:
        return plan.columns
    linked = [name for link in plan.links for name in (*link.given.names, link.value)]
    return tuple(dict.fromkeys(linked))


def _budget(
    plan: Plan, params: LinkedHistogramsParams, means: tuple[MeasuredMean, ...], budget: UnitBudget
) -> RunBudget:
    return RunBudget.of(plan, params.expected_share if means else 0.0, budget)


def _discovered(session: Session, plan: Plan, budget: RunBudget) -> dict[int, Discovered]:
    parts = zip(plan.discovered, budget.discovery, strict=True)
    return {i: session.discover(plan.groups[i].keys(plan.samples), part) for i, part in parts}


def _expected(
    session: Session,
    plan: Plan,
    measured: tuple[MeasuredMean, ...],
    loss: PrivacyLoss,
    public: PublicRows | None,
) -> tuple[NDArray[np.float64], ...]:
    """The means of each link, measured ones of which are one joint release."""
    questions = [query for each in measured for query in each.questions(plan)]
    answers = session.count(questions, loss) if questions else ()
    means = {
        each.link: noisy_means(answers[2 * i], answers[2 * i + 1])
        for i, each in enumerate(measured)
    }
    for i, link in enumerate(plan.links):
        if i not in means:
            assert public is not None
            means[i] = public_means(link, public, session.schema)
    return tuple(means[i] for i in range(len(plan.links)))


def _discovery_problems(plan: Plan, loss: PrivacyLoss) -> tuple[Problem, ...]:
    if not plan.discovered:
        return ()
    if loss.kind == "pure":
        message = "cells cannot be discovered under a pure guarantee"
        return (Problem("/guarantee", message, "give it a delta, or count declared cells"),)
    if loss.delta < len(plan.discovered):
        message = "the discovery of cells takes a part of delta, and this guarantee has none for it"
        remedy = "ask for epsilon and delta, or count declared cells"
        return (Problem("/guarantee", message, remedy),)
    return tuple(
        Problem(
            f"/params/groups/{i}/cells",
            f"{plan.groups[i].axes.cells} cells cannot be numbered",
            "make smaller groups, or coarser `bins`",
        )
        for i in plan.discovered
        if plan.groups[i].axes.cells > MOST_NUMBERED
    )


def _noise_kind_problems(params: LinkedHistogramsParams, loss: PrivacyLoss) -> tuple[Problem, ...]:
    if params.noise is None or (params.noise == "laplace") == (loss.kind == "pure"):
        return ()
    if params.noise == "laplace":
        remedy = "leave delta out of the guarantee, or leave `noise` out"
        message = "Laplace noise is drawn under a pure guarantee"
    else:
        remedy = "give the guarantee a delta, or leave `noise` out"
        message = "Gaussian noise has no pure guarantee"
    return (Problem("/params/noise", message, remedy),)


def _cell_problems(cells: int) -> tuple[Problem, ...]:
    if cells <= MOST_CELLS:
        return ()
    message = f"{cells} cells would be counted; {MOST_CELLS} are the most"
    return (Problem("/params/groups", message, "make smaller groups, or coarser `bins`"),)
