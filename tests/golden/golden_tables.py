"""A small private table with clear dependence between its columns, and a public one that drifted.

The dependences differ in strength, so that no choice between columns is a near tie: whatever a
method picks is picked on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table

Codes = dict[str, NDArray[np.int64]]

ROW = PrivacyUnit("row")
PERSON = PrivacyUnit("entity", "person", 10)

PRIVATE_ENTITIES = 300
PUBLIC_ENTITIES = 240
REGIONS = ("north", "east", "south", "west", "centre")
TOWNS = tuple(f"town {number}" for number in range(12))


def schema_of(unit: PrivacyUnit, *, private_bins: bool = False, found_town: bool = False) -> Schema:
    """Six columns; with `private_bins` the income has quantile bins, and with `found_town`
    there is a seventh column whose values are to be found."""
    fields: list[dict[str, Any]] = [
        {
            "name": "region",
            "type": "string",
            "constraints": {"enum": list(REGIONS), "required": True},
        },
        {"name": "kind", "type": "string", "constraints": {"enum": ["a", "b", "c"]}},
        {
            "name": "age",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": 79, "required": True},
            "bins": 8,
        },
        {
            "name": "income",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": 999},
            "bins": {"quantiles": 8} if private_bins else 10,
            "special": [0],
        },
        {
            "name": "visits",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": 7, "required": True},
        },
        {"name": "member", "type": "boolean", "constraints": {"required": True}},
    ]
    if found_town:
        fields.append({"name": "town", "type": "string", "values": "discover", "other": "Other"})
    if unit.kind == "entity":
        fields.append({"name": "person", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields})


def _rows(entities: int, seed: int, drift: bool) -> tuple[Codes, NDArray[np.int64]]:
    """Regions belong to an entity; kind follows region, income age, member visits."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 13, entities)
    owner = np.repeat(np.arange(entities), sizes)
    rows = len(owner)
    shares = [0.1, 0.1, 0.2, 0.25, 0.35] if drift else [0.4, 0.25, 0.2, 0.1, 0.05]
    region = rng.choice(5, entities, p=shares)[owner]
    kind = np.where(rng.random(rows) < 0.92, region % 4, rng.integers(0, 4, rows))
    birth = rng.integers(0, 80, entities)[owner]
    age = np.clip(birth + rng.integers(-3, 4, rows), 0, 79)
    income = np.clip(10 * age + rng.integers(0, 150, rows) + (100 if drift else 0), 0, 999)
    income = np.where(rng.random(rows) < 0.1, 1000, income)  # the special value's code
    visits = np.minimum(rng.geometric(0.35, rows) - 1, 7)
    member = (visits >= 2) ^ (rng.random(rows) < 0.15)
    codes = {
        "region": region,
        "kind": kind,
        "age": age,
        "income": income,
        "visits": visits,
        "member": member,
    }
    return {name: column.astype(np.int64) for name, column in codes.items()}, owner


def private_source(schema: Schema, unit: PrivacyUnit) -> ArraySource:
    codes, owner = _rows(PRIVATE_ENTITIES, 1, drift=False)
    texts: dict[str, list[str | None]] = {}
    if "town" in {column.name for column in schema.columns}:
        numbers = (codes["region"] * 2 + codes["age"] % 2).tolist()
        texts["town"] = [TOWNS[number] for number in numbers]
        codes["town"] = np.zeros(len(owner), dtype=np.int64)  # all are `other` until found
    return ArraySource(schema, unit, codes, owner if unit.kind == "entity" else None, texts=texts)


def public_table(schema: Schema, unit: PrivacyUnit) -> PublicTable:
    codes, owner = _rows(PUBLIC_ENTITIES, 2, drift=True)
    entity = owner if unit.kind == "entity" else None
    return PublicTable(schema, Table(codes, len(owner), entity))
