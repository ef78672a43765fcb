"""Tables with mixed types, with people of many rows, and with public tables to start from."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from app.engine.encoding.encoder import Encoder
from app.engine.files.options import FileOptions
from app.engine.files.reader import open_table
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table
from bench.challenge.tables import ENTITY, TAXI, sprint3_schema, trips
from bench.shared_data import DATA
from bench.synthesizers.measures import Codes
from bench.synthesizers.tables import CodedTable, adult

DICTIONARIES = Path(__file__).parents[2] / "examples" / "dictionaries"
LONGEST_FILE = 2**31
MOST_CODES = 64
"""Columns of more are cut before they are compared."""


def declared(
    name: str, dictionary: str, path: str, corrected: Callable[[bytes], bytes] = bytes
) -> CodedTable:
    """A file as the service reads it, after its known faults are corrected.

    Columns whose values would be found are left out.
    """
    spec = json.loads((DICTIONARIES / f"{dictionary}.json").read_text())
    fields = [field for field in spec["schema"]["fields"] if field.get("values") is None]
    wire = {**spec["schema"], "fields": fields}
    schema, unit = Schema.parse(wire), PrivacyUnit.parse(spec["unit"])
    stream = io.BytesIO(corrected((DATA / path).read_bytes()))
    reader = open_table(stream, FileOptions.parse(spec.get("file", {}), LONGEST_FILE))
    encoder = Encoder(schema, unit, reader.layout)
    blocks = [encoder.encode(block) for block in reader]
    codes = {
        column.name: np.concatenate([block.codes[column.name] for block in blocks]).astype(np.int64)
        for column in schema.columns
    }
    ids = [text for block in blocks if block.entity_text for text in block.entity_text.to_pylist()]
    entities = np.unique(ids, return_inverse=True)[1].astype(np.int64) if ids else None
    return _mixed(name, wire, schema, codes, unit=unit, entities=entities)


def unwrapped(file: bytes) -> bytes:
    """The file with each row that stands whole in quotes freed of them; no cell spans lines.

    Such a row is one cell to a reader of CSV, and the service refuses the file for it.
    """
    lines = file.decode("utf-8-sig").splitlines()
    rows = (next(csv.reader([line]), []) for line in lines)
    freed = (row[0] if len(row) == 1 else line for line, row in zip(lines, rows, strict=True))
    return "\n".join([*freed, ""]).encode()


def taxi(public: str | None = None) -> CodedTable:
    """Trips of 2022, `max_rows` 200, with the public table of that name."""
    schema = sprint3_schema()
    real = trips("private_2022", schema)
    beside = None if public is None else trips(public, schema).as_public()
    name = "taxi" if public is None else f"taxi_{public}"
    _, entities = np.unique(real.values[ENTITY], return_inverse=True)
    entities = entities.astype(np.int64)
    wire = schema.to_wire()
    return _mixed(name, wire, schema, real.codes, unit=TAXI, entities=entities, public=beside)


def half_of_adult(name: str, public: Callable[[Codes], Codes] | None = None) -> CodedTable:
    """Half of the rows of Adult are private, and what is made of the other half is public."""
    whole = adult()
    half = whole.rows // 2
    first, other = (
        {name: column[part] for name, column in whole.used.items()}
        for part in (slice(None, half), slice(half, None))
    )
    beside = None
    if public is not None:
        codes = public(other)
        beside = PublicTable(whole.schema, Table(dict(codes), len(codes["age"])))
    return CodedTable(
        name, whole.wire, first, whole.held_out, whole.numeric, whole.target, public=beside
    )


def drifted(rows: Codes) -> Codes:
    """Of those of below the median age three in ten are kept."""
    young = rows["age"] < np.median(rows["age"])
    kept = ~young | (np.arange(len(young)) % 10 < 3)
    return {name: column[kept] for name, column in rows.items()}


def contrary(rows: Codes) -> Codes:
    """Every second column is turned round, so that all dependence has the wrong sign."""
    return {
        name: column.max() - column if place % 2 else column
        for place, (name, column) in enumerate(rows.items())
    }


def _mixed(
    name: str, wire: Mapping[str, Any], schema: Schema, codes: Codes, **facts: Any
) -> CodedTable:
    wide = tuple(column.name for column in schema.columns if column.codes > MOST_CODES)
    return CodedTable(name, wire, codes, None, (), None, wide=wide, **facts)


MIXED: Mapping[str, Callable[[], CodedTable]] = {
    "adult_half": lambda: half_of_adult("adult_half"),
    "adult_public": lambda: half_of_adult("adult_public", dict),
    "adult_drifted": lambda: half_of_adult("adult_drifted", drifted),
    "adult_contrary": lambda: half_of_adult("adult_contrary", contrary),
    "adult_raw": lambda: declared("adult_raw", "adult", "adult/adult-raw.data"),
    "census_ma_mixed": lambda: declared("census_ma_mixed", "census_ma", "census_ma/ma2019.csv"),
    "incidents": lambda: declared(
        "incidents", "baltimore_incidents", "incidents/baltimore_2019.csv"
    ),
    "absenteeism": lambda: declared("absenteeism", "absenteeism", "messy/Absenteeism_at_work.csv"),
    "accidents": lambda: declared(
        "accidents", "accidentes_bicicletas", "messy/AccidentesBicicletas_2019.csv"
    ),
    "patients": lambda: declared("patients", "patient_info", "messy/PatientInfo.csv", unwrapped),
    "star_wars": lambda: declared("star_wars", "star_wars", "messy/StarWars.csv"),
    "taxi": taxi,
    "taxi_public_2022": lambda: taxi("public_2022"),
    "taxi_public_2019": lambda: taxi("public_2019"),
    "purchases": lambda: declared("purchases", "purchases", "purchases/transactions.parquet"),
}
