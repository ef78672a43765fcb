"""`linked_histograms`: what a run costs, asks and makes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.contribution import expected_error, noise_problems
from app.engine.columns.resources import message_problems, run_problems, table_bytes
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
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Discovered, Measurement
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.public.compatibility import fit_problems
from app.engine.public.rows import PublicRows, public_problems, read_public
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.linked_histograms.expected import (
    bought_means,
    public_means,
)
from app.engine.synthesizers.linked_histograms.model import LinkedHistogramsModel
from app.engine.synthesizers.linked_histograms.params import LinkedHistogramsParams
from app.engine.synthesizers.linked_histograms.plan import BoughtMean, Plan
from app.engine.synthesizers.linked_histograms.planning import make_plan
from app.engine.synthesizers.linked_histograms.post_processing import (
    PostProcessing,
    fitted_model,
)
from app.engine.table import PublicTable, generator

MOST_CELLS = 10_000_000
MOST_NUMBERED = 2**62
"""Cells of a group that is discovered are numbered in 64 bits."""

_BYTES_PER_CELL = 120
"""Counts, noise and their copy through the pipe, then the sort of the projection."""


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

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: LinkedHistogramsParams,
        loss: PrivacyLoss,
        public: PublicFacts | None,
        limits: Limits,
    ) -> Preflight:
        plan, bought, problems = make_plan(schema, params, UnitBudget(unit, loss))
        problems += _noise_kind_problems(params, loss)
        pools = params.uses_prior(public is not None)
        if params.reads_public(public is not None):
            problems += public_problems(
                schema, unit, public, _read(plan, pools), needs_entities=pools
            )
        problems += _discovery_problems(plan, loss)
        if problems:
            return Preflight(plan.cells, 0, 0.0, problems)
        means, histograms = _parts(loss, params, bought)
        errors = _errors(plan, UnitBudget(unit, histograms)) + tuple(
            expected_error(Contribution(), 1, part)
            for part in UnitBudget(unit, means).split([1.0] * 2 * max(len(bought), 1))
            if bought
        )
        cells = plan.cells + sum(2 * plan.links[each.link].given.cells for each in bought)
        memory = cells * _BYTES_PER_CELL + table_bytes(len(plan.output), limits)
        problems += _cell_problems(cells) + noise_problems(errors, Contribution())
        for group in plan.groups:
            problems += message_problems(group.axes)
        problems += run_problems(memory, cells, limits, len(plan.output))
        return Preflight(cells, memory, errors[-1] if not bought else errors[1], problems)

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
        plan, bought, _ = make_plan(session.schema, params, allowance)
        rows = None
        pools = params.uses_prior(public is not None)
        if params.reads_public(public is not None):
            assert public is not None, "check refuses a request without"
            rows = read_public(public, session.schema, _read(plan, pools))
        means, histograms = _parts(session.allowance, params, bought)
        progress(0.0, "counting")
        answers, found = _asked(session, plan, histograms)
        progress(0.6, "expected values")
        expected = self._expected(session, plan, bought, means, rows)
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

    def _expected(
        self,
        session: Session,
        plan: Plan,
        bought: tuple[BoughtMean, ...],
        loss: PrivacyLoss,
        public: PublicRows | None,
    ) -> tuple[NDArray[np.float64], ...]:
        asked = [query for each in bought for query in each.questions(plan)]
        answers = session.count(asked, loss) if asked else ()
        means = {
            each.link: bought_means(answers[2 * i], answers[2 * i + 1])
            for i, each in enumerate(bought)
        }
        for i, link in enumerate(plan.links):
            if i not in means:
                assert public is not None
                means[i] = public_means(link, public, session.schema)
        return tuple(means[i] for i in range(len(plan.links)))


def _read(plan: Plan, pools: bool) -> tuple[str, ...]:
    """The public columns that are looked at."""
    if pools:
        return plan.columns
    linked = [name for link in plan.links for name in (*link.given.names, link.value)]
    return tuple(dict.fromkeys(linked))


def _parts(
    loss: PrivacyLoss, params: LinkedHistogramsParams, bought: tuple[BoughtMean, ...]
) -> tuple[PrivacyLoss, PrivacyLoss]:
    """What buys expected values, and what buys the histograms, with all of delta."""
    share = params.expected_share if bought else 0.0
    means, rest = PrivacyLoss(loss.kind, loss.amount).split([share, 1 - share])
    return means, PrivacyLoss(loss.kind, rest.amount, loss.delta)


def _asked(
    session: Session, plan: Plan, loss: PrivacyLoss
) -> tuple[tuple[Measurement, ...], dict[int, Discovered]]:
    """Answers to `plan.questions()`, and what was found of each group to discover."""
    questions, shares = plan.questions(), plan.shares(session.unit)
    parts = PrivacyLoss(loss.kind, loss.amount).split(shares)
    counted = PrivacyLoss(loss.kind, sum(part.amount for part in parts[: len(questions)]))
    answers = session.count(questions, counted, shares[: len(questions)])
    found = {}
    for i, part in zip(plan.discovered, parts[len(questions) :], strict=True):
        share = PrivacyLoss(loss.kind, part.amount, loss.delta // len(plan.discovered))
        found[i] = session.discover(plan.groups[i].keys(plan.samples), share)
    return answers, found


def _errors(plan: Plan, budget: UnitBudget) -> tuple[float, ...]:
    """Standard deviations of the noise of `plan.questions()`, which are all alike."""
    cells = [1, *([] if plan.most_rows is None else [plan.most_rows])]
    cells += [plan.groups[i].axes.cells for i in plan.listed]
    parts = budget.split(plan.shares(budget.unit))
    return tuple(
        expected_error(question.contribution, size, part)
        for question, size, part in zip(plan.questions(), cells, parts, strict=False)
    )


def _discovery_problems(plan: Plan, loss: PrivacyLoss) -> tuple[Problem, ...]:
    if not plan.discovered:
        return ()
    if loss.kind == "pure":
        message = "a pure guarantee cannot buy the discovery of cells"
        return (Problem("/guarantee", message, "give it a delta, or count declared cells"),)
    if loss.delta < len(plan.discovered):
        message = "the discovery of cells takes some of delta, and this guarantee has none for it"
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
