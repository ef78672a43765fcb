"""The challenge's tables, read from `../shared/data` or HALFTONE_SHARED_DATA."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from app.engine.importers import import_nist
from app.engine.schema import Column, PrivacyUnit, Schema
from app.engine.table import PublicTable, Table
from bench.shared_data import DATA

ENTITY = "taxi_id"
TAXI = PrivacyUnit("entity", ENTITY, 200)
LEFT_OUT = ("trip_day_of_week", "trip_hour_of_day")
"""They follow from the shift; the challenge neither gave nor scored them."""

EDGES = {
    **{name: list(range(0, 100, 10)) for name in ("fare", "tips", "trip_total", "trip_miles")},
    "trip_seconds": list(range(0, 2000, 200)),
}
"""Public bins of the dictionary: those that the score looks at."""

Values = dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Trips:
    """A table of trips: whole-numbered values, the taxi of each row among them."""

    schema: Schema
    values: Values

    @property
    def codes(self) -> Values:
        return {
            column.name: codes_of(column, self.values[column.name])
            for column in self.schema.columns
        }

    def as_public(self) -> PublicTable:
        _, entity = np.unique(self.values[ENTITY], return_inverse=True)
        rows = len(entity)
        return PublicTable(self.schema, Table(self.codes, rows, entity.astype(np.int64)))

    def subsample(self, share: float, rng: np.random.Generator) -> Values:
        kept = rng.random(len(self.values[ENTITY])) < share
        return {name: column[kept] for name, column in self.values.items()}


def sprint3_schema() -> Schema:
    parameters = json.loads((DATA / "taxi/parameters-sprint3.json").read_text())
    for name in LEFT_OUT:
        del parameters["schema"][name]
    wire = import_nist(parameters)
    for field in wire["fields"]:
        if field["name"] in EDGES:
            field["bins"] = EDGES[field["name"]]
    return Schema.parse(wire)


def trips(name: str, schema: Schema) -> Trips:
    """`taxi/<name>.csv`."""
    table = pd.read_csv(DATA / f"taxi/{name}.csv")
    columns = [ENTITY, *(column.name for column in schema.columns)]
    return Trips(schema, {each: table[each].to_numpy(np.int64) for each in columns})


def codes_of(column: Column, values: NDArray[Any]) -> NDArray[np.int64]:
    """Stored codes of declared values."""
    found, inverse = np.unique(values, return_inverse=True)
    codes = [column.code(value.item() if hasattr(value, "item") else value) for value in found]
    if None in codes:
        raise ValueError(f"`{column.name}` holds undeclared values")
    return np.array(codes, dtype=np.int64)[inverse.reshape(-1)]


def values_of(schema: Schema, table: Table) -> Values:
    """The values of a synthetic table of whole numbers, with its taxis.

    A column that the system does not make is unknown in all rows: the first declared value.
    """
    assert table.entity is not None
    nothing = np.zeros(table.rows, dtype=np.int64)
    values = {
        column.name: column.decode(table.codes.get(column.name, nothing)).to_numpy()
        for column in schema.columns
    }
    return {name: each.astype(np.int64) for name, each in values.items()} | {ENTITY: table.entity}
