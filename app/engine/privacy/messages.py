"""Questions and answers as frames, and back.

Decoding trusts nothing: a frame of the wrong form is a `FrameError`, a well-formed question
that is not allowed a `QuestionRefused`. A question is encoded in one way only, so that its
SHA-256 shows whether a run that was started again asks the same.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.engine.privacy.forms import Form, Items, Reader, Whole, finite_numbers, integers
from app.engine.privacy.loss import AmountError, PrivacyLoss
from app.engine.privacy.packing import (
    CandidateForm,
    GroupingForm,
    KeysForm,
    Packing,
    QuantileForm,
    QueryForm,
    Unpacking,
    allowed,
)
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


class LossForm(Form):
    """A loss in its integer units."""

    kind: Literal["pure", "zcdp"]
    amount: Whole
    delta: Whole


class _QuestionForm(Form):
    loss: LossForm
    groupings: Items[GroupingForm]


class CountMessage(_QuestionForm):
    type: Literal["count"]
    queries: Items[QueryForm]
    shares: Items[float] | None


class SelectMessage(_QuestionForm):
    type: Literal["select"]
    candidates: Items[CandidateForm]
    winners: Whole


class ScoresMessage(_QuestionForm):
    type: Literal["scores"]
    candidates: Items[CandidateForm]


class QuantileMessage(_QuestionForm):
    type: Literal["quantile"]
    query: QuantileForm


class DiscoverMessage(_QuestionForm):
    type: Literal["discover"]
    query: KeysForm


class ValuesMessage(_QuestionForm):
    type: Literal["values"]
    column: str
    limit: Whole


class TrustedMessage(_QuestionForm):
    type: Literal["trusted"]


QuestionMessage = (
    CountMessage
    | SelectMessage
    | ScoresMessage
    | QuantileMessage
    | DiscoverMessage
    | ValuesMessage
    | TrustedMessage
)


class MeasurementForm(Form):
    noise: Noise
    scale: float
    standard_error: float
    l1: float
    l2: float
    step: NotRequired[float]


class CountedMessage(Form):
    type: Literal["counted"]
    measurements: Items[MeasurementForm]


class _DrawnForm(Form):
    mechanism: Mechanism
    scale: float
    sensitivity: float


class SelectedMessage(_DrawnForm):
    type: Literal["selected"]
    winners: Items[Whole]


class QuantiledMessage(_DrawnForm):
    type: Literal["quantiled"]
    value: float


class ScoredMessage(Form):
    type: Literal["scored"]
    noise: Noise
    l1: float
    l2: float


class _FoundForm(Form):
    scale: float
    standard_error: float
    threshold: Whole
    l1: float
    l2: float


class DiscoveredMessage(_FoundForm):
    type: Literal["discovered"]


class FoundMessage(_FoundForm):
    type: Literal["found"]


class HandedOverMessage(Form):
    type: Literal["handed_over"]
    columns: Items[str]
    rows: Whole
    has_entity: bool


AnswerMessage = (
    CountedMessage
    | SelectedMessage
    | ScoredMessage
    | QuantiledMessage
    | DiscoveredMessage
    | FoundMessage
    | HandedOverMessage
)

_LOSS = Reader[LossForm](LossForm)
_QUESTION = Reader[QuestionMessage](Annotated[QuestionMessage, Field(discriminator="type")])
_ANSWER = Reader[AnswerMessage](Annotated[AnswerMessage, Field(discriminator="type")])
_TEXTS = Reader[list[str]](Items[str])


def question_digest(packed: bytes) -> str:
    """SHA-256, in hex, of a packed question."""
    return hashlib.sha256(packed).hexdigest()


def loss_to_json(loss: PrivacyLoss) -> LossForm:
    """A loss in its integer units, as JSON."""
    return {"kind": loss.kind, "amount": loss.amount, "delta": loss.delta}


def loss_from_json(value: Any) -> PrivacyLoss:
    """Raises `FrameError` for anything but a loss."""
    return _loss(_LOSS(value))


def _loss(form: LossForm) -> PrivacyLoss:
    try:
        return PrivacyLoss(form["kind"], form["amount"], form["delta"])
    except AmountError:
        raise FrameError("this is no privacy loss") from None


def encode_question(question: Question) -> Frame:
    packing = Packing()
    message = _question_message(question, packing)
    return Frame(dict(message), tuple(packing.arrays))


def _question_message(question: Question, packing: Packing) -> QuestionMessage:
    # The list of groupings fills while the parts of the question are packed.
    common: _QuestionForm = {"loss": loss_to_json(question.loss), "groupings": packing.groupings}
    match question:
        case CountQuestion():
            shares = None if question.shares is None else list(map(float, question.shares))
            queries = [packing.query(query) for query in question.queries]
            return {"type": "count", "queries": queries, "shares": shares, **common}
        case SelectQuestion():
            candidates = [packing.candidate(each) for each in question.candidates]
            winners = question.winners
            return {"type": "select", "candidates": candidates, "winners": winners, **common}
        case ScoreQuestion():
            candidates = [packing.candidate(each) for each in question.candidates]
            return {"type": "scores", "candidates": candidates, **common}
        case QuantileQuestion():
            return {"type": "quantile", "query": packing.quantile(question.query), **common}
        case DiscoverQuestion():
            return {"type": "discover", "query": packing.keys(question.query), **common}
        case ValuesQuestion():
            query = question.query
            return {"type": "values", "column": query.column, "limit": query.limit, **common}
        case TrustedQuestion():
            return {"type": "trusted", **common}


def pack_question(question: Question) -> bytes:
    """The one canonical form of a question, whose digest identifies it."""
    return pack(encode_question(question))


def decode_question(frame: Frame) -> Question:
    """Raises `FrameError` (not a question) or `QuestionRefused` (not an allowed one)."""
    message = _QUESTION(frame.header)
    loss = _loss(message["loss"])
    unpacking = Unpacking.of(message["groupings"], frame.arrays)
    if message["type"] == "count":
        queries = tuple(map(unpacking.query, message["queries"]))
        shares = message["shares"]
        return CountQuestion(queries, loss, None if shares is None else tuple(shares))
    if message["type"] == "select":
        candidates = tuple(map(unpacking.candidate, message["candidates"]))
        return SelectQuestion(candidates, loss, message["winners"])
    if message["type"] == "scores":
        return ScoreQuestion(tuple(map(unpacking.candidate, message["candidates"])), loss)
    if message["type"] == "quantile":
        return QuantileQuestion(unpacking.quantile(message["query"]), loss)
    if message["type"] == "discover":
        return DiscoverQuestion(unpacking.keys(message["query"]), loss)
    if message["type"] == "values":
        column, limit = message["column"], message["limit"]
        return ValuesQuestion(allowed(lambda: Values(column, limit)), loss)
    return TrustedQuestion(loss)


def encode_answer(answer: Answer) -> Frame:
    message, arrays = _answer_message(answer)
    return Frame(dict(message), arrays)


def _answer_message(answer: Answer) -> tuple[AnswerMessage, tuple[NDArray[Any], ...]]:
    match answer:
        case Counted():
            measured = [_measurement_form(each) for each in answer.measurements]
            values = tuple(narrowed(each.values) for each in answer.measurements)
            return {"type": "counted", "measurements": measured}, values
        case Selected():
            winners = list(answer.winners)
            return {"type": "selected", "winners": winners, **_drawn_form(answer)}, ()
        case Quantiled():
            return {"type": "quantiled", "value": answer.value, **_drawn_form(answer)}, ()
        case Scored():
            return _scored_message(answer)
        case Discovered():
            arrays = (narrowed(answer.keys), narrowed(answer.values))
            return {"type": "discovered", **_found_form(answer)}, arrays
        case FoundValues():
            texts = np.frombuffer(json.dumps(answer.texts, ensure_ascii=False).encode(), np.uint8)
            return {"type": "found", **_found_form(answer)}, (texts, narrowed(answer.values))
        case HandedOver():
            return _table_message(answer.table)


def decode_answer(question: Question, frame: Frame) -> Answer:
    """The answer to `question`. Raises `FrameError`."""
    message, arrays = _ANSWER(frame.header), frame.arrays
    if message["type"] == "counted" and isinstance(question, CountQuestion):
        measured = message["measurements"]
        if not len(measured) == len(arrays) == len(question.queries):
            raise FrameError("there is one measurement for each query")
        return Counted(tuple(map(_measurement, question.queries, measured, arrays)))
    if message["type"] == "selected" and isinstance(question, SelectQuestion):
        mechanism, scale = message["mechanism"], message["scale"]
        return Selected(tuple(message["winners"]), mechanism, scale, message["sensitivity"])
    if message["type"] == "quantiled" and isinstance(question, QuantileQuestion):
        mechanism, scale = message["mechanism"], message["scale"]
        return Quantiled(message["value"], mechanism, scale, message["sensitivity"])
    if message["type"] == "scored" and isinstance(question, ScoreQuestion):
        return _scored(tuple(each.count for each in question.candidates), message, arrays)
    if message["type"] == "discovered" and isinstance(question, DiscoverQuestion):
        return _discovered(question.query, message, arrays)
    if message["type"] == "found" and isinstance(question, ValuesQuestion):
        return _found(question.query, message, arrays)
    if message["type"] == "handed_over" and isinstance(question, TrustedQuestion):
        return HandedOver(_table(message, arrays))
    raise FrameError("this is no answer to the question")


def _measurement_form(measurement: Measurement) -> MeasurementForm:
    form: MeasurementForm = {
        "noise": measurement.noise,
        "scale": measurement.scale,
        "standard_error": measurement.standard_error,
        "l1": measurement.l1_sensitivity,
        "l2": measurement.l2_sensitivity,
    }
    if measurement.step != 1:
        form["step"] = measurement.step
    return form


def _measurement(query: Query, form: MeasurementForm, values: NDArray[Any]) -> Measurement:
    return Measurement(
        count=query,
        values=integers(values),
        noise=form["noise"],
        scale=form["scale"],
        standard_error=form["standard_error"],
        l1_sensitivity=form["l1"],
        l2_sensitivity=form["l2"],
        step=form.get("step", 1.0),
    )


def _drawn_form(drawn: Selected | Quantiled) -> _DrawnForm:
    return {
        "mechanism": drawn.mechanism,
        "scale": drawn.scale,
        "sensitivity": drawn.sensitivity,
    }


def _scored_message(scored: Scored) -> tuple[ScoredMessage, tuple[NDArray[Any], ...]]:
    message: ScoredMessage = {
        "type": "scored",
        "noise": scored.noise,
        "l1": scored.l1_sensitivity,
        "l2": scored.l2_sensitivity,
    }
    steps = np.rint(scored.values / SCORE_STEP).astype(np.int64)
    floats = (scored.weights, scored.reference_totals, scored.scale, scored.standard_error)
    return message, (narrowed(steps), *floats)


def _scored(
    counts: tuple[Count, ...], message: ScoredMessage, arrays: tuple[NDArray[Any], ...]
) -> Scored:
    if len(arrays) != 5 or any(each.shape != (len(counts),) for each in arrays):
        raise FrameError("scores come with their scales and errors, one for each candidate")
    weights, totals, scale, error = map(finite_numbers, arrays[1:])
    return Scored(
        counts=counts,
        weights=weights,
        reference_totals=totals,
        values=integers(arrays[0]).astype(np.float64) * SCORE_STEP,
        noise=message["noise"],
        scale=scale,
        standard_error=error,
        l1_sensitivity=message["l1"],
        l2_sensitivity=message["l2"],
    )


def _found_form(found: Discovered | FoundValues) -> _FoundForm:
    return {
        "scale": found.scale,
        "standard_error": found.standard_error,
        "threshold": found.threshold,
        "l1": found.l1_sensitivity,
        "l2": found.l2_sensitivity,
    }


def _discovered(
    query: Keys, message: DiscoveredMessage, arrays: tuple[NDArray[Any], ...]
) -> Discovered:
    if len(arrays) != 2:
        raise FrameError("keys come with their counts")
    keys, values = map(integers, arrays)
    if values.ndim != 1 or keys.shape != (len(values), len(query.columns)):
        raise FrameError("keys come with their counts")
    return Discovered(query, keys, values, *_noise_of(message))


def _found(query: Values, message: FoundMessage, arrays: tuple[NDArray[Any], ...]) -> FoundValues:
    if len(arrays) != 2 or arrays[0].dtype != np.uint8:
        raise FrameError("values come with their counts")
    try:
        texts = _TEXTS(json.loads(arrays[0].tobytes()))
    except (ValueError, RecursionError):
        raise FrameError("values are a list of texts") from None
    values = integers(arrays[1])
    if values.shape != (len(texts),):
        raise FrameError("values come with their counts")
    return FoundValues(query, tuple(texts), values, *_noise_of(message))


def _noise_of(form: _FoundForm) -> tuple[float, float, int, float, float]:
    return form["scale"], form["standard_error"], form["threshold"], form["l1"], form["l2"]


def _table_message(table: Table) -> tuple[HandedOverMessage, tuple[NDArray[Any], ...]]:
    names = sorted(table.codes)
    arrays = [narrowed(table.codes[name]) for name in names]
    if table.entity is not None:
        arrays.append(narrowed(table.entity))
    message: HandedOverMessage = {
        "type": "handed_over",
        "columns": names,
        "rows": table.rows,
        "has_entity": table.entity is not None,
    }
    return message, tuple(arrays)


def _table(message: HandedOverMessage, arrays: tuple[NDArray[Any], ...]) -> Table:
    names, columns = message["columns"], list(map(integers, arrays))
    entity = columns.pop() if message["has_entity"] and columns else None
    if len(names) != len(columns):
        raise FrameError("there is one array for each column")
    return Table(dict(zip(names, columns, strict=True)), message["rows"], entity)
