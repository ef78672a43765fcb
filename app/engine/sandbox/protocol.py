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
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainSerializer

from app.engine.columns.axes import Axes
from app.engine.method import CountsTable, ExpectedError, Limits, Preflight, Problem, PublicFacts
from app.engine.method.model_file import ModelFormatError
from app.engine.privacy.forms import (
    Elsewhere,
    Form,
    Items,
    Reader,
    Shape,
    Tagged,
    Whole,
    Wired,
    integers,
    wired,
)
from app.engine.privacy.messages import SchemaField, UnitField, table_arrays, table_of
from app.engine.privacy.packing import GroupingForm
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.questions import Loss
from app.engine.privacy.wire import Frame, FrameError, narrowed
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table

# Values of one part of a sample: 32 MiB at 8 bytes, half of what a host takes in one frame.
VALUES_PER_PART = 2**22
MOST_EXPECTED_ERRORS = 10_000
_MOST_PROBLEMS = 100
_LONGEST_TEXT = 10_000
_NO_MODEL = np.zeros(0, dtype=np.uint8)
T = TypeVar("T")

_Text = Annotated[str, Field(max_length=_LONGEST_TEXT)]
# For people to read. Cut when it is written, because its end is missed less than the whole answer.
_Prose = Annotated[_Text, PlainSerializer(lambda text: text[:_LONGEST_TEXT])]
_Size = Annotated[int, Field(ge=0, lt=2**63)]
_Seed = Annotated[int, Field(ge=0, lt=2**64)]
_Distance = Annotated[float, Field(ge=0)]


def _problems_of(forms: Sequence[Sequence[str]]) -> tuple[Problem, ...]:
    return tuple(Problem(*form) for form in forms)


def _problem_forms(problems: Sequence[Problem]) -> list[list[str]]:
    # A preflight may find something wrong with every column; nobody reads more than these.
    return [
        [
            # Half a pointer would point elsewhere; the empty one is the whole document.
            each.pointer if len(each.pointer) <= _LONGEST_TEXT else "",
            each.message[:_LONGEST_TEXT],
            each.remedy[:_LONGEST_TEXT],
        ]
        for each in problems[:_MOST_PROBLEMS]
    ]


_ProblemForm = Annotated[Items[_Text], Field(min_length=3, max_length=3)]
_ProblemForms = Annotated[Items[_ProblemForm], Field(max_length=_MOST_PROBLEMS)]
_Problems = Annotated[tuple[Problem, ...], wired(_ProblemForms, _problems_of, _problem_forms)]


class _LimitsForm(Shape):
    max_total_rows: Whole
    rows: Whole | None
    memory_bytes: Whole
    time_s: float


class _PublicFactsForm(Shape):
    schema: SchemaField
    rows: Whole


class _PublicTableForm(_PublicFactsForm):
    columns: Items[str]
    entity: bool


_PublicFacts = Annotated[
    PublicFacts,
    wired(
        _PublicFactsForm,
        lambda form: PublicFacts(**form),
        lambda facts: {"schema": facts.schema.to_wire(), "rows": facts.rows},
    ),
]
_Limits = Annotated[Limits, wired(_LimitsForm, lambda form: Limits(**form), asdict)]


class _Request(Form):
    __slots__ = ()

    def to_frame(self) -> Frame:
        return Frame(_REQUEST.write(self))

    @classmethod
    def from_frame(cls, header: Mapping[str, Any]) -> Self:
        """Raises `FrameError`."""
        return _same_kind(cls, _REQUEST.read(header))


class _Reply(Form):
    __slots__ = ()

    def to_frame(self) -> Frame:
        return Frame(_REPLY.write(self))

    @classmethod
    def from_frame(cls, frame: Frame) -> Self:
        """Raises `FrameError`."""
        return _same_kind(cls, reply_of(frame))


def _same_kind(form: type[T], message: object) -> T:
    if not isinstance(message, form):
        raise FrameError(f"this is not `{form.__name__}`")
    return message


@dataclass(frozen=True, slots=True)
class Describe(_Request):
    """Say who you are."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadForm(_Request):
    """Validate the params of a request (its form): what does not depend on the guarantee."""

    name: str
    form: Mapping[str, Any]
    schema: SchemaField


@dataclass(frozen=True, slots=True)
class Check(_Request):
    """Predict the run of a form that was read, from public facts."""

    name: str
    form: Mapping[str, Any]
    schema: SchemaField
    unit: UnitField
    loss: Loss
    public: _PublicFacts | None
    limits: _Limits

    def to_frame(self, kind: Literal["check", "check_public"] = "check") -> Frame:
        return Frame({**_REQUEST.write(self), "type": kind})


@dataclass(frozen=True, slots=True)
class Sample(_Request):
    """Draw rows from a stored model, or hand out its counts.

    `rows` None: the noisy count, of which the model takes no more than the public `most_rows`.
    """

    name: str
    schema: SchemaField
    unit: UnitField
    model: Elsewhere[bytes]
    rows: Whole | None
    seed: _Seed
    most_rows: Whole
    kind: Literal["rows", "counts"] = "rows"

    def to_frame(self) -> Frame:
        return Frame(_REQUEST.write(self), (np.frombuffer(self.model, dtype=np.uint8),))

    @classmethod
    def from_frame(cls, header: Mapping[str, Any], model: NDArray[Any] = _NO_MODEL) -> Sample:
        """Raises `FrameError`."""
        return _same_kind(cls, _REQUEST.read(header, model=model.tobytes()))


# What a host sends before it serves the session.
FIT = Frame({"type": "fit"})


def _public_table(form: _PublicTableForm | None, info: Any) -> PublicTable | None:
    if form is None:
        return None
    table = table_of(form["columns"], form["rows"], form["entity"], info.context)
    return PublicTable(form["schema"], table)


def _public_table_form(public: PublicTable | None, _: Any) -> dict[str, Any] | None:
    if public is None:
        return None
    return {"schema": public.schema.to_wire(), **_table_header(public.table)}


@dataclass(frozen=True, slots=True)
class FitTask(Form):
    """The task of a session's opening: params as `check` normalised them, and the seed."""

    name: str
    params: Mapping[str, Any]
    seed: _Seed
    public: Annotated[
        PublicTable | None, Wired(_PublicTableForm | None, _public_table, _public_table_form)
    ] = None

    def to_json(self) -> dict[str, Any]:
        wire: dict[str, Any] = _FIT.write(self)
        return wire

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The public table's arrays, which travel beside the task."""
        return () if self.public is None else table_arrays(self.public.table)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any], arrays: tuple[NDArray[Any], ...]) -> FitTask:
        """Raises `FrameError`."""
        return _FIT(wire, arrays)


class _ExpectedErrorForm(Shape):
    columns: Items[_Text]
    distance: _Distance
    confidence: _Distance


def expected_error_to_json(expected: ExpectedError) -> dict[str, Any]:
    return {
        "columns": list(expected.columns),
        "distance": float(expected.distance),
        "confidence": float(expected.confidence),
    }


_ExpectedError = Annotated[
    ExpectedError,
    wired(_ExpectedErrorForm, lambda form: ExpectedError(**form), expected_error_to_json),
]


@dataclass(frozen=True, slots=True)
class _Statement(Form):
    expected_errors: Annotated[Items[_ExpectedError], Field(max_length=MOST_EXPECTED_ERRORS)]


def statement(expected: Sequence[ExpectedError]) -> dict[str, Any]:
    """What goes with a fitted model: JSON made of the model alone."""
    return {"expected_errors": [expected_error_to_json(each) for each in expected]}


def expected_errors_of(statement: Any, schema: Schema) -> tuple[ExpectedError, ...]:
    """Read a `statement`; raises `FrameError` for one that does not fit the dictionary."""
    expected = _STATEMENT(statement).expected_errors
    for each in expected:
        _check_known(each.columns, schema)
    return expected


@dataclass(frozen=True, slots=True)
class Described(_Reply):
    """A synthesizer in its own words, and the JSON Schema of its params."""

    name: _Text
    title: _Prose
    reference: _Prose
    params_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FormRead(_Reply):
    """What a form says before it is known what a run may spend.

    params: the form with its defaults, None if it is malformed. delta_share: the share of delta
    that the run sets aside for approximate steps. looks_at_public: whether `check_public` has
    more to say than `check`.
    """

    params: dict[str, Any] | None
    problems: _Problems = ()
    delta_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    looks_at_public: bool = False

    def __post_init__(self) -> None:
        if self.params is None and not self.problems:
            raise ValueError("a malformed form has problems")


@dataclass(frozen=True, slots=True)
class _Checked(_Reply):
    cells: _Size
    memory_bytes: _Size
    expected_error: _Distance
    problems: _Problems
    least_expected_error: _Distance | None


@dataclass(frozen=True, slots=True)
class PublicChecked(_Reply):
    problems: _Problems


@dataclass(frozen=True, slots=True)
class Read(_Reply):
    """Asks the host for the first chunk of public rows; `NEXT` asks for each of the others."""

    columns: Items[_Text]


@dataclass(frozen=True, slots=True)
class Next(_Reply):
    pass


@dataclass(frozen=True, slots=True)
class _Part(_Reply):
    columns: Items[_Text]
    rows: _Size
    entity: bool


@dataclass(frozen=True, slots=True)
class End(_Reply):
    columns: Items[_Text]
    rows: _Size


@dataclass(frozen=True, slots=True)
class _Counts(_Reply):
    _inline: ClassVar = ("contribution", ("rule", "limit", "norm"))
    axes: Items[Annotated[list[str | GroupingForm], Field(min_length=2, max_length=2)]]
    contribution: Contribution


@dataclass(frozen=True, slots=True)
class Failed(_Reply):
    detail: _Prose


@dataclass(frozen=True, slots=True)
class _Chunk(Form):
    columns: Items[str]


@dataclass(frozen=True, slots=True)
class _NoMoreChunks(Form):
    pass


_REQUEST = Tagged[Any](
    {
        "describe": Describe,
        "read_form": ReadForm,
        "check": Check,
        "check_public": Check,
        "sample": Sample,
    }
)
_REPLY = Tagged[Any](
    {
        "described": Described,
        "form_read": FormRead,
        "checked": _Checked,
        "public_checked": PublicChecked,
        "read": Read,
        "next": Next,
        "part": _Part,
        "end": End,
        "counts": _Counts,
        "failed": Failed,
    }
)
_CHUNK = Tagged[Any]({"chunk": _Chunk, "end": _NoMoreChunks})
_FIT = Reader[FitTask](FitTask)
_STATEMENT = Reader[_Statement](_Statement)
NEXT = Next().to_frame()


def reply_of(frame: Frame) -> Any:
    """What a child says. Raises `FrameError`."""
    return _REPLY.read(frame.header)


def checked_frame(preflight: Preflight) -> Frame:
    least = preflight.least_expected_error
    return _Checked(
        # A third party may count with numpy.
        int(preflight.cells),
        int(preflight.memory_bytes),
        _finite(preflight.expected_error),
        preflight.problems,
        None if least is None else _finite(least),
    ).to_frame()


def checked(frame: Frame) -> Preflight:
    """The forecast of a `checked_frame`. Raises `FrameError`."""
    reply = _Checked.from_frame(frame)
    return Preflight(**{each.name: getattr(reply, each.name) for each in fields(reply)})


def chunk_frame(chunk: Mapping[str, NDArray[Any]] | None) -> Frame:
    """Public rows that a child asked for; None ends them."""
    if chunk is None:
        return Frame(_CHUNK.write(_NoMoreChunks()))
    return Frame(_CHUNK.write(_Chunk(tuple(chunk))), tuple(chunk.values()))


def chunk_of(frame: Frame) -> dict[str, NDArray[Any]] | None:
    """The rows of a `chunk_frame`. Raises `FrameError`."""
    message = _CHUNK.read(frame.header)
    if isinstance(message, _NoMoreChunks):
        return None
    if len(message.columns) != len(frame.arrays):
        raise FrameError("expected one array for each column")
    return dict(zip(message.columns, frame.arrays, strict=True))


def read_columns(reply: Read, schema: Schema) -> list[str]:
    """The public columns that a child asks for; raises `FrameError` for any other thing."""
    _check_known(reply.columns, schema)
    return list(dict.fromkeys(reply.columns))


def table_parts(table: Table) -> Iterator[Frame]:
    """A table in parts, then the frame that ends it."""
    step = max(1, VALUES_PER_PART // (len(table.codes) + 1))
    for first in range(0, table.rows, step):
        part = slice(first, min(first + step, table.rows))
        codes = {name: column[part] for name, column in table.codes.items()}
        entity = None if table.entity is None else table.entity[part]
        taken = Table(codes, part.stop - part.start, entity)
        yield Frame({"type": "part", **_table_header(taken)}, table_arrays(taken))
    yield End(tuple(table.codes), table.rows).to_frame()


def table_part(frame: Frame, schema: Schema, unit: PrivacyUnit) -> Table:
    """A part whose codes lie within the dictionary; raises `FrameError`."""
    part = _Part.from_frame(frame)
    if part.entity != (unit.kind == "entity"):
        raise FrameError("a sample numbers the entities of an entity unit, and no others")
    table = table_of(part.columns, part.rows, part.entity, frame.arrays)
    _check_known(part.columns, schema)
    for name, codes in table.codes.items():
        if part.rows and not 0 <= codes.min() <= codes.max() < schema.column(name).codes:
            raise FrameError("a sample holds codes outside the dictionary")
    if table.entity is not None and part.rows and table.entity.min() < 0:
        raise FrameError("entities are numbered from 0")
    return table


def empty_table(frame: Frame, schema: Schema, unit: PrivacyUnit) -> Table:
    """A table of no rows, from the frame that ends a sample; raises `FrameError`."""
    columns = End.from_frame(frame).columns
    _check_known(columns, schema)
    nothing = np.zeros(0, dtype=np.int64)
    return Table(dict.fromkeys(columns, nothing), 0, nothing if unit.kind == "entity" else None)


def counts_frame(counts: CountsTable) -> Frame:
    count = counts.count
    axes = Axes({name: count.groupings[name] for name in count.columns})
    header = _REPLY.write(_Counts(tuple(axes.to_json()), count.contribution))
    return Frame(header, (narrowed(counts.values),))


def counts_of(frame: Frame, schema: Schema) -> CountsTable:
    """Raises `FrameError` for counts that do not fit the dictionary or are negative."""
    reply = _Counts.from_frame(frame)
    try:
        axes = Axes.from_json(reply.axes, schema)
    except (ModelFormatError, ValueError):
        raise FrameError("these are no counts of the dictionary's columns") from None
    if len(frame.arrays) != 1 or frame.arrays[0].shape != axes.shape:
        raise FrameError("expected one count for each cell")
    values = integers(frame.arrays[0])
    if values.size and values.min() < 0:
        raise FrameError("counts are not negative")
    return CountsTable(Count(axes.names, axes.groupings, reply.contribution), values)


def failure(detail: str) -> Frame:
    """The child gave up. For the custodian alone."""
    return Failed(detail).to_frame()


def _table_header(table: Table) -> dict[str, Any]:
    entity = table.entity is not None
    return {"columns": list(table.codes), "rows": table.rows, "entity": entity}


def _check_known(names: Sequence[str], schema: Schema) -> None:
    if not {column.name for column in schema.columns}.issuperset(names):
        raise FrameError("a column is none of the dictionary")


def _finite(error: float) -> float:
    return float(error) if np.isfinite(error) else sys.float_info.max
