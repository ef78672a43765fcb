"""What a child is asked to do and what it says, as frames on its socket.

A child does one thing and ends:

    host: describe | check | sample      child: the reply, or `failed`
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
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.method.base import (
    CountsTable,
    ExpectedError,
    Limits,
    Preflight,
    Problem,
    PublicFacts,
)
from app.engine.method.model_file import ModelFormatError
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.messages import loss_from_json, loss_to_json
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.wire import Frame, FrameError, narrowed
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table

VALUES_PER_PART = 2**22
"""A sample travels in parts of at most so many values."""

MOST_EXPECTED_ERRORS = 10_000
_MOST_PROBLEMS = 100
_LONGEST_TEXT = 10_000
_DESCRIBED = ("name", "title", "reference")


@dataclass(frozen=True, slots=True)
class Describe:
    """Say who you are."""

    name: str

    def to_frame(self) -> Frame:
        return Frame({"type": "describe", "name": self.name})


@dataclass(frozen=True, slots=True)
class Check:
    """Validate a form and predict its run from public facts."""

    name: str
    form: Mapping[str, Any]
    schema: Schema
    unit: PrivacyUnit
    loss: PrivacyLoss
    public: PublicFacts | None
    limits: Limits

    def to_frame(self, kind: Literal["check", "check_public"] = "check") -> Frame:
        public = self.public
        return Frame(
            {
                "type": kind,
                "name": self.name,
                "form": dict(self.form),
                "schema": self.schema.to_wire(),
                "unit": self.unit.to_wire(),
                "loss": loss_to_json(self.loss),
                "public": None
                if public is None
                else {"schema": public.schema.to_wire(), "rows": public.rows},
                "limits": asdict(self.limits),
            }
        )

    @classmethod
    def from_frame(cls, header: Mapping[str, Any]) -> Check:
        public = header["public"]
        return cls(
            header["name"],
            header["form"],
            Schema.parse(header["schema"]),
            PrivacyUnit.parse(header["unit"]),
            loss_from_json(header["loss"]),
            None if public is None else PublicFacts(Schema.parse(public["schema"]), public["rows"]),
            Limits(**header["limits"]),
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
        header = {
            "type": "sample",
            "name": self.name,
            "schema": self.schema.to_wire(),
            "unit": self.unit.to_wire(),
            "rows": self.rows,
            "seed": self.seed,
            "most_rows": self.most_rows,
            "kind": self.kind,
        }
        return Frame(header, (np.frombuffer(self.model, dtype=np.uint8),))

    @classmethod
    def from_frame(cls, header: Mapping[str, Any], model: NDArray[Any]) -> Sample:
        return cls(
            header["name"],
            Schema.parse(header["schema"]),
            PrivacyUnit.parse(header["unit"]),
            model.tobytes(),
            header["rows"],
            header["seed"],
            header["most_rows"],
            header["kind"],
        )


FIT = Frame({"type": "fit"})
"""What a host sends before it serves the session."""


@dataclass(frozen=True, slots=True)
class FitTask:
    """The task of a session's opening: params as `check` normalised them, and the seed."""

    name: str
    params: Mapping[str, Any]
    seed: int
    public: PublicTable | None = None

    def to_json(self) -> dict[str, Any]:
        wire = {"name": self.name, "params": dict(self.params), "seed": self.seed}
        if self.public is None:
            return wire | {"public": None}
        table = self.public.table
        return wire | {
            "public": {
                "schema": self.public.schema.to_wire(),
                "columns": list(table.codes),
                "rows": table.rows,
                "entity": table.entity is not None,
            }
        }

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The public table's arrays, which travel beside the task."""
        return () if self.public is None else _arrays_of(self.public.table)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any], arrays: tuple[NDArray[Any], ...]) -> FitTask:
        stored = wire["public"]
        public = None
        if stored is not None:
            table = _table_of(stored["columns"], stored["rows"], stored["entity"], arrays)
            public = PublicTable(Schema.parse(stored["schema"]), table)
        return cls(wire["name"], wire["params"], wire["seed"], public)


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
    told = statement.get("expected_errors") if isinstance(statement, dict) else None
    if not isinstance(told, list) or len(told) > MOST_EXPECTED_ERRORS:
        raise FrameError("a model states a list of expected errors, and not too many")
    known = {column.name for column in schema.columns}
    return tuple(_expected_error(each, known) for each in told)


def _expected_error(told: Any, known: set[str]) -> ExpectedError:
    try:
        columns = tuple(_text(name) for name in told["columns"])
        distance, confidence = _number(told["distance"]), _number(told["confidence"])
        expected = ExpectedError(columns, distance, confidence)
    except (LookupError, TypeError, ValueError):
        raise FrameError("this is no expected error") from None
    if not known.issuperset(columns):
        raise FrameError("an expected error names columns of the dictionary")
    return expected


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
        _expect(frame, "described")
        schema = frame.header.get("params_schema")
        if not isinstance(schema, dict):
            raise FrameError("a form is described by a JSON Schema")
        said = {key: _text(frame.header.get(key)) for key in _DESCRIBED}
        return cls(**said, params_schema=schema)


@dataclass(frozen=True, slots=True)
class Checked:
    """The form with its defaults (None if it is malformed), the forecast of the run, the share
    of delta that it sets aside (see `base.delta_share`), and whether it wants to look at the
    public rows as well (see `base.public_row_problems`)."""

    params: dict[str, Any] | None
    preflight: Preflight
    delta_share: float = 0.0
    looks_at_public: bool = False

    def to_frame(self) -> Frame:
        preflight = self.preflight
        return Frame(
            {
                "type": "checked",
                "params": self.params,
                "delta_share": self.delta_share,
                "looks_at_public": self.looks_at_public,
                "cells": preflight.cells,
                "memory_bytes": preflight.memory_bytes,
                "expected_error": _finite(preflight.expected_error),
                "least_expected_error": None
                if preflight.least_expected_error is None
                else _finite(preflight.least_expected_error),
                "problems": _problems_to_json(preflight.problems),
            }
        )

    @classmethod
    def from_frame(cls, frame: Frame) -> Checked:
        _expect(frame, "checked")
        params, problems = frame.header.get("params"), frame.header.get("problems")
        if params is not None and not isinstance(params, dict):
            raise FrameError("params are an object")
        if not isinstance(problems, list) or (params is None and not problems):
            raise FrameError("a malformed form has problems")
        least = frame.header.get("least_expected_error")
        share = _number(frame.header.get("delta_share"))
        if share >= 1:
            raise FrameError("a share of delta lies between 0 and 1")
        return cls(
            params,
            Preflight(
                _whole(frame.header.get("cells")),
                _whole(frame.header.get("memory_bytes")),
                _number(frame.header.get("expected_error")),
                _problems_of(problems),
                None if least is None else _number(least),
            ),
            share,
            frame.header.get("looks_at_public") is True,
        )


def chunk_frame(chunk: Mapping[str, NDArray[Any]] | None) -> Frame:
    """Public rows that a child asked for; None ends them."""
    if chunk is None:
        return Frame({"type": "end"})
    return Frame({"type": "chunk", "columns": list(chunk)}, tuple(chunk.values()))


def read_columns(frame: Frame, schema: Schema) -> list[str]:
    """The public columns that a child asks for; raises `FrameError` for any other thing."""
    _expect(frame, "read")
    columns = frame.header.get("columns")
    known = {column.name for column in schema.columns}
    if not isinstance(columns, list) or not known.issuperset(map(_text, columns)):
        raise FrameError("columns of the public dictionary are read")
    return list(dict.fromkeys(columns))


def public_checked_frame(problems: Sequence[Problem]) -> Frame:
    return Frame({"type": "public_checked", "problems": _problems_to_json(problems)})


def public_checked(frame: Frame) -> tuple[Problem, ...]:
    """Raises `FrameError`."""
    _expect(frame, "public_checked")
    problems = frame.header.get("problems")
    if not isinstance(problems, list):
        raise FrameError("problems are a list")
    return _problems_of(problems)


def table_parts(table: Table) -> Iterator[Frame]:
    """A table in parts, then the frame that ends it."""
    step = max(1, VALUES_PER_PART // (len(table.codes) + 1))
    for first in range(0, table.rows, step):
        part = slice(first, min(first + step, table.rows))
        rows = part.stop - part.start
        codes = {name: column[part] for name, column in table.codes.items()}
        entity = None if table.entity is None else table.entity[part]
        yield _part(Table(codes, rows, entity))
    yield Frame({"type": "end", "rows": table.rows, "columns": list(table.codes)})


def _part(table: Table) -> Frame:
    header = {
        "type": "part",
        "columns": list(table.codes),
        "rows": table.rows,
        "entity": table.entity is not None,
    }
    return Frame(header, _arrays_of(table))


def table_part(frame: Frame, schema: Schema, unit: PrivacyUnit) -> Table:
    """A part whose codes lie within the dictionary; raises `FrameError`."""
    _expect(frame, "part")
    columns, rows = frame.header.get("columns"), _whole(frame.header.get("rows"))
    has_entity = unit.kind == "entity"
    if frame.header.get("entity") is not has_entity or not isinstance(columns, list):
        raise FrameError("a sample numbers the entities of an entity unit, and no others")
    table = _table_of([_text(name) for name in columns], rows, has_entity, frame.arrays)
    known = {column.name: column.codes for column in schema.columns}
    for name, codes in table.codes.items():
        if name not in known or (rows and not 0 <= codes.min() <= codes.max() < known[name]):
            raise FrameError("a sample holds codes outside the dictionary")
    if table.entity is not None and rows and table.entity.min() < 0:
        raise FrameError("entities are numbered from 0")
    return table


def empty_table(frame: Frame, schema: Schema, unit: PrivacyUnit) -> Table:
    """A table of no rows, from the frame that ends a sample; raises `FrameError`."""
    _expect(frame, "end")
    columns = frame.header.get("columns")
    known = {column.name for column in schema.columns}
    if not isinstance(columns, list) or not all(name in known for name in map(_text, columns)):
        raise FrameError("a sample names columns of the dictionary")
    nothing = np.zeros(0, dtype=np.int64)
    return Table(dict.fromkeys(columns, nothing), 0, nothing if unit.kind == "entity" else None)


def counts_frame(counts: CountsTable) -> Frame:
    contribution = counts.count.contribution
    header = {
        "type": "counts",
        "axes": [[name, counts.count.groupings[name].to_json()] for name in counts.count.columns],
        "rule": contribution.rule,
        "limit": contribution.limit,
        "norm": contribution.norm,
    }
    return Frame(header, (narrowed(counts.values),))


def counts_of(frame: Frame, schema: Schema) -> CountsTable:
    """Raises `FrameError` for counts that do not fit the dictionary or are negative."""
    _expect(frame, "counts")
    try:
        axes = Axes.from_json(frame.header["axes"], schema)
        contribution = Contribution(
            frame.header["rule"], frame.header["limit"], frame.header["norm"]
        )
    except (ModelFormatError, ValueError, KeyError, TypeError):
        raise FrameError("these are no counts of the dictionary's columns") from None
    if len(frame.arrays) != 1 or frame.arrays[0].shape != axes.shape:
        raise FrameError("there is one count for each cell")
    values = frame.arrays[0]
    if values.dtype.kind not in "iu" or (values.size and values.min() < 0):
        raise FrameError("counts are whole numbers, not negative")
    return CountsTable(Count(axes.names, axes.groupings, contribution), values.astype(np.int64))


def failure(detail: str) -> Frame:
    """The child gave up. For the custodian alone."""
    return Frame({"type": "failed", "detail": detail[:_LONGEST_TEXT]})


def _arrays_of(table: Table) -> tuple[NDArray[Any], ...]:
    arrays = tuple(narrowed(column) for column in table.codes.values())
    return arrays if table.entity is None else (*arrays, narrowed(table.entity))


def _table_of(
    columns: list[str], rows: int, has_entity: bool, arrays: tuple[NDArray[Any], ...]
) -> Table:
    if len(arrays) != len(columns) + has_entity or len(set(columns)) != len(columns):
        raise FrameError("there is one array for each column")
    if any(array.shape != (rows,) or array.dtype.kind not in "iu" for array in arrays):
        raise FrameError("columns are whole numbers, one for each row")
    wide = [array.astype(np.int64) for array in arrays]
    entity = wide.pop() if has_entity else None
    return Table(dict(zip(columns, wide, strict=True)), rows, entity)


def _expect(frame: Frame, kind: str) -> None:
    if frame.header.get("type") != kind:
        raise FrameError(f"this is not `{kind}`")


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise FrameError("a text is missing or too long")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise FrameError("a whole number is missing")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise FrameError("a number is missing")
    return float(value)


def _finite(error: float) -> float:
    return float(error) if np.isfinite(error) else sys.float_info.max


def _problems_to_json(problems: Sequence[Problem]) -> list[list[str]]:
    return [[problem.pointer, problem.message, problem.remedy] for problem in problems]


def _problems_of(problems: list[Any]) -> tuple[Problem, ...]:
    return tuple(_problem(problem) for problem in problems[:_MOST_PROBLEMS])


def _problem(value: Any) -> Problem:
    if not isinstance(value, list) or len(value) != 3:
        raise FrameError("a problem has pointer, message and remedy")
    return Problem(*(_text(part) for part in value))
