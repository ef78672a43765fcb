"""How a row is read depends on no other row: adding one leaves the codes of all others alone.

Whatever the added row is, either the whole file is refused, or the other rows have the codes that
they have without it.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.encoding import Encoder
from app.engine.files import FileOptions, TableError, open_table
from app.engine.schema import PrivacyUnit, Schema

# The fields of every format; each adds its own.
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string", "role": "entity"},
    {
        "name": "shift",
        "type": "integer",
        "constraints": {"minimum": 0, "maximum": 20},
        "undeclared": "null",
    },
    {
        "name": "pay",
        "type": "string",
        "constraints": {"enum": ["Cash", "señal", "a,b", 'say "hi"', ",\n"]},
        "other": "Other",
    },
    {
        "name": "fare",
        "type": "number",
        "constraints": {"minimum": 0, "maximum": 10_000},
        "groupChar": "'",
        "undeclared": "null",
    },
]


def dictionary(*more: dict[str, Any]) -> Schema:
    return Schema.parse({"fields": [*FIELDS, *more]})


SCHEMA = dictionary(
    {
        "name": "day",
        "type": "date",
        "format": "%d/%m/%Y",
        "constraints": {"minimum": "2020-01-01", "maximum": "2020-12-31"},
        "undeclared": "null",
    },
    {"name": "place", "type": "string", "values": "discover", "other": "Other"},
    {"name": "note", "type": "string"},
)
UNIT = PrivacyUnit.parse({"kind": "entity", "column": "id", "max_rows": 3})
NAMES = ["id", "shift", "pay", "fare", "day", "place", "note"]
ROWS = [
    ["a", "1", "Cash", "1.5", "31/12/2020", "Forlì", "x"],
    ["b", "2", "señal", "1'000", "01/02/2020", "", "10 €"],
    ["c", "", "a,b", "7", "", "Nardò", ""],
    ["d", "20", 'say "hi"', "", "03/03/2020", "Forlì", '5" pipe'],
    ["a", "3", ",\n", "0", "30/02/2020", "x;y", "two\nlines"],
]

Read = list[tuple[Any, ...]] | None


def read(data: bytes, **options: Any) -> Read:
    """The codes, id and discovered text of each row; None if the file is refused."""
    found: list[tuple[Any, ...]] = []
    try:
        reader = open_table(io.BytesIO(data), FileOptions(**options), SCHEMA.names)
        encoder = Encoder(SCHEMA, UNIT, reader.layout)
        for block in reader:
            encoded = encoder.encode(block)
            assert encoded.entity_text is not None
            texts = dict(enumerate(encoder.texts["place"].texts))
            places = [texts.get(number) for number in encoded.numbers["place"].tolist()]
            columns = [codes.tolist() for codes in encoded.codes.values()]
            found += zip(encoded.entity_text.to_pylist(), *columns, places, strict=True)
    except TableError:
        return None
    return None if encoder.totals.problems.count else found


def assert_others_stay(base: Read, changed: Read, before: int) -> None:
    """`before` rows come before the place of the added one."""
    if changed is None:
        return
    assert base is not None
    after = len(base) - before
    assert changed[:before] == base[:before]
    assert changed[len(changed) - after :] == base[before:]
    assert len(changed) >= len(base)


def line(cells: list[str], delimiter: str = ",", quote: str = '"') -> str:
    if not quote:
        return delimiter.join(
            cell.replace(delimiter, "").replace("\n", "").replace('"', "") for cell in cells
        )
    return delimiter.join(
        f"{quote}{cell.replace(quote, quote * 2)}{quote}"
        if any(mark in cell for mark in (delimiter, quote, "\n", "\r", "#"))
        else cell
        for cell in cells
    )


# A row as the bytes of its line, in a file of commas and quotes.
HOSTILE = [
    b"",
    b",",
    b"\xe9",
    b"z,4,\xe9,1,,Forl\xec,\x80",
    b"z,4,Cash,1,01/01/2020,x,10 \x80",
    b"\xff\xfe\xff\xfe",
    b"\xef\xbb\xbf\xef\xbb\xbf",
    b"\x1f\x8b\x08\x00",
    b"PK\x03\x04",
    b"PAR1",
    b"\x00",
    b"z,\x00,\x00,\x00,\x00,\x00,\x00",
    b'"',
    b'"z,4,Cash,1,,x,y',
    b'z,4,"Cash,1,,x,y',
    b'z,4,Cash,1,,x,"',
    b'z,4,Cash,1,,x,5"',
    b'z,4,Cash,1,,x,say "hi"',
    b'z,4,"Cash"x,1,,x,y',
    b'z,4,"Ca"sh",1,,x,y',
    b'z,4,Cash,1,,x,"two\nlines"',
    b'z,4,Cash,1,,x,"two\r\rlines\n"',
    b"z,4,Cash,1,,x,\n",
    b"z,4,Cash,1,,x,y,",
    b"z,4,Cash,1,,x,y,more,and more",
    b"z,4",
    b"z;4;Cash;1;;x;y",
    b"z\t4\tCash\t1\t\tx\ty",
    b"z,1e999,Cash,-1e999,,x,y",
    b"z,99999999999999999999999999,Cash,1e-400,99/99/9999,x,y",
    b"z,NaN,NULL,Infinity,0000-00-00,nan,y",
    b"z,4,Cash,1,,x,#",
    b"# z,4,Cash,1,,x,y",
    b'#"',
    b'{"id": "z"}',
    b"[{",
    b"z,4," + b"x" * 5_000 + b",1,,x,y",
]
HUGE = [
    b"z,4,Cash,1,," + b"x" * 1_000_000 + b",y",
    b'z,4,Cash,1,,x,"' + b"y\n" * 600_000,
]
DELIMITED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({}, {"newline": "\r\n"}),
    ({}, {"newline": "\r"}),
    ({"encoding": "utf-8"}, {}),
    ({"encoding": "cp1252"}, {"encoding": "cp1252"}),
    ({"encoding": "cp932"}, {"encoding": "cp932"}),
    ({"encoding": "gb18030"}, {"encoding": "gb18030"}),
    ({"encoding": "utf-16-le"}, {"encoding": "utf-16-le"}),
    ({"encoding": "utf-16"}, {"encoding": "utf-16"}),
    ({}, {"encoding": "utf-16"}),
    ({}, {"encoding": "utf-32"}),
    ({}, {"encoding": "utf-8-sig"}),
    ({}, {"delimiter": ";"}),
    ({"delimiter": "|"}, {"delimiter": "|"}),
    ({}, {"delimiter": "\t"}),
    ({"format": "tsv"}, {"delimiter": "\t"}),
    ({"format": "csv"}, {}),
    ({"quote": "'"}, {"quote": "'"}),
    ({"quote": ""}, {"quote": ""}),
    ({"header": False}, {"header": ""}),
    ({"header": False, "format": "csv"}, {"header": ""}),
    ({"header_rows": 2}, {"header": ",,,,,,\nid,shift,pay,fare,day,place,note\n"}),
    ({"skip_rows": 2}, {"header": 'made "today\n\nid,shift,pay,fare,day,place,note\n'}),
    ({"comment": "#"}, {"header": "# made today\nid,shift,pay,fare,day,place,note\n"}),
    ({"decimal": ","}, {}),
    ({"compression": "none"}, {}),
    ({}, {"compress": gzip.compress}),
    ({}, {"compress": lambda data: pa.compress(data, "zstd", asbytes=True)}),
]


def delimited_file(
    added: bytes | None,
    before: int,
    *,
    delimiter: str = ",",
    quote: str = '"',
    newline: str = "\n",
    encoding: str = "utf-8",
    header: str | None = None,
    compress: Callable[[bytes], bytes] = bytes,
) -> bytes:
    names = line(NAMES, delimiter) + "\n" if header is None else header
    head = names.replace("\n", newline).encode(encoding, errors="replace")
    bare = _without_mark(encoding)
    bodies = [
        (line(row, delimiter, quote) + newline).encode(bare, errors="replace") for row in ROWS
    ]
    if added is not None:
        bodies.insert(before, added + newline.encode(bare))
    return compress(head + b"".join(bodies))


def _without_mark(encoding: str) -> str:
    """An encoding that writes no byte order mark."""
    bare = encoding.removesuffix("-sig")
    return f"{bare}-le" if bare in ("utf-16", "utf-32") else bare


@pytest.mark.parametrize(("options", "style"), DELIMITED)
def test_no_line_of_text_changes_how_others_are_read(
    options: dict[str, Any], style: dict[str, Any]
) -> None:
    base = read(delimited_file(None, 0, **style), **options)
    assert base is not None
    kept = 0
    for hostile in [*HOSTILE, *(HUGE if not options and not style else [])]:
        raw = hostile.replace(b",", style.get("delimiter", ",").encode())
        raw = raw.replace(b'"', style.get("quote", '"').encode() or b'"')
        encoding = _without_mark(style.get("encoding", "utf-8"))
        for added in {hostile, raw, raw.decode("latin-1").encode(encoding, errors="replace")}:
            for before in (0, 2):
                changed = read(delimited_file(added, before, **style), **options)
                assert_others_stay(base, changed, before)
                kept += changed is not None
    # The comparison says nothing about files that are refused.
    assert kept > 20


CELL = st.text(st.sampled_from('a",;\n\r\x00é# '), max_size=6)
TABLE = st.lists(st.lists(CELL, min_size=7, max_size=7), max_size=5)
ADDED = st.lists(
    st.sampled_from([b'"', b'""', b",", b"\n", b"\r", b"a", b"\xe9", b"\x00", b"1"]), max_size=24
).map(b"".join)


@settings(max_examples=80)
@given(table=TABLE, added=ADDED, place=st.integers(0, 5), is_all_quoted=st.booleans())
def test_no_bytes_change_how_the_lines_of_others_are_read(
    table: list[list[str]], added: bytes, place: int, is_all_quoted: bool
) -> None:
    def quoted(cells: list[str]) -> str:
        if is_all_quoted:
            return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
        return line(cells)

    def file(more: list[bytes]) -> bytes:
        lines = [quoted(["i", "1", *cells[2:]]).encode() for cells in table]
        before = min(place, len(table))
        return b"\n".join([",".join(NAMES).encode(), *lines[:before], *more, *lines[before:], b""])

    base = read(file([]))
    if base is not None:
        assert_others_stay(base, read(file([added])), min(place, len(table)))


def test_an_unclosed_quote_takes_no_row_of_another_person_with_it() -> None:
    lines = ["id,shift,pay,fare,day,place,note", "a,1,Cash,1,,x,y", 'b,2,"señal",1,,x,y', ""]
    lines.insert(1, 'z,9,"Cash,1,,x,y')
    assert read("\n".join(lines).encode()) is None


JSON_HOSTILE: list[Any] = [
    {},
    None,
    [],
    5,
    "x",
    {"id": "z", "new key": 1},
    {"id": "z", " shift": 4, "shift ": 5},
    {" shift ": 4, "id": "z"},
    {"id": "z", "shift": 10**30, "fare": 1e300},
    {"id": "z", "shift": True, "pay": ["Cash"], "fare": {"a": 1}},
    {"id": "z", "pay": "\x00", "place": "x" * 5_000},
    {"id": "z", "pay": "\ufeff\n\r"},
    {f"key {number}": number for number in range(1500)},
    {f"key {number}": number for number in range(3000)},
]
JSON_RAW = [
    b"\xe9",
    b'{"id": "z", "pay": "\xe9", "note": "\x80"}',
    b'{"id": "z", "\xe9": 1}',
    b'{"id": "z", "pay": "Cash}',
    b'{"id": "z", "pay": "a\nb"}',
    b'{"id": "z", "shift": NaN}',
    b'{"id": "z", "shift": 1e999, "fare": -1E-999}',
    b'{"id": "z", "shift": 1, "shift": 2}',
    b'{"id": "z", "pay": "\\ud800"}',
    b'{"id": "z"}}',
    b"}{",
    b"],[",
    b"id,shift,pay,fare,day,place",
    b"",
]


@pytest.mark.parametrize("options", [{}, {"format": "jsonl"}, {"encoding": "cp1252"}])
@pytest.mark.parametrize("is_array", [False, True])
def test_no_object_of_json_changes_how_others_are_read(
    options: dict[str, Any], is_array: bool
) -> None:
    encoding = options.get("encoding", "utf-8")

    def file(added: bytes | None, before: int) -> bytes:
        rows = [
            json.dumps(
                {
                    name: int(cell) if name == "shift" and cell else cell
                    for name, cell in zip(NAMES, row, strict=True)
                },
                ensure_ascii=False,
            ).encode(encoding)
            for row in ROWS
        ]
        if added is not None:
            rows.insert(before, added)
        return b"[" + b",\n ".join(rows) + b"]" if is_array else b"\n".join([*rows, b""])

    base = read(file(None, 0), **options)
    assert base is not None
    kept = 0
    for added in [*JSON_RAW, *(json.dumps(value).encode() for value in JSON_HOSTILE)]:
        for before in (0, 2):
            changed = read(file(added, before), **options)
            assert_others_stay(base, changed, before)
            kept += changed is not None
    assert kept > 15


PARQUET: list[dict[str, Any]] = [
    {"id": None, "shift": None, "fare": None, "pay": None, "when": None},
    {"id": "z", "shift": 2**62, "fare": 1.7e308, "pay": b"\xe9", "when": 2**62},
    {"id": "z", "shift": -(2**62), "fare": float("nan"), "pay": b"\x00" * 9, "when": -(2**62)},
    {"id": "z", "shift": 1, "fare": float("inf"), "pay": b"x" * 5_000, "when": 0},
    {"id": "\udce9", "shift": 1, "fare": -0.0, "pay": b"Cash", "when": 5},
]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.binary()])
@pytest.mark.parametrize("whole", [pa.int64(), pa.float64(), pa.decimal128(38, 2)])
def test_no_row_of_parquet_changes_how_others_are_read(text: pa.DataType, whole: Any) -> None:
    ends = {"minimum": "2020-01-01T00:00:00", "maximum": "2020-12-31T00:00:00"}
    schema = dictionary(
        {"name": "when", "type": "datetime", "constraints": ends, "undeclared": "null"}
    )
    rows = [
        {"id": name, "shift": number, "fare": number / 2, "pay": pay.encode(), "when": when}
        for name, number, pay, when in [
            ("a", 1, "Cash", 1_580_000_000_000),
            ("b", 2, "señal", 1_590_000_000_000),
            ("a", 3, "x", 0),
        ]
    ]

    def codes(table: list[dict[str, Any]]) -> list[tuple[Any, ...]] | None:
        columns = {
            "id": _texts([_bytes(row["id"]) for row in table], text),
            "shift": pa.array([row["shift"] for row in table], pa.int64()).cast(whole, safe=False),
            "fare": pa.array([row["fare"] for row in table], pa.float64()),
            "pay": _texts([row["pay"] for row in table], text),
            "when": pa.array([row["when"] for row in table], pa.timestamp("ms")),
        }
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink, version="2.6")
        try:
            reader = open_table(io.BytesIO(sink.getvalue()), names=schema.names)
            encoder = Encoder(schema, UNIT, reader.layout)
            found: list[tuple[Any, ...]] = []
            for block in reader:
                encoded = encoder.encode(block)
                assert encoded.entity_text is not None
                columns_ = [array.tolist() for array in encoded.codes.values()]
                found += zip(encoded.entity_text.to_pylist(), *columns_, strict=True)
        except TableError:
            return None
        return None if encoder.totals.problems.count else found

    base = codes(rows)
    assert base is not None
    kept = 0
    for hostile in PARQUET:
        for before in (0, 1, len(rows)):
            changed = codes([*rows[:before], hostile, *rows[before:]])
            if changed is not None and hostile["id"] is None:
                assert changed == base
            else:
                assert_others_stay(base, changed, before)
            kept += changed is not None
    assert kept >= 9


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _texts(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """A column of any bytes: writers of Parquet do not check that text is UTF-8."""
    binary = pa.array(values, pa.large_binary() if kind == pa.large_string() else pa.binary())
    return binary if kind == pa.binary() else binary.view(kind)


@pytest.mark.parametrize("first", [b"7\n", b"7,\n", b"7,8\n", b"7,8,\n", b",\n", b'""\n'])
@pytest.mark.parametrize("others", [b"1,\n\n2,\n\n\n3,\n", b"1\n\n2\n", b"1,2\n3,4\n"])
def test_a_first_row_without_a_header_changes_no_other(first: bytes, others: bytes) -> None:
    """It says how many columns there are, and so whether a blank line is a row."""
    schema = Schema.parse(
        {
            "fields": [
                {
                    "name": "shift",
                    "type": "integer",
                    "column": 1,
                    "constraints": {"minimum": 0, "maximum": 20},
                    "undeclared": "null",
                }
            ]
        }
    )

    def codes(data: bytes) -> list[int] | None:
        found: list[int] = []
        try:
            reader = open_table(io.BytesIO(data), FileOptions(header=False), schema.names)
            encoder = Encoder(schema, PrivacyUnit.parse({"kind": "row"}), reader.layout)
            for block in reader:
                found += encoder.encode(block).codes["shift"].tolist()
        except TableError:
            return None
        return found

    base, changed = codes(others), codes(first + others)
    assert base is not None
    assert changed is None or changed[1:] == base
