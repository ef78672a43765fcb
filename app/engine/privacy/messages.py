"""Questions and answers as frames, and back.

Decoding trusts nothing: a frame of the wrong form is a `FrameError`, a well-formed question
that is not allowed a `QuestionRefused`. A question is encoded in one way only, so that its
SHA-256 tells whether a replayed run asks the same again.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.loss import AmountError, PrivacyLoss
from app.engine.privacy.packing import Packing, Unpacking, allowed
from app.engine.privacy.queries import (
    SCORE_STEP,
    Count,
    Discovered,
    FoundValues,
    Keys,
    Measurement,
    Noise,
    Query,
    Scored,
    Values,
)
from app.engine.privacy.query_fields import Fields, integer, number, one_of, text
from app.engine.privacy.questions import (
    Answer,
    Counted,
    CountQuestion,
    DiscoverQuestion,
    HandedOver,
    Mechanism,
    Quantiled,
    QuantileQuestion,
    Question,
    ScoreQuestion,
    Selected,
    SelectQuestion,
    TrustedQuestion,
    ValuesQuestion,
)
from app.engine.privacy.wire import Frame, FrameError, narrowed, pack
from app.engine.table import Table

_LOSS_KINDS: tuple[Literal["pure", "zcdp"], ...] = ("pure", "zcdp")
_MEASURED = {"noise", "scale", "standard_error", "l1", "l2"}
_NOISES: tuple[Noise, ...] = ("gaussian", "laplace")
_MECHANISMS: tuple[Mechanism, ...] = ("gumbel", "permute-and-flip")


def question_digest(packed: bytes) -> str:
    """SHA-256, in hex, of a packed question."""
    return hashlib.sha256(packed).hexdigest()


def loss_to_json(loss: PrivacyLoss) -> dict[str, Any]:
    """A loss in its integer units, as JSON."""
    return {"kind": loss.kind, "amount": loss.amount, "delta": loss.delta}


def loss_from_json(value: Any) -> PrivacyLoss:
    """Raises `FrameError` for anything but a loss."""
    wire = Fields(value, {"kind", "amount", "delta"})
    kind = one_of(_LOSS_KINDS, wire.text("kind"))
    try:
        return PrivacyLoss(kind, wire.integer("amount"), wire.integer("delta"))
    except AmountError:
        raise FrameError("this is no privacy loss") from None


def encode_question(question: Question) -> Frame:
    packing = Packing()
    header: dict[str, Any]
    match question:
        case CountQuestion():
            header = {
                "type": "count",
                "queries": [packing.query(query) for query in question.queries],
                "shares": None if question.shares is None else list(map(float, question.shares)),
            }
        case SelectQuestion():
            header = {
                "type": "select",
                "candidates": [packing.candidate(each) for each in question.candidates],
                "winners": question.winners,
            }
        case ScoreQuestion():
            header = {
                "type": "scores",
                "candidates": [packing.candidate(each) for each in question.candidates],
            }
        case QuantileQuestion():
            header = {"type": "quantile", "query": packing.quantile(question.query)}
        case DiscoverQuestion():
            header = {"type": "discover", "query": packing.keys(question.query)}
        case ValuesQuestion():
            query = question.query
            header = {"type": "values", "column": query.column, "limit": query.limit}
        case TrustedQuestion():
            header = {"type": "trusted"}
    header["groupings"] = packing.groupings
    return Frame({**header, "loss": loss_to_json(question.loss)}, tuple(packing.arrays))


def pack_question(question: Question) -> bytes:
    """The one canonical form of a question, whose digest identifies it."""
    return pack(encode_question(question))


def decode_question(frame: Frame) -> Question:
    """Raises `FrameError` (not a question) or `QuestionRefused` (not an allowed one)."""
    kind = frame.header.get("type")
    common = {"type", "loss", "groupings"}
    if kind == "trusted":
        return TrustedQuestion(loss_from_json(Fields(frame.header, common).value("loss")))
    if kind == "count":
        wire = Fields(frame.header, common | {"queries", "shares"})
        unpacking = Unpacking.of(wire, frame.arrays)
        shares = wire.value("shares")
        return CountQuestion(
            tuple(unpacking.query(query) for query in wire.items("queries")),
            loss_from_json(wire.value("loss")),
            None if shares is None else tuple(map(number, wire.items("shares"))),
        )
    if kind == "select":
        wire = Fields(frame.header, common | {"candidates", "winners"})
        unpacking = Unpacking.of(wire, frame.arrays)
        return SelectQuestion(
            tuple(unpacking.candidate(each) for each in wire.items("candidates")),
            loss_from_json(wire.value("loss")),
            wire.integer("winners"),
        )
    if kind == "scores":
        wire = Fields(frame.header, common | {"candidates"})
        unpacking = Unpacking.of(wire, frame.arrays)
        candidates = tuple(unpacking.candidate(each) for each in wire.items("candidates"))
        return ScoreQuestion(candidates, loss_from_json(wire.value("loss")))
    if kind == "quantile" or kind == "discover":
        wire = Fields(frame.header, common | {"query"})
        unpacking = Unpacking.of(wire, frame.arrays)
        query, loss = wire.value("query"), loss_from_json(wire.value("loss"))
        if kind == "quantile":
            return QuantileQuestion(unpacking.quantile(query), loss)
        return DiscoverQuestion(unpacking.keys(query), loss)
    if kind == "values":
        wire = Fields(frame.header, common | {"column", "limit"})
        column, limit = wire.text("column"), wire.integer("limit")
        return ValuesQuestion(
            allowed(lambda: Values(column, limit)), loss_from_json(wire.value("loss"))
        )
    raise FrameError("this is no question")


def encode_answer(answer: Answer) -> Frame:
    match answer:
        case Counted():
            parts = [_measurement_to_json(each) for each in answer.measurements]
            values = tuple(narrowed(each.values) for each in answer.measurements)
            return Frame({"type": "counted", "measurements": parts}, values)
        case Selected():
            return Frame(
                {
                    "type": "selected",
                    "winners": list(answer.winners),
                    "mechanism": answer.mechanism,
                    "scale": answer.scale,
                    "sensitivity": answer.sensitivity,
                }
            )
        case Scored():
            return _scored_frame(answer)
        case Quantiled():
            return Frame(
                {
                    "type": "quantiled",
                    "value": answer.value,
                    "mechanism": answer.mechanism,
                    "scale": answer.scale,
                    "sensitivity": answer.sensitivity,
                }
            )
        case Discovered():
            return _discovered_frame(answer)
        case FoundValues():
            return _found_frame(answer)
        case HandedOver():
            return _table_frame(answer.table)


def decode_answer(question: Question, frame: Frame) -> Answer:
    """The answer to `question`. Raises `FrameError`."""
    kind = frame.header.get("type")
    if kind == "counted" and isinstance(question, CountQuestion):
        parts = Fields(frame.header, {"type", "measurements"}).items("measurements")
        if not len(parts) == len(frame.arrays) == len(question.queries):
            raise FrameError("there is one measurement for each query")
        return Counted(
            tuple(
                _measurement_from_json(query, part, values)
                for query, part, values in zip(question.queries, parts, frame.arrays, strict=True)
            )
        )
    if kind == "selected" and isinstance(question, SelectQuestion):
        wire = Fields(frame.header, {"type", "winners", "mechanism", "scale", "sensitivity"})
        mechanism = one_of(_MECHANISMS, wire.text("mechanism"))
        winners = tuple(integer(winner) for winner in wire.items("winners"))
        return Selected(winners, mechanism, wire.number("scale"), wire.number("sensitivity"))
    if kind == "scored" and isinstance(question, ScoreQuestion):
        return _scored(tuple(each.count for each in question.candidates), frame)
    if kind == "quantiled" and isinstance(question, QuantileQuestion):
        wire = Fields(frame.header, {"type", "value", "mechanism", "scale", "sensitivity"})
        mechanism = one_of(_MECHANISMS, wire.text("mechanism"))
        value, scale = wire.number("value"), wire.number("scale")
        return Quantiled(value, mechanism, scale, wire.number("sensitivity"))
    if kind == "discovered" and isinstance(question, DiscoverQuestion):
        return _discovered(question.query, frame)
    if kind == "found" and isinstance(question, ValuesQuestion):
        return _found(question.query, frame)
    if kind == "handed_over" and isinstance(question, TrustedQuestion):
        return HandedOver(_table(frame))
    raise FrameError("this is no answer to the question")


def _measurement_to_json(measurement: Measurement) -> dict[str, Any]:
    wire = {
        "noise": measurement.noise,
        "scale": measurement.scale,
        "standard_error": measurement.standard_error,
        "l1": measurement.l1_sensitivity,
        "l2": measurement.l2_sensitivity,
    }
    return wire if measurement.step == 1 else wire | {"step": measurement.step}


def _measurement_from_json(query: Query, value: Any, values: NDArray[Any]) -> Measurement:
    stepped = isinstance(value, dict) and "step" in value
    wire = Fields(value, _MEASURED | {"step"} if stepped else _MEASURED)
    noise = one_of(_NOISES, wire.text("noise"))
    return Measurement(
        count=query,
        values=values.astype(np.int64),
        noise=noise,
        scale=wire.number("scale"),
        standard_error=wire.number("standard_error"),
        l1_sensitivity=wire.number("l1"),
        l2_sensitivity=wire.number("l2"),
        step=wire.number("step") if stepped else 1.0,
    )


def _scored_frame(scored: Scored) -> Frame:
    header = {
        "type": "scored",
        "noise": scored.noise,
        "l1": scored.l1_sensitivity,
        "l2": scored.l2_sensitivity,
    }
    steps = np.rint(scored.values / SCORE_STEP).astype(np.int64)
    floats = (scored.weights, scored.reference_totals, scored.scale, scored.standard_error)
    return Frame(header, (narrowed(steps), *floats))


def _scored(counts: tuple[Count, ...], frame: Frame) -> Scored:
    wire = Fields(frame.header, {"type", "noise", "l1", "l2"})
    if len(frame.arrays) != 5 or any(each.shape != (len(counts),) for each in frame.arrays):
        raise FrameError("scores come with their scales and errors, one for each candidate")
    steps, weights, totals, scale, error = (each.astype(np.float64) for each in frame.arrays)
    return Scored(
        counts=counts,
        weights=weights,
        reference_totals=totals,
        values=steps * SCORE_STEP,
        noise=one_of(_NOISES, wire.text("noise")),
        scale=scale,
        standard_error=error,
        l1_sensitivity=wire.number("l1"),
        l2_sensitivity=wire.number("l2"),
    )


def _discovered_frame(found: Discovered) -> Frame:
    header = {
        "type": "discovered",
        "scale": found.scale,
        "standard_error": found.standard_error,
        "threshold": found.threshold,
        "l1": found.l1_sensitivity,
        "l2": found.l2_sensitivity,
    }
    return Frame(header, (narrowed(found.keys), narrowed(found.values)))


def _discovered(query: Keys, frame: Frame) -> Discovered:
    wire = Fields(frame.header, {"type", "scale", "standard_error", "threshold", "l1", "l2"})
    if len(frame.arrays) != 2:
        raise FrameError("keys come with their counts")
    keys, values = (array.astype(np.int64) for array in frame.arrays)
    if values.ndim != 1 or keys.shape != (len(values), len(query.columns)):
        raise FrameError("keys come with their counts")
    return Discovered(
        query=query,
        keys=keys,
        values=values,
        scale=wire.number("scale"),
        standard_error=wire.number("standard_error"),
        threshold=wire.integer("threshold"),
        l1_sensitivity=wire.number("l1"),
        l2_sensitivity=wire.number("l2"),
    )


def _found_frame(found: FoundValues) -> Frame:
    header = {
        "type": "found",
        "scale": found.scale,
        "standard_error": found.standard_error,
        "threshold": found.threshold,
        "l1": found.l1_sensitivity,
        "l2": found.l2_sensitivity,
    }
    texts = json.dumps(found.texts, ensure_ascii=False).encode()
    return Frame(header, (np.frombuffer(texts, dtype=np.uint8), narrowed(found.values)))


def _found(query: Values, frame: Frame) -> FoundValues:
    wire = Fields(frame.header, {"type", "scale", "standard_error", "threshold", "l1", "l2"})
    if len(frame.arrays) != 2 or frame.arrays[0].dtype != np.uint8:
        raise FrameError("values come with their counts")
    try:
        texts = json.loads(frame.arrays[0].tobytes())
    except ValueError:
        raise FrameError("values are a list of texts") from None
    values = frame.arrays[1].astype(np.int64)
    if not isinstance(texts, list) or values.shape != (len(texts),):
        raise FrameError("values come with their counts")
    return FoundValues(
        query=query,
        texts=tuple(map(text, texts)),
        values=values,
        scale=wire.number("scale"),
        standard_error=wire.number("standard_error"),
        threshold=wire.integer("threshold"),
        l1_sensitivity=wire.number("l1"),
        l2_sensitivity=wire.number("l2"),
    )


def _table_frame(table: Table) -> Frame:
    names = sorted(table.codes)
    arrays = [narrowed(table.codes[name]) for name in names]
    has_entity = table.entity is not None
    if table.entity is not None:
        arrays.append(narrowed(table.entity))
    header = {
        "type": "handed_over",
        "columns": names,
        "rows": table.rows,
        "has_entity": has_entity,
    }
    return Frame(header, tuple(arrays))


def _table(frame: Frame) -> Table:
    wire = Fields(frame.header, {"type", "columns", "rows", "has_entity"})
    names = [text(name) for name in wire.items("columns")]
    wide = [array.astype(np.int64) for array in frame.arrays]
    entity = wide.pop() if wire.value("has_entity") and wide else None
    if len(names) != len(wide):
        raise FrameError("there is one array for each column")
    return Table(dict(zip(names, wide, strict=True)), wire.integer("rows"), entity)
