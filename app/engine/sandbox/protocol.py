"""What a child is asked to do and what it says, as frames on its socket.

A child does one thing and ends:

    host: describe | sample              child: the reply, or `failed`
    host: read_form, then check          child: the reply to each, or `failed`
    host: check_public                   child: read and next, each answered by a chunk of public
                                         rows or `end`, then the reply
    host: fit, then the session's opening (see `app.engine.privacy.session`)

Replies come from code that may be a third party's: decoding trusts nothing and raises
`FrameError` for what does not fit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.engine.columns.axes import Axes
from app.engine.method import (
    CountsTable,
    ExpectedError,
    Limits,
    Preflight,
    Problem,
    PublicFacts,
)
from app.engine.method.model_file import ModelFormatError
from app.engine.privacy.forms import Form, Items, Reader, Whole, integers
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.messages import LossForm, loss_from_json, loss_to_json
from app.engine.privacy.packing import GroupingForm
from app.engine.privacy.queries import Contribution, Count, Rule
from app.engine.privacy.wire import Frame, FrameError, narrowed
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table

# Values of one part of a sample: 32 MiB at 8 bytes, half of what a host takes in one frame.
VALUES_PER_PART = 2**22
MOST_EXPECTED_ERRORS = 10_000
_MOST_PROBLEMS = 100
_LONGEST_TEXT = 10_000

_Text = Annotated[str, Field(max_length=_LONGEST_TEXT)]
_Size = Annotated[int, Field(ge=0, lt=2**63)]
_Seed = Annotated[int, Field(ge=0, lt=2**64)]
_Distance = Annotated[float, Field(ge=0)]
_ProblemForm = Annotated[Items[_Text], Field(min_length=3, max_length=3)]
_ProblemsForm = Annotated[Items[_ProblemForm], Field(max_length=_MOST_PROBLEMS)]


class DescribeMessage(Form):
    type: Literal["describe"]
    name: str


class PublicFactsForm(Form):
    schema: dict[str, Any]
    rows: Whole


class LimitsForm(Form):
    max_total_rows: Whole
    rows: Whole | None
    memory_bytes: Whole
    time_s: float


class ReadFormMessage(Form):
    type: Literal["read_form"]
    name: str
    form: dict[str, Any]
    schema: dict[str, Any]


class CheckMessage(Form):
    type: Literal["check", "check_public"]
    name: str
    form: dict[str, Any]
    schema: dict[str, Any]
    unit: dict[str, Any]
    loss: LossForm
    public: PublicFactsForm | None
    limits: LimitsForm


class SampleMessage(Form):
    type: Literal["sample"]
    name: str
    schema: dict[str, Any]
    unit: dict[str, Any]
    rows: Whole | None
    seed: _Seed
    most_rows: Whole
    kind: Literal["rows", "counts"]


class ChunkMessage(Form):
    type: Literal["chunk"]
    columns: Items[str]


class NoMoreChunksMessage(Form):
    type: Literal["end"]


class PublicTableForm(Form):
    schema: dict[str, Any]
    columns: Items[str]
    rows: Whole
    entity: bool


class FitForm(Form):
    name: str
    params: dict[str, Any]
    seed: _Seed
    public: PublicTableForm | None


class ExpectedErrorForm(Form):
    columns: Items[_Text]
    distance: _Distance
    confidence: _Distance


class StatementForm(Form):
    expected_errors: Annotated[Items[ExpectedErrorForm], Field(max_length=MOST_EXPECTED_ERRORS)]


class DescribedMessage(Form):
    type: Literal["described"]
    name: _Text
    title: _Text
    reference: _Text
    params_schema: dict[str, Any]


class FormReadMessage(Form):
    type: Literal["form_read"]
    params: dict[str, Any] | None
    problems: _ProblemsForm
    delta_share: Annotated[float, Field(ge=0, lt=1)]
    looks_at_public: bool


class CheckedMessage(Form):
    type: Literal["checked"]
    cells: _Size
    memory_bytes: _Size
    expected_error: _Distance
    least_expected_error: _Distance | None
    problems: _ProblemsForm


class PublicCheckedMessage(Form):
    type: Literal["public_checked"]
    problems: _ProblemsForm


class ReadMessage(Form):
    type: Literal["read"]
    columns: Items[_Text]


class NextMessage(Form):
    type: Literal["next"]


class PartMessage(Form):
    type: Literal["part"]
    columns: Items[_Text]
    rows: _Size
    entity: bool


class EndMessage(Form):
    type: Literal["end"]
    columns: Items[_Text]
    rows: _Size


class CountsMessage(Form):
    type: Literal["counts"]
    axes: Items[Annotated[list[str | GroupingForm], Field(min_length=2, max_length=2)]]
    rule: Rule
    limit: Whole | None
    norm: float | None


class FailedMessage(Form):
    type: Literal["failed"]
    detail: _Text


Request = DescribeMessage | ReadFormMessage | CheckMessage | SampleMessage
Reply = (
    DescribedMessage
    | FormReadMessage
    | CheckedMessage
    | PublicCheckedMessage
    | ReadMessage
    | NextMessage
    | PartMessage
    | EndMessage
    | CountsMessage
    | FailedMessage
)
_REQUEST = Reader[Request](Annotated[Request, Field(discriminator="type")])
_REPLY = Reader[Reply](Annotated[Reply, Field(discriminator="type")])
_CHUNK = Reader[ChunkMessage | NoMoreChunksMessage](
    Annotated[ChunkMessage | NoMoreChunksMessage, Field(discriminator="type")]
)
_FIT = Reader[FitForm](FitForm)
_STATEMENT = Reader[StatementForm](StatementForm)


def reply_of(frame: Frame) -> Reply:
    """What a child says. Raises `FrameError`."""
    return _REPLY(frame.header)


@dataclass(frozen=True, slots=True)
class Describe:
    """Say who you are."""

    name: str

    def to_frame(self) -> Frame:
        message: DescribeMessage = {"type": "describe", "name": self.name}
        return Frame(dict(message))

    @classmethod
    def from_frame(cls, header: Mapping[str, Any]) -> Describe:
        message = _REQUEST(header)
        if message["type"] != "describe":
            raise _another("describe")
        return cls(message["name"])


@dataclass(frozen=True, slots=True)
class ReadForm:
    """Validate a form: all that can be said before a guarantee is opened."""

    name: str
    form: Mapping[str, Any]
    schema: Schema

    def to_frame(self) -> Frame:
        message: ReadFormMessage = {
            "type": "read_form",
            "name": self.name,
            "form": dict(self.form),
            "schema": self.schema.to_wire(),
        }
        return Frame(dict(message))

    @classmethod
    def from_frame(cls, header: Mapping[str, Any]) -> ReadForm:
        message = _REQUEST(header)
        if message["type"] != "read_form":
            raise _another("read_form")
        return cls(message["name"], message["form"], Schema.parse(message["schema"]))


@dataclass(frozen=True, slots=True)
class Check:
    """Predict the run of a form that was read, from public facts."""

    name: str
    form: Mapping[str, Any]
    schema: Schema
    unit: PrivacyUnit
    loss: PrivacyLoss
    public: PublicFacts | None
    limits: Limits

    def to_frame(self, kind: Literal["check", "check_public"] = "check") -> Frame:
        public: PublicFactsForm | None = None
        if self.public is not None:
            public = {"schema": self.public.schema.to_wire(), "rows": self.public.rows}
        message: CheckMessage = {
            "type": kind,
            "name": self.name,
            "form": dict(self.form),
            "schema": self.schema.to_wire(),
            "unit": self.unit.to_wire(),
            "loss": loss_to_json(self.loss),
            "public": public,
            "limits": {
                "max_total_rows": self.limits.max_total_rows,
                "rows": self.limits.rows,
                "memory_bytes": self.limits.memory_bytes,
                "time_s": self.limits.time_s,
            },
        }
        return Frame(dict(message))

    @classmethod
    def from_frame(cls, header: Mapping[str, Any]) -> Check:
        message = _REQUEST(header)
        if message["type"] != "check" and message["type"] != "check_public":
            raise _another("check")
        public = message["public"]
        return cls(
            message["name"],
            message["form"],
            Schema.parse(message["schema"]),
            PrivacyUnit.parse(message["unit"]),
            loss_from_json(message["loss"]),
            None if public is None else PublicFacts(Schema.parse(public["schema"]), public["rows"]),
            Limits(**message["limits"]),
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """Draw rows from a stored model, or hand out its counts.

    `rows` None: the noisy count, of which the model takes no more than the public `most_rows`.
    """

    name: str
    schema: Schema
    unit: PrivacyUnit
    model: bytes
    rows: int | None
    seed: int
    most_rows: int
    kind: Literal["rows", "counts"] = "rows"

    def to_frame(self) -> Frame:
        message: SampleMessage = {
            "type": "sample",
            "name": self.name,
            "schema": self.schema.to_wire(),
            "unit": self.unit.to_wire(),
            "rows": self.rows,
            "seed": self.seed,
            "most_rows": self.most_rows,
            "kind": self.kind,
        }
        return Frame(dict(message), (np.frombuffer(self.model, dtype=np.uint8),))

    @classmethod
    def from_frame(cls, header: Mapping[str, Any], model: NDArray[Any]) -> Sample:
        message = _REQUEST(header)
        if message["type"] != "sample":
            raise _another("sample")
        return cls(
            message["name"],
            Schema.parse(message["schema"]),
            PrivacyUnit.parse(message["unit"]),
            model.tobytes(),
            message["rows"],
            message["seed"],
            message["most_rows"],
            message["kind"],
        )


# What a host sends before it serves the session.
FIT = Frame({"type": "fit"})


@dataclass(frozen=True, slots=True)
class FitTask:
    """The task of a session's opening: params as `check` normalised them, and the seed."""

    name: str
    params: Mapping[str, Any]
    seed: int
    public: PublicTable | None = None

    def to_json(self) -> FitForm:
        public: PublicTableForm | None = None
        if self.public is not None:
            table = self.public.table
            public = {
                "schema": self.public.schema.to_wire(),
                "columns": list(table.codes),
                "rows": table.rows,
                "entity": table.entity is not None,
            }
        return {"name": self.name, "params": dict(self.params), "seed": self.seed, "public": public}

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The public table's arrays, which travel beside the task."""
        return () if self.public is None else _arrays_of(self.public.table)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any], arrays: tuple[NDArray[Any], ...]) -> FitTask:
        form = _FIT(wire)
        stored, public = form["public"], None
        if stored is not None:
            table = _table_of(stored["columns"], stored["rows"], stored["entity"], arrays)
            public = PublicTable(Schema.parse(stored["schema"]), table)
        return cls(form["name"], form["params"], form["seed"], public)


def statement(expected: Sequence[ExpectedError]) -> dict[str, Any]:
    """What goes with a fitted model: JSON made of the model alone."""
    return {"expected_errors": [expected_error_to_json(each) for each in expected]}


def expected_error_to_json(expected: ExpectedError) -> dict[str, Any]:
    return {
        "columns": list(expected.columns),
        "distance": float(expected.distance),
        "confidence": float(expected.confidence),
    }


def expected_errors_of(statement: Any, schema: Schema) -> tuple[ExpectedError, ...]:
    """Read a `statement`; raises `FrameError` for one that does not fit the dictionary."""
    forms = _STATEMENT(statement)["expected_errors"]
    for form in forms:
        _check_known(form["columns"], schema)
    try:
        return tuple(
            ExpectedError(tuple(form["columns"]), form["distance"], form["confidence"])
            for form in forms
        )
    except ValueError:
        raise FrameError("this is no expected error") from None


@dataclass(frozen=True, slots=True)
class Described:
    """A synthesizer in its own words, and the JSON Schema of its params."""

    name: str
    title: str
    reference: str
    params_schema: dict[str, Any]

    def to_frame(self) -> Frame:
        return Frame({"type": "described", **asdict(self)})

    @classmethod
    def from_frame(cls, frame: Frame) -> Described:
        reply = reply_of(frame)
        if reply["type"] != "described":
            raise _another("described")
        return cls(reply["name"], reply["title"], reply["reference"], reply["params_schema"])


@dataclass(frozen=True, slots=True)
class FormRead:
    """What a form says before it is known what a run may spend.

    params: the form with its defaults, None if it is malformed. delta_share: the share of delta
    that the run sets aside for approximate steps. looks_at_public: whether `check_public` has
    more to say than `check`.
    """

    params: dict[str, Any] | None
    problems: tuple[Problem, ...] = ()
    delta_share: float = 0.0
    looks_at_public: bool = False

    def to_frame(self) -> Frame:
        message: FormReadMessage = {
            "type": "form_read",
            "params": self.params,
            "problems": _problem_forms(self.problems),
            "delta_share": self.delta_share,
            "looks_at_public": self.looks_at_public,
        }
        return Frame(dict(message))

    @classmethod
    def from_frame(cls, frame: Frame) -> FormRead:
        reply = reply_of(frame)
        if reply["type"] != "form_read":
            raise _another("form_read")
        problems = _problems(reply["problems"])
        if reply["params"] is None and not problems:
            raise FrameError("a malformed form has problems")
        return cls(reply["params"], problems, reply["delta_share"], reply["looks_at_public"])


def checked_frame(preflight: Preflight) -> Frame:
    least = preflight.least_expected_error
    message: CheckedMessage = {
        "type": "checked",
        "cells": preflight.cells,
        "memory_bytes": preflight.memory_bytes,
        "expected_error": _finite(preflight.expected_error),
        "least_expected_error": None if least is None else _finite(least),
        "problems": _problem_forms(preflight.problems),
    }
    return Frame(dict(message))


def checked(frame: Frame) -> Preflight:
    """The forecast of a `checked_frame`. Raises `FrameError`."""
    reply = reply_of(frame)
    if reply["type"] != "checked":
        raise _another("checked")
    return Preflight(
        reply["cells"],
        reply["memory_bytes"],
        reply["expected_error"],
        _problems(reply["problems"]),
        reply["least_expected_error"],
    )


def chunk_frame(chunk: Mapping[str, NDArray[Any]] | None) -> Frame:
    """Public rows that a child asked for; None ends them."""
    if chunk is None:
        return Frame({"type": "end"})
    return Frame({"type": "chunk", "columns": list(chunk)}, tuple(chunk.values()))


def chunk_of(frame: Frame) -> dict[str, NDArray[Any]] | None:
    """The rows of a `chunk_frame`. Raises `FrameError`."""
    message = _CHUNK(frame.header)
    if message["type"] == "end":
        return None
    if len(message["columns"]) != len(frame.arrays):
        raise FrameError("there is one array for each column")
    return dict(zip(message["columns"], frame.arrays, strict=True))


def read_frame(columns: Sequence[str]) -> Frame:
    """Asks the host for the first chunk of public rows; `NEXT` asks for each of the others."""
    return Frame({"type": "read", "columns": list(columns)})


NEXT = Frame({"type": "next"})


def read_columns(reply: ReadMessage, schema: Schema) -> list[str]:
    """The public columns that a child asks for; raises `FrameError` for any other thing."""
    _check_known(reply["columns"], schema)
    return list(dict.fromkeys(reply["columns"]))


def public_checked_frame(problems: Sequence[Problem]) -> Frame:
    return Frame({"type": "public_checked", "problems": _problem_forms(problems)})


def public_checked(reply: Reply) -> tuple[Problem, ...]:
    """Raises `FrameError`."""
    if reply["type"] != "public_checked":
        raise _another("public_checked")
    return _problems(reply["problems"])


def table_parts(table: Table) -> Iterator[Frame]:
    """A table in parts, then the frame that ends it."""
    step = max(1, VALUES_PER_PART // (len(table.codes) + 1))
    for first in range(0, table.rows, step):
        part = slice(first, min(first + step, table.rows))
        rows = part.stop - part.start
        codes = {name: column[part] for name, column in table.codes.items()}
        entity = None if table.entity is None else table.entity[part]
        yield _part(Table(codes, rows, entity))
    end: EndMessage = {"type": "end", "rows": table.rows, "columns": list(table.codes)}
    yield Frame(dict(end))


def _part(table: Table) -> Frame:
    message: PartMessage = {
        "type": "part",
        "columns": list(table.codes),
        "rows": table.rows,
        "entity": table.entity is not None,
    }
    return Frame(dict(message), _arrays_of(table))


def table_part(frame: Frame, schema: Schema, unit: PrivacyUnit) -> Table:
    """A part whose codes lie within the dictionary; raises `FrameError`."""
    reply = reply_of(frame)
    if reply["type"] != "part":
        raise _another("part")
    has_entity, rows = reply["entity"], reply["rows"]
    if has_entity != (unit.kind == "entity"):
        raise FrameError("a sample numbers the entities of an entity unit, and no others")
    table = _table_of(reply["columns"], rows, has_entity, frame.arrays)
    _check_known(reply["columns"], schema)
    for name, codes in table.codes.items():
        if rows and not 0 <= codes.min() <= codes.max() < schema.column(name).codes:
            raise FrameError("a sample holds codes outside the dictionary")
    if table.entity is not None and rows and table.entity.min() < 0:
        raise FrameError("entities are numbered from 0")
    return table


def empty_table(frame: Frame, schema: Schema, unit: PrivacyUnit) -> Table:
    """A table of no rows, from the frame that ends a sample; raises `FrameError`."""
    reply = reply_of(frame)
    if reply["type"] != "end":
        raise _another("end")
    _check_known(reply["columns"], schema)
    nothing = np.zeros(0, dtype=np.int64)
    entity = nothing if unit.kind == "entity" else None
    return Table(dict.fromkeys(reply["columns"], nothing), 0, entity)


def counts_frame(counts: CountsTable) -> Frame:
    count, contribution = counts.count, counts.count.contribution
    message: CountsMessage = {
        "type": "counts",
        "axes": Axes({name: count.groupings[name] for name in count.columns}).to_json(),
        "rule": contribution.rule,
        "limit": contribution.limit,
        "norm": contribution.norm,
    }
    return Frame(dict(message), (narrowed(counts.values),))


def counts_of(frame: Frame, schema: Schema) -> CountsTable:
    """Raises `FrameError` for counts that do not fit the dictionary or are negative."""
    reply = reply_of(frame)
    if reply["type"] != "counts":
        raise _another("counts")
    try:
        axes = Axes.from_json(reply["axes"], schema)
        contribution = Contribution(reply["rule"], reply["limit"], reply["norm"])
    except (ModelFormatError, ValueError):
        raise FrameError("these are no counts of the dictionary's columns") from None
    if len(frame.arrays) != 1 or frame.arrays[0].shape != axes.shape:
        raise FrameError("there is one count for each cell")
    values = integers(frame.arrays[0])
    if values.size and values.min() < 0:
        raise FrameError("counts are not negative")
    return CountsTable(Count(axes.names, axes.groupings, contribution), values)


def failure(detail: str) -> Frame:
    """The child gave up. For the custodian alone."""
    message: FailedMessage = {"type": "failed", "detail": detail[:_LONGEST_TEXT]}
    return Frame(dict(message))


def _arrays_of(table: Table) -> tuple[NDArray[Any], ...]:
    arrays = tuple(narrowed(column) for column in table.codes.values())
    return arrays if table.entity is None else (*arrays, narrowed(table.entity))


def _table_of(
    columns: list[str], rows: int, has_entity: bool, arrays: tuple[NDArray[Any], ...]
) -> Table:
    if len(arrays) != len(columns) + has_entity or len(set(columns)) != len(columns):
        raise FrameError("there is one array for each column")
    if any(array.shape != (rows,) for array in arrays):
        raise FrameError("a column has one code for each row")
    wide = list(map(integers, arrays))
    entity = wide.pop() if has_entity else None
    return Table(dict(zip(columns, wide, strict=True)), rows, entity)


def _check_known(names: Sequence[str], schema: Schema) -> None:
    if not {column.name for column in schema.columns}.issuperset(names):
        raise FrameError("a column is none of the dictionary")


def _another(kind: str) -> FrameError:
    return FrameError(f"this is not `{kind}`")


def _finite(error: float) -> float:
    return float(error) if np.isfinite(error) else sys.float_info.max


def _problem_forms(problems: Sequence[Problem]) -> list[list[str]]:
    # A preflight may find something wrong with every column; nobody reads more than these.
    return [[each.pointer, each.message, each.remedy] for each in problems[:_MOST_PROBLEMS]]


def _problems(forms: list[list[str]]) -> tuple[Problem, ...]:
    return tuple(Problem(*form) for form in forms)
