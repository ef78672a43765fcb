"""What other projects' validators say of the metadata of bundles."""

from __future__ import annotations

import importlib
import io
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_bundles import bundle_of, unpacked, written

from app.engine.catalog import registry
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table, generator

sys.path.append(str(Path(__file__).parents[1] / "golden"))
from golden_records import recorded
from golden_requests import REQUESTS, Request
from golden_runs import MODELS

ROW = PrivacyUnit("row")
PERSON = PrivacyUnit("entity", "person", 3)
EVERY_TYPE: dict[str, Any] = {
    "fields": [
        {"name": "person", "type": "integer", "role": "entity", "description": "Who."},
        {"name": "flag", "type": "boolean", "trueValues": ["yes"], "falseValues": ["no"]},
        {
            "name": "price, net",
            "type": "number",
            "decimalChar": ",",
            "constraints": {"minimum": -1.5, "maximum": 99.25},
            "step": 0.25,
            "special": [-99],
        },
        {"name": "exact", "type": "number", "constraints": {"enum": [0.1, 0.25, 3]}},
        {
            "name": "size",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": 9, "required": True},
            "special": [-1],
            "other": 77,
        },
        {
            "name": "text",
            "type": "string",
            "constraints": {"enum": ["a", 'with "quotes"', "b,c", " space", "NA?"]},
            "other": "else",
            "missingValues": ["-", "NA"],
        },
        {
            "name": "day",
            "type": "date",
            "format": "%d.%m.%Y",
            "constraints": {"minimum": "2024-01-01", "maximum": "2024-12-31"},
            "special": ["1900-01-01"],
        },
        {
            "name": "iso day",
            "type": "date",
            "constraints": {"enum": ["2024-02-29", "2024-03-01"]},
        },
        {
            "name": "moment",
            "type": "datetime",
            "constraints": {"minimum": "2024-01-01T00:00:00", "maximum": "2024-01-02T00:00:00"},
        },
        {
            "name": "stamp",
            "type": "datetime",
            "format": "%Y/%m/%d %H:%M:%S",
            "constraints": {"minimum": "2024-01-01T00:00:00", "maximum": "2024-01-02T00:00:00"},
        },
        {"name": "hour", "type": "time", "step": 3600},
        {"name": "year", "type": "year", "constraints": {"minimum": 1990, "maximum": 2030}},
        {
            "name": "old year",
            "type": "year",
            "constraints": {"minimum": 900, "maximum": 1100},
        },
    ],
    "missingValues": ["", "n/a"],
}
WITHOUT_IDS = {**EVERY_TYPE, "fields": EVERY_TYPE["fields"][1:]}
A_ROW = [
    *("no", '"1,5"', "3", "0", "a", "01.01.2024", "2024-02-29", "2024-01-01T00:00:00"),
    *("2024/01/01 00:00:00", "01:00:00", "1990", "900"),
]
# One of each method and unit kind.
CASES = {(request.method, request.unit.kind): request for request in reversed(REQUESTS)}.values()


def every_value(schema: Schema, rows: int = 200) -> Table:
    """Rows in which each code of each column comes up, or codes evenly taken of many."""
    codes = {
        column.name: np.resize(
            np.unique(np.linspace(0, column.codes - 1, min(rows, column.codes)).astype(np.int64)),
            rows,
        )
        for column in schema.columns
    }
    entity = None if schema.entity is None else np.arange(rows, dtype=np.int64) // 3
    return Table(codes, rows, entity)


def library(name: str) -> Any:
    """Imported when it is needed: every process that runs tests collects this file, and the imports
    take seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they warn of each other
        return importlib.import_module(name)


def validated(folder: Path) -> Any:
    report = library("frictionless").validate(str(folder / "datapackage.json"))
    assert report.valid, report.to_summary()
    return report


def croissant_of(folder: Path) -> Any:
    mlcroissant = library("mlcroissant")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = mlcroissant.Dataset(str(folder / "croissant.json"))
    issues = dataset.metadata.ctx.issues
    assert not issues.errors, issues.report()
    assert not issues.warnings, issues.report()
    return dataset


def sampled(request: Request) -> tuple[Schema, Table]:
    """Rows of the stored model of a built-in, and the dictionary with what it discovered."""
    schema: Schema = request.schema
    for column, texts in recorded(request.name)["found"].items():
        schema = schema.with_values(column, tuple(texts))
    data = (MODELS / f"{request.name}.model").read_bytes()
    model: Any = registry.builtin(request.method).load(schema, request.unit, data)
    return schema, model.sample(60, generator(3))


@pytest.mark.parametrize("request_", CASES, ids=lambda request: request.name)
def test_frictionless_and_croissant_accept_the_bundle_of_every_built_in(
    request_: Request, tmp_path: Path
) -> None:
    schema, table = sampled(request_)
    folder = unpacked(written(bundle_of(schema, request_.unit, table)), tmp_path)
    validated(folder)
    croissant_of(folder)


def test_frictionless_and_croissant_accept_counts_of_cells(tmp_path: Path) -> None:
    request = next(each for each in REQUESTS if each.name == "histogram-row")
    data = (MODELS / "histogram-row.model").read_bytes()
    model: Any = registry.builtin("histogram").load(request.schema, ROW, data)
    folder = unpacked(written(bundle_of(request.schema, ROW, model.counts())), tmp_path)
    validated(folder)
    croissant_of(folder)


@pytest.mark.parametrize("unit", [ROW, PERSON], ids=["row", "entity"])
def test_the_table_schema_takes_every_value_of_every_type_in_every_notation(
    unit: PrivacyUnit, tmp_path: Path
) -> None:
    wire = (
        EVERY_TYPE if unit.kind == "entity" else {**EVERY_TYPE, "fields": EVERY_TYPE["fields"][1:]}
    )
    schema = Schema.parse(wire)
    folder = unpacked(written(bundle_of(schema, unit, every_value(schema))), tmp_path)
    report = validated(folder)
    (table, _) = report.tasks
    assert table.stats["rows"] == 200


def test_a_value_beyond_the_dictionary_is_refused_by_the_table_schema(tmp_path: Path) -> None:
    schema = Schema.parse(WITHOUT_IDS)
    folder = unpacked(written(bundle_of(schema, ROW, every_value(schema))), tmp_path)
    (table,) = (folder / "data").glob("*.csv")
    text = table.read_text()
    for place, wrong in ((1, '"100,5"'), (3, "78"), (4, "zzz"), (5, "31.12.2025"), (10, "2031")):
        cells = [*A_ROW[:place], wrong, *A_ROW[place + 1 :]]
        table.write_text(text.split("\n")[0] + "\n" + ",".join(cells) + "\n")
        report = library("frictionless").validate(
            str(folder / "datapackage.json"), skip_errors=["hash-count", "byte-count"]
        )
        assert report.flatten(["type", "fieldNumber"]) == [["constraint-error", place + 1]], wrong


def test_the_records_of_croissant_are_the_rows_of_the_sample(tmp_path: Path) -> None:
    schema = Schema.parse(EVERY_TYPE)
    folder = unpacked(written(bundle_of(schema, PERSON, every_value(schema, 30))), tmp_path)
    dataset = croissant_of(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = list(dataset.records(dataset.metadata.record_sets[0].uuid))
    (file,) = (folder / "data").glob("*.parquet")
    table = pq.read_table(io.BytesIO(file.read_bytes()))
    assert len(records) == table.num_rows
    rows = [list(record.values()) for record in records]
    assert [row[0] for row in rows] == table.column("person").to_pylist()
    texts = [None if row[5] is None else row[5].decode() for row in rows]
    assert texts == table.column("text").to_pylist()
    hours = [None if isinstance(row[10], float) else row[10] for row in rows]
    assert hours == table.column("hour").to_pylist()
