"""Questions and answers as frames, and back.

Decoding trusts nothing: a frame of the wrong form is a `FrameError`, a well-formed question
that is not allowed a `QuestionRefused`. A question is encoded in one way only, so that its
SHA-256 shows whether a run that was started again asks the same.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy import questions
from app.engine.privacy.forms import (
    Disallowed,
    Form,
    Items,
    Reader,
    Tagged,
    Whole,
    finite_numbers,
    integers,
    wired,
)
from app.engine.privacy.packing import Packing, Unpacking
from app.engine.privacy.queries import (
    SCORE_STEP,
    Discovered,
    FoundValues,
    Measurement,
    QuestionRefused,
    Scored,
)
from app.engine.privacy.wire import Frame, FrameError, narrowed, pack
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table

SchemaField = Annotated[Schema, wired(dict[str, Any], Schema.parse, Schema.to_wire)]
UnitField = Annotated[PrivacyUnit, wired(dict[str, Any], PrivacyUnit.parse, PrivacyUnit.to_wire)]


@dataclass(frozen=True, slots=True)
class _HandedOverForm(Form):
    columns: Items[str]
    rows: Whole
    has_entity: bool


_QUESTION = Tagged[questions.Question](
    {
        "count": questions.CountQuestion,
        "select": questions.SelectQuestion,
        "scores": questions.ScoreQuestion,
        "quantile": questions.QuantileQuestion,
        "discover": questions.DiscoverQuestion,
        "values": questions.ValuesQuestion,
        "trusted": questions.TrustedQuestion,
    }
)
_ANSWER = Tagged[Any](
    {
        "counted": questions.Counted,
        "selected": questions.Selected,
        "quantiled": questions.Quantiled,
        "scored": Scored,
        "discovered": Discovered,
        "found": FoundValues,
        "handed_over": _HandedOverForm,
    }
)
_TEXTS = Reader[tuple[str, ...]](Items[str])


def question_digest(packed: bytes) -> str:
    """SHA-256, in hex, of a packed question."""
    return hashlib.sha256(packed).hexdigest()


def encode_question(question: questions.Question) -> Frame:
    packing = Packing()
    header = _QUESTION.write(question, packing)
    return Frame({**header, "groupings": packing.groupings}, tuple(packing.arrays))


def pack_question(question: questions.Question) -> bytes:
    """The one canonical form of a question, whose digest identifies it."""
    return pack(encode_question(question))


def decode_question(frame: Frame) -> questions.Question:
    """Raises `FrameError` (not a question) or `QuestionRefused` (not an allowed one)."""
    header = dict(frame.header)
    unpacking = Unpacking.of(header.pop("groupings", None), frame.arrays)
    try:
        return _QUESTION.read(header, unpacking)
    except Disallowed as error:
        raise QuestionRefused(str(error)) from None


def encode_answer(answer: questions.Answer) -> Frame:
    form: Any = answer
    if isinstance(answer, questions.HandedOver):
        table = answer.table
        form = _HandedOverForm(tuple(sorted(table.codes)), table.rows, table.entity is not None)
    return Frame(_ANSWER.write(form), _arrays(answer))


def _arrays(answer: questions.Answer) -> tuple[NDArray[Any], ...]:
    match answer:
        case questions.Counted():
            return tuple(narrowed(each.values) for each in answer.measurements)
        case Scored(weights=weights, reference_totals=totals):
            steps = np.rint(answer.values / SCORE_STEP).astype(np.int64)
            return (narrowed(steps), weights, totals, answer.scale, answer.standard_error)
        case Discovered():
            return (narrowed(answer.keys), narrowed(answer.values))
        case FoundValues():
            texts = np.frombuffer(json.dumps(answer.texts, ensure_ascii=False).encode(), np.uint8)
            return (texts, narrowed(answer.values))
        case questions.HandedOver(table=table):
            codes = {name: table.codes[name] for name in sorted(table.codes)}
            return table_arrays(replace(table, codes=codes))
    return ()


_MEASUREMENT = Reader[Measurement](Measurement)


def decode_answer(question: questions.Question, frame: Frame) -> questions.Answer:
    """The answer to `question`. Raises `FrameError`."""
    header, arrays = frame.header, frame.arrays
    answer: questions.Answer
    match question, header.get("type"):
        case questions.CountQuestion(), "counted":
            return _counted(question, header, arrays)
        case (questions.SelectQuestion(), "selected") | (questions.QuantileQuestion(), "quantiled"):
            answer = _ANSWER.read(header)
        case questions.ScoreQuestion(), "scored":
            answer = _scored(question, header, arrays)
        case questions.DiscoverQuestion(query=query), "discovered":
            if len(arrays) != 2:
                raise FrameError("expected keys and their counts")
            keys, values = map(integers, arrays)
            if values.ndim != 1 or keys.shape != (len(values), len(query.columns)):
                raise FrameError("expected keys and their counts")
            answer = _ANSWER.read(header, query=query, keys=keys, values=values)
        case questions.ValuesQuestion(), "found":
            answer = _found(question, header, arrays)
        case questions.TrustedQuestion(), "handed_over":
            form = _ANSWER.read(header)
            answer = questions.HandedOver(
                table_of(form.columns, form.rows, form.has_entity, arrays)
            )
        case _:
            raise FrameError("this does not answer the question")
    return answer


def _counted(
    question: questions.CountQuestion, header: dict[str, Any], arrays: tuple[NDArray[Any], ...]
) -> questions.Counted:
    queries, forms = question.queries, header.get("measurements")
    if header.keys() != {"type", "measurements"} or not isinstance(forms, list):
        raise FrameError("this is no count")
    if not len(forms) == len(arrays) == len(queries):
        raise FrameError("expected one measurement for each query")
    return questions.Counted(
        tuple(
            _MEASUREMENT(form, count=query, values=integers(array))
            for query, form, array in zip(queries, forms, arrays, strict=True)
        )
    )


def _scored(
    question: questions.ScoreQuestion, header: dict[str, Any], arrays: tuple[NDArray[Any], ...]
) -> questions.Answer:
    counts = tuple(each.count for each in question.candidates)
    if len(arrays) != 5 or any(each.shape != (len(counts),) for each in arrays):
        raise FrameError("scores come with their scales and errors, one for each candidate")
    weights, totals, scale, error = map(finite_numbers, arrays[1:])
    scored: Scored = _ANSWER.read(
        header,
        counts=counts,
        weights=weights,
        reference_totals=totals,
        values=integers(arrays[0]).astype(np.float64) * SCORE_STEP,
        scale=scale,
        standard_error=error,
    )
    return scored


def _found(
    question: questions.ValuesQuestion, header: dict[str, Any], arrays: tuple[NDArray[Any], ...]
) -> questions.Answer:
    if len(arrays) != 2 or arrays[0].dtype != np.uint8:
        raise FrameError("values come with their counts")
    try:
        texts = _TEXTS(json.loads(arrays[0].tobytes()))
    except (ValueError, RecursionError):
        raise FrameError("expected a list of texts") from None
    values = integers(arrays[1])
    if values.shape != (len(texts),):
        raise FrameError("values come with their counts")
    found: FoundValues = _ANSWER.read(header, query=question.query, texts=texts, values=values)
    return found


def table_arrays(table: Table) -> tuple[NDArray[Any], ...]:
    """The columns of a table in the smallest types, then its entities if it has any."""
    columns = (
        table.codes.values() if table.entity is None else (*table.codes.values(), table.entity)
    )
    return tuple(map(narrowed, columns))


def table_of(
    columns: tuple[str, ...], rows: int, has_entity: bool, arrays: tuple[NDArray[Any], ...]
) -> Table:
    """The table of such arrays. Raises `FrameError`."""
    if len(arrays) != len(columns) + has_entity or len(set(columns)) != len(columns):
        raise FrameError("expected one array for each column")
    if any(array.shape != (rows,) for array in arrays):
        raise FrameError("a column has one code for each row")
    wide = list(map(integers, arrays))
    entity = wide.pop() if has_entity else None
    return Table(dict(zip(columns, wide, strict=True)), rows, entity)
