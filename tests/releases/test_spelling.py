"""Files of synthetic rows fit the dictionary: read back, they give the same codes."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.engine.encoding import Encoder
from app.engine.files.options import FileOptions
from app.engine.files.reader import open_table
from app.engine.schema import PrivacyUnit, Schema
from app.engine.schema.column import TextFormat
from app.engine.table import Table
from app.releases.downloads import Format, Rendering, StoredSample, pieces
from app.releases.rendering import write_rows
from app.releases.spelling import CsvStyle, csv_header, csv_lines

AWKWARD = Schema.parse(
    {
        "fields": [
            {
                "name": "text, quoted",
                "type": "string",
                "constraints": {"enum": ['say "x"', "a,b", " lead", "=1+1", "-2", "line\nbreak"]},
            },
            {"name": "day", "type": "date", "format": "%d/%m/%Y",
             "constraints": {"minimum": "2020-01-01", "maximum": "2021-12-31"}},
            {"name": "moment", "type": "datetime",
             "constraints": {"minimum": "2020-01-01T00:00:00", "maximum": "2020-01-02T00:00:00"}},
            {"name": "clock", "type": "time",
             "constraints": {"minimum": "06:00:00", "maximum": "07:00:00"}},
            {"name": "price", "type": "number", "decimalChar": ",",
             "constraints": {"minimum": -5, "maximum": 1000}, "special": [-1]},
            {"name": "tiny", "type": "number", "step": 0.00001,
             "constraints": {"minimum": 0, "maximum": 0.01}},
            {"name": "yes", "type": "boolean", "trueValues": ["oui"], "falseValues": ["non"],
             "missingValues": ["?"]},
            {"name": "year", "type": "year", "constraints": {"minimum": 1990, "maximum": 2020}},
            {"name": "whole", "type": "integer", "constraints": {"minimum": -3, "maximum": 3},
             "other": 99},
        ],
        "missingValues": ["N/A", ""],
    }
)  # fmt: skip
ROW = PrivacyUnit("row")


def random_table(schema: Schema, rows: int = 3000) -> Table:
    rng = np.random.default_rng(2)
    return Table({c.name: rng.integers(0, c.codes, rows) for c in schema.columns}, rows)


def typed(schema: Schema) -> Schema:
    """The same without spellings that JSON's own types have no use for."""
    wire = schema.to_wire()
    for field in wire["fields"]:
        for key in ("decimalChar", "trueValues", "falseValues"):
            field.pop(key, None)
    return Schema.parse(wire)


def rendered(table: Table, schema: Schema, form: Format) -> bytes:
    parquet = b"".join(write_rows([table], schema, ROW))
    sample = StoredSample("sm_x", "rows", "0", len(parquet), schema, io.BytesIO(parquet))
    return b"".join(pieces(sample, Rendering(form)))


@pytest.mark.parametrize("form", list(Format))
def test_a_file_read_back_gives_the_codes_it_was_made_of(form: Format) -> None:
    schema = typed(AWKWARD) if form is Format.JSONL else AWKWARD
    table = random_table(schema)
    data = rendered(table, schema, form)
    reader = open_table(io.BytesIO(data), FileOptions(format=form.value))
    encoder = Encoder(schema, ROW, reader.layout)
    blocks = [encoder.encode(batch) for batch in reader]
    assert not encoder.totals.problems.count, encoder.totals.problems
    for column in AWKWARD.columns:
        read = np.concatenate([block.codes[column.name] for block in blocks])
        np.testing.assert_array_equal(read, table.codes[column.name], column.name)


def test_equal_tables_give_equal_bytes() -> None:
    table = random_table(AWKWARD)
    assert rendered(table, AWKWARD, Format.PARQUET) == rendered(table, AWKWARD, Format.PARQUET)


def test_parquet_and_json_lines_carry_types() -> None:
    table = random_table(AWKWARD, 50)
    parquet = pq.read_table(io.BytesIO(rendered(table, AWKWARD, Format.PARQUET)))
    assert parquet.schema.field("day").type == pa.date32()
    assert parquet.schema.field("whole").type == pa.int64()
    first = json.loads(rendered(table, AWKWARD, Format.JSONL).splitlines()[0])
    assert isinstance(first["price"], int | float)
    assert isinstance(first["yes"], bool) or first["yes"] is None


def test_only_text_that_a_spreadsheet_would_run_is_marked() -> None:
    table = pa.table(
        {
            "=name": ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "x=1", None],
            "number": [-1, -2, -3, -4, -5, -6, -7, None],
        }
    )
    style = CsvStyle({}, ("-",), escape_formulas=True)
    text = (csv_header(table.column_names, style) + csv_lines(table, style)).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["'=name", "number"]
    assert [row[0] for row in rows[1:7]] == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx"]
    assert rows[7] == ["x=1", "-7"]
    assert rows[8] == ["-", "-"]
    assert rows[1][1] == "-1"


def test_a_lone_null_is_not_a_blank_line() -> None:
    style = CsvStyle({"x": TextFormat()})
    assert csv_lines(pa.table({"x": pa.array([None, "a"])}), style) == b'""\na\n'


def test_an_empty_table_has_a_header_and_no_rows() -> None:
    empty = Table({c.name: np.zeros(0, dtype=np.int64) for c in AWKWARD.columns}, 0)
    assert len(rendered(empty, AWKWARD, Format.CSV).splitlines()) == 1
    assert rendered(empty, AWKWARD, Format.JSONL) == b""


def test_columns_that_were_not_modelled_are_left_out() -> None:
    table = Table({"whole": np.zeros(3, dtype=np.int64), "day": np.zeros(3, dtype=np.int64)}, 3)
    header = rendered(table, AWKWARD, Format.CSV).splitlines()[0]
    assert header == b"day,whole"
