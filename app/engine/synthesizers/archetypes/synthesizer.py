"""The method: a mixture of public rows, and noisy histograms of its components."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.contribution import expected_error, noise_scale
from app.engine.columns.table_size import pooled
from app.engine.inference.projection import onto_simplex
from app.engine.method import (
    Case,
    Example,
    Needs,
    Problem,
    Progress,
    PublicChunks,
    PublicFacts,
    Session,
    Step,
    Synthesizer,
)
from app.engine.method.needs import table_bytes
from app.engine.privacy.functions import evaluate
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Measurement
from app.engine.privacy.wire import MOST_HEADER_BYTES
from app.engine.public.compatibility import fit_problems
from app.engine.public.rows import public_problems, read_public
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.archetypes.mixture import fit_mixture, fitting_seconds
from app.engine.synthesizers.archetypes.model import ArchetypesModel, load_model
from app.engine.synthesizers.archetypes.params import ArchetypesParams, Design
from app.engine.synthesizers.archetypes.tuning import TUNING
from app.engine.table import PublicTable, generator

_ONCE = Contribution("one")

# The table that was read, its codes in the private dictionary, the model's, and what sorts them.
_COPIES_OF_PUBLIC = 6

# Arrays of rows by components that expectation-maximisation holds.
_ARRAYS_OF_FIT = 6

# A double in JSON.
_BYTES_PER_NUMBER = 25


class Archetypes(Synthesizer):
    name = "archetypes"
    title = "Entities by archetype, learnt from public rows"
    reference = "GooseDP (2021), NIST Temporal Map Challenge, third sprint"
    uses_public = "required"
    Params = ArchetypesParams
    example = Example(params={"preset": "sprint3"}, guarantee={"epsilon": 1, "delta": "2.5e-5"})

    def needs(self, case: Case, params: ArchetypesParams) -> Needs:
        design = Design(params, case.schema, case.unit)
        of_public = public_problems(
            case.schema, case.unit, case.public, design.public_columns, needs_entities=True
        )
        if problems := design.problems():
            return Needs(problems=problems + of_public)
        cells = sum(design.question_cells)
        errors = [
            expected_error(_ONCE, 1, part) for part in case.budget.split(design.weights(case.loss))
        ]
        # Columns that are neither counted nor given are copied from public rows, at no time worth
        # a forecast.
        return _public_needs(design, case.public) + Needs(
            cells=cells,
            memory_bytes=table_bytes(len(design.columns), case.limits),
            draws=cells,
            # Memory is for all columns; time was measured for those with cells.
            columns=len(design.axes.names),
            header_cells=design.axes.header_cells,
            noise_scale=noise_scale(errors, _ONCE),
            expected_error=errors[0],
            problems=of_public + _mixture_problems(design),
        )

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
        answers = session.count(design.questions(mixture), loss, design.weights(loss))
        progress(0.9, "post-processing")
        entities = max(0, round(pooled([_total(answer) for answer in answers])))
        shares = [
            _shares(answer.values, entities, params.post_processing)
            for answer in answers[: 1 + len(design.attributes)]
        ]
        attributes = dict(zip(design.attributes, shares[1:], strict=True))
        row_shares = None
        if design.row_cells is not None:
            row_counts = _without_noisy_tail(answers[-1])
            row_shares = _shares(row_counts, entities, params.post_processing)
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
            row_shares=row_shares,
            entities=entities,
            most_rows=params.most_rows,
            unit=session.unit,
        )

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> ArchetypesModel:
        return load_model(schema, unit, data)


def _keys(rng: np.random.Generator, length: int) -> NDArray[np.uint64]:
    """Keys that break ties between public rows; the same where a run is started again."""
    return rng.integers(2**64, size=length, dtype=np.uint64)


def _public_needs(design: Design, public: PublicFacts | None) -> Needs:
    """What reading public rows and fitting the mixture to them need."""
    if public is None:
        return Needs()
    components = design.params.components
    read = 8 * public.rows * (len(design.public_columns) + 2)
    fitted = 8 * min(public.rows, TUNING.most_fitted_rows) * components
    fitting = Step(
        fitting_seconds(public.rows, components),
        f"fitting {components} components",
        "choose fewer",
        "/params/components",
    )
    return Needs(
        memory_bytes=_COPIES_OF_PUBLIC * read + _ARRAYS_OF_FIT * fitted,
        message_bytes=read,
        steps=(fitting,),
    )


def _mixture_problems(design: Design) -> tuple[Problem, ...]:
    """A mixture is sent to the kernel in a header, which is bounded."""
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
    """Noisy numbers of entities with 1, 2, ... rows, the last cell for "as many or more": up to
    where the sum of all further cells is no more than noise."""
    # Few entities have nearly the most rows. Positive noise in empty cells up there would
    # add entities of many rows each; summed up, it is near zero.
    values = answer.values.ravel()
    tails = np.cumsum(values[::-1])[::-1]
    errors = answer.standard_error * np.sqrt(np.arange(values.size, 0, -1))
    noise = np.flatnonzero(tails <= TUNING.tail_errors * errors)
    last = max(0, int(noise[0]) - 1) if noise.size else values.size - 1
    return np.append(values[:last], tails[last])


def _shares(values: NDArray[np.int64], entities: int, rule: str) -> NDArray[np.float64]:
    """Shares that add up to 1; even ones if nothing is left."""
    counts = values.ravel().astype(np.float64)
    positive = np.maximum(counts, 0) if rule == "clip" else onto_simplex(counts, entities)
    total = positive.sum()
    return positive / total if total > 0 else np.full(counts.size, 1 / counts.size)
