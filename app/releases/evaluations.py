"""Measured distances of a release from the private table: charged, so that analysts may ask.

An evaluation is itself a release, of the same rows: model and first sample are those of the
evaluated one, drawn again from the same seed. What it adds is the kernel's noisy answers. So a
charge always belongs to a release with certificate, journal and measurements, and nothing that is
true of releases has an exception.

It measures the number of rows N, as n, and for each column and pair of columns D, the L1 distance
in rows between the exact marginal h and n p, with p the synthetic shares. If |n - N| <= e, the
triangle inequality gives L1(h, N p) within e of L1(h, n p), so the total variation distance
L1(h, N p) / 2N lies between (D - e) / 2(n + e) and (D + e) / 2(n - e).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from app.engine.catalog import registry
from app.engine.json_pointer import pointer
from app.engine.marginals import Marginal
from app.engine.method import Preflight
from app.engine.privacy.journal import Record
from app.engine.privacy.limits import LARGEST_SCALE
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count, Measurement, Scored
from app.engine.privacy.scores import expected_distance_errors
from app.engine.privacy.sensitivity import GRID
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.ledger.schemas import GuaranteeIn
from app.ledger.terms import Terms
from app.problems import Conflict, FieldError, Invalid, NotFound
from app.releases import results
from app.releases.costing import Costing
from app.releases.facts import Facts
from app.releases.models import ReleaseRow
from app.releases.schemas import Form
from app.settings import Settings

# Parts of the loss for the number of rows and for the distances. All distances are divided by the
# number, but there is one of it and many of them.
PARTS = (1, 9)
MOST_PAIRS = 1000
# Cells of all references together, which travel in one question.
MOST_CELLS = 2**22
CONFIDENCE = 0.9
# Two-sided 95 % for each of the two noisy numbers of a distance: together 90 %.
_DEVIATIONS = 1.959963984540054


class EvaluationIn(Form):
    """What to measure, and under which guarantee."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"guarantee": {"epsilon": "0.5"}, "pairs": [["shift", "payment_type"]]}]
        }
    )

    guarantee: GuaranteeIn = Field(description="What it costs, as for a release.")
    pairs: list[list[str]] | None = Field(
        None,
        max_length=MOST_PAIRS,
        description="Pairs of columns to measure beside every single column; omitted: all pairs."
        " Fewer pairs have less noise.",
    )


class MeasuredDistanceOut(BaseModel):
    """How far the rows are from the private table on some columns."""

    columns: list[str] = Field(description="One column, or two.", examples=[["shift"]])
    cells: int = Field(description="Cells of the marginal.", examples=[5])
    distance: float = Field(
        description="Total variation distance, estimated from the noisy answers, within [0, 1].",
        examples=[0.031],
    )
    standard_error: float = Field(
        description="Of the noise in the distance, before it was brought into [0, 1].",
        examples=[0.004],
    )
    interval: list[float] = Field(
        description="Holds the distance with a probability of at least 90 %.",
        examples=[[0.02, 0.043]],
    )


class EvaluationOut(BaseModel):
    """Noisy distances of a release's first sample, measured by the kernel."""

    release_id: str = Field(
        description="The evaluation itself, which is a release.",
        examples=["rl_k3v9xq2mzt7hsd4nw8cb"],
    )
    evaluates: str = Field(
        description="The release that it evaluates.", examples=["rl_p6wqj3ytm8kz5hvc2nxd"]
    )
    confidence: float = Field(description="Of each interval.", examples=[0.9])
    rows: float = Field(description="Noisy number of private rows that count.", examples=[5012])
    columns: list[MeasuredDistanceOut] = Field(description="Every column of the sample.")
    pairs: list[MeasuredDistanceOut] = Field(description="The pairs that were measured.")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The release that an evaluation is of, and the pairs that are measured."""

    release_id: str
    pairs: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    seed: int

    @classmethod
    def of(cls, release: ReleaseRow, schema: Schema, form: EvaluationIn) -> Evaluated:
        """Raises `Conflict` for a release that cannot be evaluated, `Invalid` for wrong pairs."""
        results.check_published(release)
        if release.evaluates is not None:
            raise Conflict("The release is an evaluation itself: evaluate the one that it is of.")
        if release.statement is None:
            raise Conflict("The release is older than statements, and cannot be evaluated.")
        columns = tuple(each["column"] for each in release.statement["columns"])
        found = [name for name in columns if schema.column(name).discovers is not None]
        if found:
            raise Conflict(
                "The release has columns whose values it discovered, which another run would have"
                f" to discover anew: {', '.join(found)}."
            )
        return cls(release.id, _pairs(columns, schema, form), columns, release.seed)

    def to_json(self) -> dict[str, Any]:
        return {"release": self.release_id, "columns": self.columns, "pairs": self.pairs}

    def marginals(self, schema: Schema) -> tuple[Marginal, ...]:
        return marginals(self.to_json(), schema)


def marginals(evaluates: Mapping[str, Any], schema: Schema) -> tuple[Marginal, ...]:
    """What is measured, as stored with the release: columns first, in the dictionary's cells."""
    chosen = [*([name] for name in evaluates["columns"]), *evaluates["pairs"]]
    return tuple(
        Marginal({name: schema.column(name).grouping for name in names}) for names in chosen
    )


def counts_of(measured: Sequence[Marginal]) -> tuple[Count, ...]:
    """All rows of a unit count, as they do in the report's exact distances."""
    return tuple(Count(each.columns, dict(each.groupings)) for each in measured)


def _pairs(
    columns: Sequence[str], schema: Schema, form: EvaluationIn
) -> tuple[tuple[str, str], ...]:
    if form.pairs is None:
        pairs = list(combinations(columns, 2))
    else:
        faults = list(_faults(form.pairs, columns))
        if faults:
            raise Invalid("The evaluation cannot be made as requested.", errors=faults)
        pairs = [(first, second) for first, second in form.pairs]
    cells = [schema.column(name).grouping.cells for name in columns]
    product = sum(
        schema.column(first).grouping.cells * schema.column(second).grouping.cells
        for first, second in pairs
    )
    if len(pairs) > MOST_PAIRS or sum(cells) + product > MOST_CELLS:
        raise Invalid.at(
            "/pairs",
            f"At most {MOST_PAIRS} pairs and {MOST_CELLS} cells can be measured at once.",
            "Name fewer pairs, or [] for single columns alone.",
        )
    return tuple(pairs)


def _faults(pairs: Sequence[Sequence[str]], columns: Sequence[str]) -> Iterator[FieldError]:
    seen: set[frozenset[str]] = set()
    for place, pair in enumerate(pairs):
        at = pointer("pairs", place)
        if len(pair) != 2 or len(set(pair)) != 2:
            yield FieldError(at, "A pair is two different columns.", "Name two columns.")
        elif not set(pair) <= set(columns):
            yield FieldError(
                at, "The release does not model such a column.", "Name columns of its sample."
            )
        elif frozenset(pair) in seen:
            yield FieldError(at, "The pair is given twice.", "Keep one of them.")
        seen.add(frozenset(pair))


def costed(
    release: ReleaseRow, evaluated: Evaluated, facts: Facts, form: EvaluationIn, settings: Settings
) -> Costing:
    """What it costs and the noise that it has, from public facts. Raises `Invalid`."""
    try:
        entry = registry.entry(release.synthesizer, settings.declared)
    except registry.UnknownSynthesizer:
        raise Conflict("The release's method is not installed any more.") from None
    terms = Terms.of(form.guarantee.to_guarantee(), facts.accountant)
    measured = evaluated.marginals(facts.schema)
    error = _expected_error(measured, facts.unit, terms.loss)
    if error * GRID > LARGEST_SCALE:
        raise Invalid.at(
            "/guarantee",
            "The noise would be larger than the kernel draws.",
            "Ask for a larger epsilon, or for fewer pairs.",
        )
    cells = sum(each.cells for each in measured)
    preflight = Preflight(cells=cells, memory_bytes=0, expected_error=error)
    return Costing(entry, dict(release.params), terms, preflight, ())


def _expected_error(measured: Sequence[Marginal], unit: PrivacyUnit, loss: PrivacyLoss) -> float:
    _, rest = loss.split(PARTS)
    counts = counts_of(measured)
    errors = expected_distance_errors(counts, [1.0] * len(counts), UnitBudget(unit, rest))
    return max(errors)


def figures(session: Session, release: ReleaseRow, schema: Schema) -> EvaluationOut:
    """The distances of a published evaluation. Raises `NotFound` for other releases."""
    results.check_published(release)
    if release.evaluates is None:
        raise NotFound
    total, scored = _answers(results.records(session, release))
    measured = marginals(release.evaluates, schema)
    distances = [
        distance(each, float(value), float(error), total)
        for each, value, error in zip(measured, scored.values, scored.standard_error, strict=True)
    ]
    single = len(release.evaluates["columns"])
    return EvaluationOut(
        release_id=release.id,
        evaluates=release.evaluates["release"],
        confidence=CONFIDENCE,
        rows=float(total.values),
        columns=distances[:single],
        pairs=distances[single:],
    )


def _answers(records: Sequence[Record]) -> tuple[Measurement, Scored]:
    total, scored = (record.answer for record in records)
    assert isinstance(total, Measurement)
    assert isinstance(scored, Scored)
    return total, scored


def size(total: Measurement) -> float:
    """The number of rows that references are scaled to: a noisy one may be negative."""
    return max(float(total.values), 1.0)


def distance(
    marginal: Marginal, value: float, error: float, total: Measurement
) -> MeasuredDistanceOut:
    """value: the noisy L1 distance in rows, of this standard error. See the module's text."""
    rows = size(total)
    off = _DEVIATIONS * total.standard_error + abs(rows - float(total.values))
    noise = _DEVIATIONS * error
    low = (value - noise - off) / (2 * (rows + off))
    high = (value + noise + off) / (2 * (rows - off)) if rows > off else math.inf
    return MeasuredDistanceOut(
        columns=list(marginal.columns),
        cells=marginal.cells,
        distance=_within(value / (2 * rows)),
        standard_error=error / (2 * rows),
        interval=[_within(low), _within(high)],
    )


def _within(distance: float) -> float:
    return min(max(distance, 0.0), 1.0)
