"""What a release can show for its privacy: made from public facts and its journal."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

from app.engine.privacy import queries
from app.engine.privacy.journal import Exchange, JournalEntry, exchanges
from app.engine.privacy.loss import Accountant, Charge, Guarantee, PrivacyLoss
from app.engine.privacy.questions import (
    Counted,
    CountQuestion,
    Quantiled,
    QuantileQuestion,
    Selected,
    SelectQuestion,
)
from app.engine.schema import PrivacyUnit

Assurance = Literal["enforced", "declared"]

_FOUND = {queries.Keys: "key discovery", queries.Values: "discovery of values"}
# The adjacency relation of each unit, as the certificate states it under `neighbours`.
_ROW_ADJACENCY = "two tables that differ by one row, added or removed"
_ENTITY_ADJACENCY = "two tables that differ by all rows of one entity, added or removed"


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One use of noise: what it looked at, how far one unit moves it, and what it cost.

    `scale` is sigma of a discrete Gaussian, b of a discrete Laplace or, for a selection, the
    scale of its noise, in counts (of the heaviest candidate, as with scores), steps of a sum's
    column, or numbers below a quantile.
    """

    question: int
    name: str
    targets: tuple[tuple[str, ...], ...]
    rules: tuple[dict[str, Any], ...]
    noise: str
    scale: float | None
    l1_sensitivity: float | None
    l2_sensitivity: float | None
    loss: PrivacyLoss

    def to_wire(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "mechanism": self.name,
            "columns": [list(columns) for columns in self.targets],
            "contributions": list(self.rules),
            "noise": self.noise,
            "scale": self.scale,
            "sensitivity": {"l1": self.l1_sensitivity, "l2": self.l2_sensitivity},
            "loss": self.loss.as_wire(),
        }


@dataclass(frozen=True, slots=True)
class Certificate:
    """The statement that goes with a release."""

    unit: PrivacyUnit
    guarantee: Guarantee
    accountant: Accountant
    charge: Charge
    allowance: PrivacyLoss
    spent: PrivacyLoss
    mechanisms: tuple[Mechanism, ...]
    synthesizer: Mapping[str, Any]
    assurance: Assurance
    ledger_row_hash: str
    ledger_signature: str | None
    versions: Mapping[str, str]

    @classmethod
    def of_release(
        cls,
        *,
        unit: PrivacyUnit,
        guarantee: Guarantee,
        accountant: Accountant,
        charge: Charge,
        allowance: PrivacyLoss,
        journal: Sequence[JournalEntry],
        synthesizer: Mapping[str, Any],
        assurance: Assurance,
        ledger_row_hash: str,
        ledger_signature: str | None = None,
    ) -> Certificate:
        """`synthesizer` is JSON about the method (name, version, params, public dataset).

        Raises `ValueError` if the journal holds more than the allowance.
        """
        spent = PrivacyLoss(allowance.kind, 0)
        for entry in journal:
            spent = spent + entry.loss
        if not allowance.covers(spent):
            raise ValueError("the journal holds more than the session was allowed")
        return cls(
            unit=unit,
            guarantee=guarantee,
            accountant=accountant,
            charge=charge,
            allowance=allowance,
            spent=spent,
            mechanisms=tuple(each for item in exchanges(journal) for each in _mechanisms(item)),
            synthesizer=synthesizer,
            assurance=assurance,
            ledger_row_hash=ledger_row_hash,
            ledger_signature=ledger_signature,
            versions=versions(),
        )

    def to_wire(self) -> dict[str, Any]:
        """Plain JSON; amounts are decimal text."""
        is_row = self.unit.kind == "row"
        return {
            "unit": self.unit.to_wire(),
            "neighbours": _ROW_ADJACENCY if is_row else _ENTITY_ADJACENCY,
            "guarantee": self.guarantee.as_wire(),
            "accountant": self.accountant.value,
            "charge": self.charge.as_wire(self.accountant),
            "session": {"allowed": self.allowance.as_wire(), "spent": self.spent.as_wire()},
            "mechanisms": [mechanism.to_wire() for mechanism in self.mechanisms],
            "synthesizer": dict(self.synthesizer),
            "assurance": self.assurance,
            "ledger_row_hash": self.ledger_row_hash,
            "ledger_signature": self.ledger_signature,
            "versions": dict(self.versions),
        }


def versions() -> dict[str, str]:
    """The versions that made a release: halftone, opendp and python."""
    return {
        "halftone": _version("halftone"),
        "opendp": _version("opendp"),
        "python": platform.python_version(),
    }


def contribution_to_wire(contribution: queries.Contribution) -> dict[str, Any]:
    """The rule with the one parameter it takes."""
    wire: dict[str, Any] = {"rule": contribution.rule}
    if contribution.limit is not None:
        wire["limit"] = contribution.limit
    if contribution.norm is not None:
        wire["norm"] = contribution.norm
    return wire


def _distinct_rules(counts: Sequence[queries.Count]) -> tuple[dict[str, Any], ...]:
    """The rules of many counts, each once."""
    rules = {repr(count.contribution): count.contribution for count in counts}
    return tuple(contribution_to_wire(rule) for rule in rules.values())


def query_to_wire(query: queries.Query | queries.Keys | queries.Values) -> dict[str, Any]:
    """The rule of a query, with what it counts where that is not cells of its columns."""
    wire = contribution_to_wire(query.contribution)
    match query:
        case queries.Count() if query.function is not None:
            wire["function"] = query.function.to_json()["function"]
            wire["cells"] = query.function.cells
        case queries.Sum():
            wire |= {"sum_of": query.value, "low": query.low, "high": query.high}
        case queries.TupleCount():
            wire |= {"tuples": len(query.tuples), "length": query.tuples.length}
    return wire


def quantile_to_wire(query: queries.Quantile) -> dict[str, Any]:
    """The rule of a quantile, and of which numbers it is, if not of all in a column."""
    match query.of:
        case str() if query.regular_only:
            return {"rule": "rows", "number": "regular values"}
        case str():
            return {"rule": "rows"}
        case queries.TupleNumber():
            return {"rule": "one", "number": "tuples"}
    return {"rule": "one", "number": "rows"}


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def _mechanisms(exchange: Exchange) -> list[Mechanism]:
    question, answer = exchange.question, exchange.answer
    if isinstance(question, CountQuestion) and isinstance(answer, Counted):
        pairs = zip(answer.measurements, question.losses, strict=True)
        return [_histogram(exchange.number, measured, loss) for measured, loss in pairs]
    if isinstance(question, SelectQuestion) and isinstance(answer, Selected):
        return [_selection(exchange.number, question, answer)]
    if isinstance(answer, queries.Scored):
        return [_scores(exchange, answer)]
    if isinstance(question, QuantileQuestion) and isinstance(answer, Quantiled):
        return [_quantile(exchange, question.query, answer)]
    if isinstance(answer, queries.Discovered | queries.FoundValues):
        return [_discovery(exchange, answer)]
    return [_hand_over(exchange)]


def _histogram(number: int, measurement: queries.Measurement, loss: PrivacyLoss) -> Mechanism:
    return Mechanism(
        question=number,
        name=_name(measurement.count),
        targets=(columns_of(measurement.count),),
        rules=(query_to_wire(measurement.count),),
        noise=f"discrete {measurement.noise}",
        scale=measurement.scale,
        l1_sensitivity=measurement.l1_sensitivity,
        l2_sensitivity=measurement.l2_sensitivity,
        loss=loss,
    )


def _name(query: queries.Query) -> str:
    match query:
        case queries.Sum():
            return "clipped sum"
        case queries.TupleCount():
            return "counts of tuples"
    return "histogram" if query.function is None else "histogram of a function"


def columns_of(query: queries.Query) -> tuple[str, ...]:
    """The columns that a query looks at."""
    match query:
        case queries.Sum():
            return (*query.columns, query.value)
        case queries.Count() if query.function is not None:
            return query.function.columns
    return query.columns


def _selection(number: int, question: SelectQuestion, answer: Selected) -> Mechanism:
    counts: list[queries.Count] = [candidate.count for candidate in question.candidates]
    return Mechanism(
        question=number,
        name=f"selection of {question.winners} out of {len(counts)}",
        targets=tuple(counts[winner].columns for winner in answer.winners),
        rules=_distinct_rules(counts),
        noise=answer.mechanism,
        scale=answer.scale,
        l1_sensitivity=answer.sensitivity,
        l2_sensitivity=None,
        loss=question.loss,
    )


def _scores(exchange: Exchange, scored: queries.Scored) -> Mechanism:
    return Mechanism(
        question=exchange.number,
        name=f"scores of {len(scored.counts)} candidates",
        targets=tuple(columns_of(count) for count in scored.counts),
        rules=_distinct_rules(scored.counts),
        noise=f"discrete {scored.noise}",
        scale=float(scored.scale.min()),
        l1_sensitivity=scored.l1_sensitivity,
        l2_sensitivity=scored.l2_sensitivity,
        loss=exchange.loss,
    )


def _quantile(exchange: Exchange, query: queries.Quantile, answer: Quantiled) -> Mechanism:
    return Mechanism(
        question=exchange.number,
        name=f"quantile {query.q:g} out of {len(query.grid)} points",
        targets=(_columns_of_quantile(query),),
        rules=(quantile_to_wire(query),),
        noise=answer.mechanism,
        scale=answer.scale,
        l1_sensitivity=answer.sensitivity,
        l2_sensitivity=None,
        loss=exchange.loss,
    )


def _columns_of_quantile(query: queries.Quantile) -> tuple[str, ...]:
    match query.of:
        case str():
            return (query.of,)
        case queries.TupleNumber():
            return query.of.tuples.columns
    return ()


def _discovery(exchange: Exchange, found: queries.Discovered | queries.FoundValues) -> Mechanism:
    query = found.query
    return Mechanism(
        question=exchange.number,
        name=f"{_FOUND[type(query)]} with threshold {found.threshold}",
        targets=(query.columns if isinstance(query, queries.Keys) else (query.column,),),
        rules=(query_to_wire(query),),
        noise="discrete gaussian",
        scale=found.scale,
        l1_sensitivity=found.l1_sensitivity,
        l2_sensitivity=found.l2_sensitivity,
        loss=exchange.loss,
    )


def _hand_over(exchange: Exchange) -> Mechanism:
    return Mechanism(
        question=exchange.number,
        name="trusted call",
        targets=(),
        rules=({"rule": "rows"},),
        noise="declared by the synthesizer",
        scale=None,
        l1_sensitivity=None,
        l2_sensitivity=None,
        loss=exchange.loss,
    )
