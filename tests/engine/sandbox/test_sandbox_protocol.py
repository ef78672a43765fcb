from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_tables import LIMITS, ROW, colours, random_codes

from app.engine.method import CountsTable, ExpectedError, Preflight, Problem, PublicFacts
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count
from app.engine.privacy.wire import Frame, FrameError, pack, unpack
from app.engine.sandbox import protocol
from app.engine.sandbox.protocol import (
    Check,
    Described,
    FormRead,
    ReadForm,
    Sample,
    expected_errors_of,
)
from app.engine.schema import PrivacyUnit
from app.engine.table import Table

SCHEMA = colours()
HOUSEHOLD = PrivacyUnit("entity", "id", 3)


def travelled(frame: Frame) -> Frame:
    return unpack(pack(frame))


def table(rows: int = 10, entity: bool = False) -> Table:
    return Table(random_codes(SCHEMA, rows), rows, np.arange(rows) if entity else None)


def test_requests_come_back_as_they_were_sent() -> None:
    check = Check("mst", {"a": [1]}, SCHEMA, ROW, PrivacyLoss.zcdp(5, 7), None, LIMITS)
    assert Check.from_frame(travelled(check.to_frame()).header) == check
    with_public = Check(
        "mst", {}, SCHEMA, HOUSEHOLD, PrivacyLoss.pure(5), PublicFacts(SCHEMA, 9), LIMITS
    )
    assert Check.from_frame(travelled(with_public.to_frame()).header) == with_public
    read = ReadForm("mst", {"a": [1]}, SCHEMA)
    assert ReadForm.from_frame(travelled(read.to_frame()).header) == read
    sample = Sample("mst", SCHEMA, ROW, b"model", None, 2**63, 1000, "counts")
    frame = travelled(sample.to_frame())
    assert Sample.from_frame(frame.header, frame.arrays[0]) == sample


def test_replies_come_back_as_they_were_sent() -> None:
    described = Described("a", "b", "c", {"type": "object"})
    assert Described.from_frame(travelled(described.to_frame())) == described
    preflight = Preflight(1, 2, 0.5, (Problem("/a", "b", "c"),), 0.1)
    assert protocol.checked(travelled(protocol.checked_frame(preflight))) == preflight
    for read in (FormRead({"a": 1}, (), 0.25, True), FormRead(None, (Problem("/a", "b", "c"),))):
        assert FormRead.from_frame(travelled(read.to_frame())) == read


def test_texts_for_people_are_cut_to_what_is_read() -> None:
    long = "x" * 20_000
    problem = Problem("/" + long, long, long)
    (read,) = protocol.checked(
        travelled(protocol.checked_frame(Preflight(1, 2, 0.5, (problem,))))
    ).problems
    assert read == Problem("", long[:10_000], long[:10_000])
    described = Described.from_frame(travelled(Described("a", long, long, {}).to_frame()))
    assert (described.title, described.reference) == (long[:10_000], long[:10_000])
    assert protocol.reply_of(protocol.failure(long)).detail == long[:10_000]


def test_a_problem_is_at_a_json_pointer() -> None:
    assert Problem("", "b", "c").pointer == ""
    for place in ("params", "/a~", "/a~2", "a/b"):
        with pytest.raises(ValueError, match="JSON pointer"):
            Problem(place, "b", "c")
        frame = protocol.checked_frame(Preflight(1, 2, 0.5, (Problem("/a", "b", "c"),)))
        moved = change(frame, problems=[[place, "b", "c"]])
        with pytest.raises(FrameError, match="JSON pointer"):
            protocol.checked(travelled(moved))


def test_a_table_travels_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "VALUES_PER_PART", 16)
    whole = table(10, entity=True)
    *parts, end = (travelled(frame) for frame in protocol.table_parts(whole))
    read = [protocol.table_part(part, SCHEMA, HOUSEHOLD) for part in parts]
    assert [part.rows for part in read] == [4, 4, 2]
    assert end.header["type"] == "end"
    for name, codes in whole.codes.items():
        assert np.array_equal(np.concatenate([part.codes[name] for part in read]), codes)
    assert np.concatenate([part.entity for part in read]).tolist() == list(range(10))  # type: ignore[arg-type]


def change(frame: Frame, **header: Any) -> Frame:
    return Frame({**frame.header, **header}, frame.arrays)


PART = next(protocol.table_parts(table()))


@pytest.mark.parametrize(
    "frame",
    [
        change(PART, type="rows"),
        change(PART, first="row"),
        change(PART, rows=9),
        change(PART, rows=True),
        change(PART, entity=True),
        change(PART, columns="colour"),
        change(PART, columns=["colour", "size", "weight"]),
        change(PART, columns=["colour", "size", "size"]),
        change(PART, columns=["colour", "size", ["fare"]]),
        Frame(PART.header, PART.arrays[:2]),
        Frame(PART.header, (PART.arrays[0] + np.int8(4), *PART.arrays[1:])),
        Frame(PART.header, (-PART.arrays[0] - np.int8(1), *PART.arrays[1:])),
        Frame(PART.header, (PART.arrays[0] * 1.0, *PART.arrays[1:])),
    ],
)
def test_a_part_that_is_no_table_of_the_dictionary_is_refused(frame: Frame) -> None:
    with pytest.raises(FrameError):
        protocol.table_part(frame, SCHEMA, ROW)


def counts() -> Frame:
    grouping = SCHEMA.column("size").grouping
    count = Count(("size",), {"size": grouping}, Contribution("distinct", limit=3))
    return protocol.counts_frame(CountsTable(count, np.arange(10)))


def test_counts_come_back_as_they_were_sent() -> None:
    read = protocol.counts_of(travelled(counts()), SCHEMA)
    assert read.values.tolist() == list(range(10))
    assert read.count.contribution == Contribution("distinct", limit=3)


@pytest.mark.parametrize(
    "frame",
    [
        change(counts(), type="part"),
        change(counts(), axes=[["weight", {"regular": 10, "tail": 0}]]),
        change(counts(), axes=[["size", {"regular": 10, "tail": 0, "merge": [2**61] * 10}]]),
        change(counts(), rule="distinct", limit=None),
        change(counts(), rule=None),
        Frame(counts().header, (np.arange(9),)),
        Frame(counts().header, (-np.arange(10),)),
        Frame(counts().header, (np.ones(10),)),
        Frame(counts().header),
    ],
)
def test_counts_that_do_not_fit_are_refused(frame: Frame) -> None:
    with pytest.raises(FrameError):
        protocol.counts_of(frame, SCHEMA)


CHECKED = protocol.checked_frame(Preflight(1, 2, 0.5))
READ = FormRead({}).to_frame()


@pytest.mark.parametrize(
    "frame",
    [
        change(CHECKED, cells=-1),
        change(CHECKED, cells="many"),
        change(CHECKED, memory_bytes=2**70),
        change(CHECKED, expected_error="small"),
        change(CHECKED, problems=[["/a", "b"]]),
        change(CHECKED, problems=[["/a", "b", 3]]),
        change(CHECKED, problems=None),
        change(CHECKED, cells=1.0),
        change(CHECKED, rows=7),
        READ,
    ],
)
def test_a_forecast_that_is_none_is_refused(frame: Frame) -> None:
    with pytest.raises(FrameError):
        protocol.checked(frame)


@pytest.mark.parametrize(
    "frame",
    [
        change(READ, params=None),
        change(READ, params=[]),
        change(READ, problems=[["/a", "b"]]),
        change(READ, looks_at_public=1),
        change(READ, delta_share=1),
        change(READ, delta_share=-0.1),
        change(READ, rows=7),
        CHECKED,
    ],
)
def test_a_form_that_was_not_read_is_refused(frame: Frame) -> None:
    with pytest.raises(FrameError):
        FormRead.from_frame(frame)


@pytest.mark.parametrize("wrong", [{"title": None}, {"name": "x" * 20_000}, {"params_schema": 3}])
def test_a_description_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    frame = Described("a", "b", "c", {}).to_frame()
    with pytest.raises(FrameError):
        Described.from_frame(change(frame, **wrong))


def test_what_a_model_states_comes_back_as_it_was_sent() -> None:
    stated = (ExpectedError(("size",), 0.25, 0.9), ExpectedError(("colour", "size"), 7.5, 0.95))
    frame = travelled(Frame({"type": "result", "statement": protocol.statement(stated)}))
    assert expected_errors_of(frame.header["statement"], SCHEMA) == stated
    assert expected_errors_of(protocol.statement(()), SCHEMA) == ()


ERROR = {"columns": ["size"], "distance": 0.25, "confidence": 0.9}


@pytest.mark.parametrize(
    "statement",
    [
        None,
        {},
        {"expected_errors": None},
        {"expected_errors": [ERROR] * (protocol.MOST_EXPECTED_ERRORS + 1)},
        {"expected_errors": [None]},
        {"expected_errors": [{**ERROR, "columns": ["nothing like it"]}]},
        {"expected_errors": [{**ERROR, "columns": []}]},
        {"expected_errors": [{**ERROR, "columns": ["size", "size"]}]},
        {"expected_errors": [{**ERROR, "columns": [7]}]},
        {"expected_errors": [{**ERROR, "distance": float("nan")}]},
        {"expected_errors": [{**ERROR, "distance": -0.1}]},
        {"expected_errors": [{**ERROR, "distance": "0.1"}]},
        {"expected_errors": [{**ERROR, "confidence": 1}]},
        {"expected_errors": [{"columns": ["size"], "distance": 0.25}]},
    ],
)
def test_a_statement_that_fits_no_dictionary_is_refused(statement: Any) -> None:
    with pytest.raises(FrameError):
        expected_errors_of(statement, SCHEMA)
