"""The synthesizer itself: what is learnt from public rows, asked of the kernel, and kept."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.contribution import expected_error, noise_problems
from app.engine.columns.resources import (
    message_problems,
    run_problems,
    table_bytes,
    time_problems,
)
from app.engine.columns.table_size import pooled
from app.engine.inference.projection import onto_simplex
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
from app.engine.privacy.functions import evaluate
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Measurement
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.privacy.wire import MOST_HEADER_BYTES
from app.engine.public.compatibility import fit_problems
from app.engine.public.rows import public_problems, read_public
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.archetypes.mixture import (
    MOST_FITTED_ROWS,
    fit_mixture,
    fitting_seconds,
)
from app.engine.synthesizers.archetypes.model import ArchetypesModel, load_model
from app.engine.synthesizers.archetypes.params import ArchetypesParams, Design
from app.engine.table import PublicTable, generator

_ONCE = Contribution("one")

_TAIL_STANDS_OUT = 3.0
"""Standard errors by which the sum of the last cells of bought row numbers must pass zero."""

_COPIES_OF_PUBLIC = 6
"""The table that came, its private codes, the model's, and what sorts them."""

_STEPS_IN_MEMORY = 6
"""Arrays of rows by components that expectation-maximisation holds."""

_BYTES_PER_NUMBER = 25
"""Of a double in JSON."""


class Archetypes(Synthesizer):
    name = "archetypes"
    title = "Entities by archetype, learnt from public rows"
    reference = "GooseDP (2021), NIST Temporal Map Challenge, third sprint"
    uses_public = "required"
    Params = ArchetypesParams
    example = Example(
        params={"preset": "sprint3"},
        guarantee={"epsilon": 1, "delta": "2.5e-5"},
    )

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: ArchetypesParams,
        loss: PrivacyLoss,
        public: PublicFacts | None,
        limits: Limits,
    ) -> Preflight:
        design = Design(params, schema, unit)
        problems = design.problems()
        if problems:
            return Preflight(0, 0, 0.0, problems + _public_problems(design, public))
        cells = sum(design.question_cells)
        memory = _memory(design, public, limits)
        errors = _errors(design, loss)
        problems = (
            _public_problems(design, public)
            + message_problems(design.axes, _public_bytes(design, public))
            + noise_problems(errors, _ONCE)
            + run_problems(memory, cells, limits, len(design.axes.names))
            + _time_problems(design, public, limits)
            + _mixture_problems(design)
        )
        return Preflight(cells, memory, errors[0], problems)

    def check_public(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: ArchetypesParams,
        loss: PrivacyLoss,
        public: PublicChunks,
    ) -> tuple[Problem, ...]:
        del loss
        return fit_problems(schema, public, Design(params, schema, unit).public_columns)

    def fit(
        self,
        session: Session,
        params: ArchetypesParams,
        public: PublicTable | None,
        seed: int,
        progress: Progress,
    ) -> ArchetypesModel:
        if public is None:
            raise ValueError("archetypes are learnt from a public table")
        design = Design(params, session.schema, session.unit)
        rng = generator(seed)
        progress(0.02, "reading public rows")
        known = read_public(public, session.schema, design.public_columns)
        known = known.for_unit(session.unit)
        progress(0.1, "fitting the mixture")
        mixture = fit_mixture(
            known,
            session.schema,
            design.features,
            params.components,
            params.covariance,
            params.regularisation,
            rng,
        )
        archetype = evaluate(
            mixture, known.codes, known.entity, session.schema, partial(_keys, rng)
        )
        progress(0.6, "counting entities")
        loss = PrivacyLoss(session.allowance.kind, session.allowance.amount)
        answers = session.count(design.questions(mixture), loss, design.shares(loss))
        progress(0.9, "post-processing")
        entities = max(0, round(pooled([_total(answer) for answer in answers])))
        bought = None if design.row_cells is None else _without_noisy_tail(answers[-1])
        shares = [
            _shares(answer.values, entities, params.post_processing)
            for answer in answers[: 1 + len(design.attributes)]
        ]
        attributes = dict(zip(design.attributes, shares[1:], strict=True))
        return ArchetypesModel(
            axes=design.axes,
            binned=tuple(params.bins),
            core=design.core,
            links=design.links,
            public=known,
            archetype=archetype,
            archetype_shares=shares[0],
            attribute_shares=attributes,
            attributes_per=params.attributes_per,
            rows_rule=design.rows_rule,
            bought=None if bought is None else _shares(bought, entities, params.post_processing),
            entities=entities,
            most_rows=params.most_rows,
            unit=session.unit,
        )

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> ArchetypesModel:
        return load_model(schema, unit, data)


def _keys(rng: np.random.Generator, length: int) -> NDArray[np.uint64]:
    """Keys that break ties between public rows; the same on a run that is started again."""
    return rng.integers(2**64, size=length, dtype=np.uint64)


def _public_problems(design: Design, public: PublicFacts | None) -> tuple[Problem, ...]:
    return public_problems(
        design.schema, design.unit, public, design.public_columns, needs_entities=True
    )


def _errors(design: Design, loss: PrivacyLoss) -> list[float]:
    parts = UnitBudget(design.unit, loss).split(design.shares(loss))
    return [expected_error(_ONCE, 1, part) for part in parts]


def _public_bytes(design: Design, public: PublicFacts | None) -> int:
    return 0 if public is None else 8 * public.rows * (len(design.public_columns) + 2)


def _memory(design: Design, public: PublicFacts | None, limits: Limits) -> int:
    fitted = 0 if public is None else min(public.rows, MOST_FITTED_ROWS)
    return (
        _COPIES_OF_PUBLIC * _public_bytes(design, public)
        + _STEPS_IN_MEMORY * 8 * fitted * design.params.components
        + table_bytes(len(design.columns), limits)
    )


def _time_problems(
    design: Design, public: PublicFacts | None, limits: Limits
) -> tuple[Problem, ...]:
    components = design.params.components
    seconds = 0.0 if public is None else fitting_seconds(public.rows, components)
    doing = f"fitting {components} components"
    return time_problems(seconds, doing, "choose fewer", limits, "/params/components")


def _mixture_problems(design: Design) -> tuple[Problem, ...]:
    """A mixture too large to be told to the kernel, whose questions have a bounded header."""
    width, components = len(design.features), design.params.components
    precision = width**2 if design.params.covariance == "full" else width
    if components * (precision + width + 1) * _BYTES_PER_NUMBER <= MOST_HEADER_BYTES // 2:
        return ()
    message = f"a mixture of {components} components over {width} columns is too large"
    remedy = "choose fewer of either, or the covariance `diag`"
    return (Problem("/params/components", message, remedy),)


def _total(answer: Measurement) -> tuple[float, float]:
    """Each histogram counts every entity once: its sum estimates their number."""
    return float(answer.values.sum()), answer.variance * answer.values.size


def _without_noisy_tail(answer: Measurement) -> NDArray[np.int64]:
    """Noisy row numbers, the last of them "so many or more", up to where they still stand out.

    Most units are far below the most rows that one may have. Each empty cell up there would
    keep what positive noise it has, which is much where rows are many; the sum of those
    cells is near zero, and ends the histogram.
    """
    values = answer.values.ravel()
    tails = np.cumsum(values[::-1])[::-1]
    errors = answer.standard_error * np.sqrt(np.arange(values.size, 0, -1))
    lost = np.flatnonzero(tails <= _TAIL_STANDS_OUT * errors)
    last = max(0, int(lost[0]) - 1) if lost.size else values.size - 1
    return np.append(values[:last], tails[last])


def _shares(values: NDArray[np.int64], entities: int, rule: str) -> NDArray[np.float64]:
    """Shares that add up to 1; even ones if nothing is left."""
    counts = values.ravel().astype(np.float64)
    kept = np.maximum(counts, 0) if rule == "clip" else onto_simplex(counts, entities)
    total = kept.sum()
    return kept / total if total > 0 else np.full(counts.size, 1 / counts.size)
