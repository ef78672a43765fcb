"""Real tables as their dictionaries read them, for `bench.auto`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.encoding.encoder import Encoder
from app.engine.files.options import FileOptions
from app.engine.files.reader import open_table
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.base import PublicTable
from bench.challenge.tables import ENTITY, TAXI, sprint3_schema, trips
from bench.service.known_tables import DATA, DICTIONARIES
from bench.synthesizers import tables
from bench.synthesizers.measures import Codes

LONGEST_FILE = 2**31


@dataclass(frozen=True)
class RealTable:
    """Codes of all rows under a public dictionary, and a public table if there is one."""

    schema: Schema
    unit: PrivacyUnit
    codes: Codes
    entities: NDArray[np.int64] | None = None
    public: PublicTable | None = None
    delta: str = "1e-6"


def coded(name: str) -> RealTable:
    table = tables.TABLES[name]()
    return RealTable(table.schema, PrivacyUnit("row"), table.used)


def declared(dictionary: str, path: str) -> RealTable:
    """A file as the service reads it. Columns whose values would be found are left out."""
    spec = json.loads((DICTIONARIES / f"{dictionary}.json").read_text())
    fields = [field for field in spec["schema"]["fields"] if field.get("values") is None]
    schema = Schema.parse({**spec["schema"], "fields": fields})
    unit = PrivacyUnit.parse(spec["unit"])
    with (DATA / path).open("rb") as stream:
        reader = open_table(stream, FileOptions.parse(spec.get("file", {}), LONGEST_FILE))
        encoder = Encoder(schema, unit, reader.layout)
        blocks = [encoder.encode(block) for block in reader]
    codes = {
        column.name: np.concatenate([block.codes[column.name] for block in blocks]).astype(np.int64)
        for column in schema.columns
    }
    ids = [text for block in blocks if block.entity_text for text in block.entity_text.to_pylist()]
    entities = np.unique(ids, return_inverse=True)[1].astype(np.int64) if ids else None
    return RealTable(schema, unit, codes, entities)


def taxi(public: str | None = None) -> RealTable:
    schema = sprint3_schema()
    real = trips("private_2022", schema)
    beside = None if public is None else trips(public, schema).as_public()
    return RealTable(schema, TAXI, real.codes, real.values[ENTITY], beside, "2.5e-5")


TABLES: Mapping[str, Callable[[], RealTable]] = {
    "adult, coded": lambda: coded("adult"),
    "adult, raw": lambda: declared("adult", "adult/adult-raw.data"),
    "census_ma, coded": lambda: coded("census_ma"),
    "census_ma, mixed types": lambda: declared("census_ma", "census_ma/ma2019.csv"),
    "acs_wide": lambda: coded("acs_wide"),
    "incidents": lambda: declared("baltimore_incidents", "incidents/baltimore_2019.csv"),
    "absenteeism": lambda: declared("absenteeism", "messy/Absenteeism_at_work.csv"),
    "accidents": lambda: declared("accidentes_bicicletas", "messy/AccidentesBicicletas_2019.csv"),
    "star wars": lambda: declared("star_wars", "messy/StarWars.csv"),
    "taxi": taxi,
    "taxi, public_2022": lambda: taxi("public_2022"),
    "taxi, public_2019": lambda: taxi("public_2019"),
    "purchases": lambda: declared("purchases", "purchases/transactions.parquet"),
}
