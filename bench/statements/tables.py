"""Three small tables, by rows and by entities, and what each built-in is asked on them.

All have the same columns, so that one form serves a method on each: `a` (6 values), `b` (30
integers), `c` (20 bins of a number, zeros, null), `d` (yes, no, null) and `e` (integers: 60; of
`sparse`, 150).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table

Ints = NDArray[np.int64]

ROW = PrivacyUnit("row")
ENTITY = PrivacyUnit("entity", "id", 12)
PUBLIC_SEED = 2

# Forms of the methods that need one.
PARAMS: Mapping[str, Mapping[str, Any]] = {
    "histogram": {"columns": ["a", "b", "d"]},
    "archetypes": {
        "features": ["b", "e"],
        "attributes": ["a", "d"],
        "conditionals": [{"column": "c", "given": ["b"]}],
    },
    "class_resampling": {"classes": [{"feature": "rows", "cuts": [2, 4]}]},
    "linked_histograms": {
        "groups": [{"columns": ["a", "b"]}, {"columns": ["c", "d"]}, {"columns": ["e"]}]
    },
    "aggregate_seeded": {"columns": ["a", "b", "d"], "reporting_length": 2},
}


@dataclass(frozen=True)
class Subject:
    """A private table, its unit, and the loss that a release may have."""

    name: str
    schema: Schema
    unit: PrivacyUnit
    loss: PrivacyLoss
    codes: Mapping[str, Ints]
    entities: Ints | None
    public: PublicTable

    def loss_for(self, method: str) -> PrivacyLoss:
        """`aggregate_seeded` takes no pure loss: there it gets a rho of much the same noise."""
        is_pure = self.loss.kind == "pure"
        return PrivacyLoss.zcdp(10**11) if method == "aggregate_seeded" and is_pure else self.loss


def subjects() -> list[Subject]:
    """Few rows under Gaussian noise, more rows with less of it, sparse cells under Laplace noise;
    each by rows and by entities."""
    return [
        _subject(name, rows, loss, unit)
        for name, rows, loss in (
            ("few", 1000, PrivacyLoss.zcdp(5 * 10**10)),
            ("many", 3000, PrivacyLoss.zcdp(5 * 10**11)),
            ("sparse", 1500, PrivacyLoss.pure(2 * 10**12)),
        )
        for unit in (ROW, ENTITY)
    ]


def _subject(name: str, rows: int, loss: PrivacyLoss, unit: PrivacyUnit) -> Subject:
    most = 149 if name == "sparse" else 59
    schema = _schema(most, entity=unit.kind == "entity")
    entities = _entities(rows, 1) if unit.kind == "entity" else None
    public = Table(
        _codes(schema, rows, most, PUBLIC_SEED),
        rows,
        _entities(rows, PUBLIC_SEED) if unit.kind == "entity" else None,
    )
    codes = _codes(schema, rows, most, 1)
    return Subject(name, schema, unit, loss, codes, entities, PublicTable(schema, public))


def _schema(most: int, *, entity: bool) -> Schema:
    def whole(name: str, largest: int) -> dict[str, Any]:
        limits = {"minimum": 0, "maximum": largest, "required": True}
        return {"name": name, "type": "integer", "constraints": limits}

    fields: list[dict[str, Any]] = [
        {
            "name": "a",
            "type": "string",
            "constraints": {"enum": list("uvwxyz"), "required": True},
        },
        whole("b", 29),
        {
            "name": "c",
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 100},
            "bins": 20,
            "special": [0],
        },
        {"name": "d", "type": "string", "constraints": {"enum": ["yes", "no"]}},
        whole("e", most),
    ]
    if entity:
        fields.insert(0, {"name": "id", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields})


def _codes(schema: Schema, rows: int, most: int, seed: int) -> dict[str, Ints]:
    """Every column hangs together with one before it; a public table is a little different."""
    rng = np.random.default_rng(seed)
    drift = 0.03 * (seed == PUBLIC_SEED)
    a = rng.choice(6, rows, p=[0.35 - drift, 0.3, 0.2, 0.1, 0.04, 0.01 + drift])
    b = np.minimum(rng.geometric(0.12, rows) + 2 * a, 30) - 1
    column = schema.column("c")
    number = np.minimum(rng.gamma(1.5, 8 + 3 * a), 100)
    c = np.minimum(number * (column.regular - 1) / 100, column.regular - 1).astype(np.int64)
    c[rng.random(rows) < 0.2] = column.regular
    assert column.null_code is not None
    c[rng.random(rows) < 0.05] = column.null_code
    d = ((b > 8) ^ (rng.random(rows) < 0.1)).astype(np.int64)
    d[rng.random(rows) < 0.03] = 2
    e = np.clip(np.rint(b * most / 30 + rng.normal(0, most / 10, rows)), 0, most).astype(np.int64)
    return {"a": a, "b": b, "c": c, "d": d, "e": e}


def _entities(rows: int, seed: int) -> Ints:
    """Of 1 to 12 rows each, few of many."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.geometric(0.35, rows), 12)
    return np.repeat(np.arange(rows), sizes)[:rows].astype(np.int64)
