"""Questions and answers as frames, and back.

Decoding trusts nothing: a frame of the wrong form is a `FrameError`, a well-formed question
that is not allowed a `QuestionRefused`. A question is encoded in one way only, so that its
SHA-256 tells whether a replayed run asks the same again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.loss import AmountError, PrivacyLoss
from app.engine.privacy.queries import (
    Candidate,
    Contribution,
    Count,
    Measurement,
    Noise,
    QuestionRefused,
    Rule,
)
from app.engine.privacy.questions import (
    Answer,
    Counted,
    CountQuestion,
    HandedOver,
    Mechanism,
    Question,
    Selected,
    SelectQuestion,
    TrustedQuestion,
)
from app.engine.privacy.wire import Frame, FrameError, narrowed, pack
from app.engine.synthesizers.base import Table

T = TypeVar("T")
S = TypeVar("S", bound=str)
MOST_COLUMNS = 4096
_MOST_GROUPED = 2**20
_MOST_GROUPED_TOGETHER = 2**22
_LOSS_KINDS: tuple[Literal["pure", "zcdp"], ...] = ("pure", "zcdp")
_NOISES: tuple[Noise, ...] = ("gaussian", "laplace")
_MECHANISMS: tuple[Mechanism, ...] = ("gumbel", "permute-and-flip")
_RULES: tuple[Rule, ...] = ("rows", "distinct", "one", "clipped")


def question_digest(packed: bytes) -> str:
    """SHA-256, in hex, of a packed question."""
    return hashlib.sha256(packed).hexdigest()


def loss_to_json(loss: PrivacyLoss) -> dict[str, Any]:
    """A loss in its integer units, as JSON."""
    return {"kind": loss.kind, "amount": loss.amount, "delta": loss.delta}


def loss_from_json(value: Any) -> PrivacyLoss:
    """Raises `FrameError` for anything but a loss."""
    wire = _Fields(value, {"kind", "amount", "delta"})
    kind = _one_of(_LOSS_KINDS, wire.text("kind"))
    try:
        return PrivacyLoss(kind, wire.integer("amount"), wire.integer("delta"))
    except AmountError:
        raise FrameError("this is no privacy loss") from None


def encode_question(question: Question) -> Frame:
    packing = _Packing()
    header: dict[str, Any]
    match question:
        case CountQuestion():
            header = {
                "type": "count",
                "queries": [packing.count(query) for query in question.queries],
                "shares": None if question.shares is None else list(map(float, question.shares)),
            }
        case SelectQuestion():
            header = {
                "type": "select",
                "candidates": [packing.candidate(each) for each in question.candidates],
                "winners": question.winners,
            }
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
        return TrustedQuestion(loss_from_json(_Fields(frame.header, common).value("loss")))
    if kind == "count":
        wire = _Fields(frame.header, common | {"queries", "shares"})
        unpacking = _Unpacking.of(wire, frame.arrays)
        shares = wire.value("shares")
        return CountQuestion(
            tuple(unpacking.count(query) for query in wire.items("queries")),
            loss_from_json(wire.value("loss")),
            None if shares is None else tuple(map(_number, wire.items("shares"))),
        )
    if kind == "select":
        wire = _Fields(frame.header, common | {"candidates", "winners"})
        unpacking = _Unpacking.of(wire, frame.arrays)
        return SelectQuestion(
            tuple(unpacking.candidate(each) for each in wire.items("candidates")),
            loss_from_json(wire.value("loss")),
            wire.integer("winners"),
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
        case HandedOver():
            return _table_frame(answer.table)


def decode_answer(question: Question, frame: Frame) -> Answer:
    """The answer to `question`. Raises `FrameError`."""
    kind = frame.header.get("type")
    if kind == "counted" and isinstance(question, CountQuestion):
        parts = _Fields(frame.header, {"type", "measurements"}).items("measurements")
        if not len(parts) == len(frame.arrays) == len(question.queries):
            raise FrameError("there is one measurement for each query")
        return Counted(
            tuple(
                _measurement_from_json(query, part, values)
                for query, part, values in zip(question.queries, parts, frame.arrays, strict=True)
            )
        )
    if kind == "selected" and isinstance(question, SelectQuestion):
        wire = _Fields(frame.header, {"type", "winners", "mechanism", "scale", "sensitivity"})
        mechanism = _one_of(_MECHANISMS, wire.text("mechanism"))
        winners = tuple(_integer(winner) for winner in wire.items("winners"))
        return Selected(winners, mechanism, wire.number("scale"), wire.number("sensitivity"))
    if kind == "handed_over" and isinstance(question, TrustedQuestion):
        return HandedOver(_table(frame))
    raise FrameError("this is no answer to the question")


def _measurement_to_json(measurement: Measurement) -> dict[str, Any]:
    return {
        "noise": measurement.noise,
        "scale": measurement.scale,
        "standard_error": measurement.standard_error,
        "l1": measurement.l1_sensitivity,
        "l2": measurement.l2_sensitivity,
    }


def _measurement_from_json(count: Count, value: Any, values: NDArray[Any]) -> Measurement:
    wire = _Fields(value, {"noise", "scale", "standard_error", "l1", "l2"})
    noise = _one_of(_NOISES, wire.text("noise"))
    return Measurement(
        count=count,
        values=values.astype(np.int64),
        noise=noise,
        scale=wire.number("scale"),
        standard_error=wire.number("standard_error"),
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
    wire = _Fields(frame.header, {"type", "columns", "rows", "has_entity"})
    names = [_text(name) for name in wire.items("columns")]
    wide = [array.astype(np.int64) for array in frame.arrays]
    entity = wide.pop() if wire.value("has_entity") and wide else None
    if len(names) != len(wide):
        raise FrameError("there is one array for each column")
    return Table(dict(zip(names, wide, strict=True)), wire.integer("rows"), entity)


@dataclass
class _Packing:
    """Collects the groupings and arrays of a question; equal groupings travel once."""

    groupings: list[dict[str, Any]] = field(default_factory=list)
    arrays: list[NDArray[Any]] = field(default_factory=list)
    _numbers: dict[Grouping, int] = field(default_factory=dict)

    def count(self, count: Count) -> dict[str, Any]:
        contribution = count.contribution
        return {
            "columns": list(count.columns),
            "groupings": {
                name: self._grouping(grouping) for name, grouping in count.groupings.items()
            },
            "rule": contribution.rule,
            "limit": contribution.limit,
            "norm": None if contribution.norm is None else float(contribution.norm),
        }

    def candidate(self, candidate: Candidate) -> dict[str, Any]:
        first = len(self.arrays)
        self.arrays.extend(_as_float(factor) for factor in candidate.reference)
        return {
            "count": self.count(candidate.count),
            "reference": [first, len(self.arrays)],
            "weight": float(candidate.weight),
            "bias": float(candidate.bias),
        }

    def _grouping(self, grouping: Grouping) -> int:
        number = self._numbers.get(grouping)
        if number is None:
            number = self._numbers[grouping] = len(self.groupings)
            self.groupings.append(grouping.to_json())
        return number


def _as_float(factor: Any) -> NDArray[np.float64]:
    array = np.asarray(factor)
    if array.dtype.kind not in "fiu":
        raise QuestionRefused("a reference holds numbers")
    return array.astype(np.float64)


@dataclass(frozen=True)
class _Unpacking:
    groupings: tuple[Grouping, ...]
    arrays: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, wire: _Fields, arrays: tuple[NDArray[Any], ...]) -> _Unpacking:
        listed = wire.items("groupings")
        # A short text can stand for a long grouping: the sum is bounded, not only each.
        stated = [each.get("regular", 0) for each in listed if isinstance(each, dict)]
        if sum(map(_integer, stated)) > _MOST_GROUPED_TOGETHER:
            raise QuestionRefused("the groupings have too many cells")
        return cls(tuple(_grouping(each) for each in listed), arrays)

    def count(self, value: Any) -> Count:
        wire = _Fields(value, {"columns", "groupings", "rule", "limit", "norm"})
        columns = tuple(_text(name) for name in wire.items("columns"))
        if len(columns) > MOST_COLUMNS:
            raise FrameError("a query names too many columns")
        groupings = {
            _text(name): self._pick(self.groupings, number)
            for name, number in wire.mapping("groupings").items()
        }
        return Count(columns, groupings, _contribution(wire))

    def candidate(self, value: Any) -> Candidate:
        wire = _Fields(value, {"count", "reference", "weight", "bias"})
        bounds = [_integer(bound) for bound in wire.items("reference")]
        if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1] <= len(self.arrays):
            raise FrameError("a reference points outside the frame")
        reference = self.arrays[bounds[0] : bounds[1]]
        if any(factor.dtype != np.float64 for factor in reference):
            raise FrameError("a reference holds 64-bit floats")
        return Candidate(
            self.count(wire.value("count")), reference, wire.number("weight"), wire.number("bias")
        )

    @staticmethod
    def _pick(items: Sequence[T], number: Any) -> T:
        index = _integer(number)
        if not 0 <= index < len(items):
            raise FrameError("a number points outside the frame")
        return items[index]


def _contribution(wire: _Fields) -> Contribution:
    rule = _one_of(_RULES, wire.text("rule"))
    limit = wire.value("limit")
    norm = wire.value("norm")
    try:
        return Contribution(
            rule,
            None if limit is None else _integer(limit),
            None if norm is None else _number(norm),
        )
    except ValueError as error:
        raise QuestionRefused(str(error)) from None


def _grouping(value: Any) -> Grouping:
    known = {"tail", "regular", "edges", "merge"}
    if not isinstance(value, dict) or not {"tail"} < set(value) <= known:
        raise FrameError("this is no grouping")
    for name in ("edges", "merge"):
        if name in value and not _all_integers(value[name]):
            raise FrameError("this is no grouping")
    for name in ("tail", "regular"):
        if name in value and not 0 <= _integer(value[name]) <= _MOST_GROUPED:
            raise QuestionRefused("a grouping has too many cells")
    try:
        return Grouping.from_json(value)
    except (ValueError, KeyError, OverflowError):
        raise QuestionRefused("a grouping is malformed") from None


def _all_integers(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and abs(item) < 2**62 for item in value
    )


class _Fields:
    """A JSON object with exactly the keys it should have, read by type."""

    def __init__(self, value: Any, keys: set[str]) -> None:
        if not isinstance(value, dict) or set(value) != keys:
            raise FrameError("an object has other fields than it should")
        self._value = value

    def value(self, key: str) -> Any:
        return self._value[key]

    def text(self, key: str) -> str:
        return _text(self._value[key])

    def integer(self, key: str) -> int:
        return _integer(self._value[key])

    def number(self, key: str) -> float:
        return _number(self._value[key])

    def items(self, key: str) -> list[Any]:
        return _of_type(self._value[key], lambda value: isinstance(value, list))  # type: ignore[no-any-return]

    def mapping(self, key: str) -> dict[Any, Any]:
        return _of_type(self._value[key], lambda value: isinstance(value, dict))  # type: ignore[no-any-return]


def _one_of(allowed: tuple[S, ...], value: str) -> S:
    for each in allowed:
        if each == value:
            return each
    raise FrameError("a field has another value than it may")


def _of_type(value: Any, is_right: Callable[[Any], bool]) -> Any:
    if not is_right(value):
        raise FrameError("a field has another type than it should")
    return value


def _text(value: Any) -> str:
    return str(_of_type(value, lambda value: isinstance(value, str)))


def _integer(value: Any) -> int:
    return int(_of_type(value, lambda value: type(value) is int and abs(value) < 2**63))


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise FrameError("a field has another type than it should")
    try:
        return float(value)
    except OverflowError:
        raise FrameError("a number is out of range") from None
