"""What is written in the spelling of a dictionary is read back by it as the same codes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.encoding import Encoder
from app.engine.files import open_table
from app.engine.schema import PrivacyUnit, Schema
from app.releases.spelling import CsvStyle, csv_header, csv_lines


def field(kind: str, **keys: Any) -> dict[str, Any]:
    return {"name": "x", "type": kind, **keys}


def whole(low: int, high: int, **keys: Any) -> dict[str, Any]:
    return field("integer", constraints={"minimum": low, "maximum": high}, **keys)


RENDERED: list[dict[str, Any]] = [
    whole(-20, 300, special=[-99], other=999),
    field("number", constraints={"minimum": -0.3, "maximum": 2}, step=0.1, decimalChar=","),
    field("number", constraints={"minimum": 0.0001, "maximum": 0.0002}),
    field("date", format="%d.%m.%y",
          constraints={"minimum": "1990-01-01", "maximum": "2030-01-01"}),
    field("datetime", constraints={"minimum": "2020-01-01", "maximum": "2020-12-31"}),
    field("time", format="%H:%M:%S"),
    field("year", constraints={"minimum": 1900, "maximum": 2100}),
    field("boolean", trueValues=["ja"], falseValues=["nein"]),
    field("string", constraints={"enum": ["a b", "ä"]}, other="z", missingValues=["?"]),
]  # fmt: skip


@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("wire", RENDERED)
def test_written_codes_are_read_back(wire: dict[str, Any], seed: int) -> None:
    schema = Schema.parse({"fields": [wire, {"name": "y", "type": "boolean"}]})
    codes = {
        column.name: np.random.default_rng(seed).integers(0, column.codes, 20)
        for column in schema.columns
    }
    table = pa.table({column.name: column.decode(codes[column.name]) for column in schema.columns})
    style = CsvStyle.of(schema)
    reader = open_table(io.BytesIO(csv_header(["x", "y"], style) + csv_lines(table, style)))
    encoder = Encoder(schema, PrivacyUnit("row"), reader.layout)
    (encoded,) = [encoder.encode(block) for block in reader]
    assert not encoded.problems
    for column in schema.columns:
        assert encoded.codes[column.name].tolist() == codes[column.name].tolist()
        assert encoded.codes[column.name].dtype == column.dtype
