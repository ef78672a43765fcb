"""Dictionaries with rules between columns, and tables that break them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.constraints.stream import RepairedRows, Repairs
from app.engine.schema import Schema
from app.engine.table import Table

AGE_BANDS = [[age, ["child", "adult", "old"][(age >= 18) + (age >= 65)]] for age in range(100)]


def number(name: str, low: float, high: float, **keys: Any) -> dict[str, Any]:
    limits = {"minimum": low, "maximum": high, "required": True}
    return {"name": name, "type": "number", "constraints": limits, "step": 0.01} | keys


def integer(name: str, low: int, high: int, required: bool = True) -> dict[str, Any]:
    limits = {"minimum": low, "maximum": high, "required": required}
    return {"name": name, "type": "integer", "constraints": limits}


def category(name: str, *values: str, required: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "type": "string",
        "constraints": {"enum": list(values), "required": required},
    }


def dictionary(fields: list[dict[str, Any]], *rules: Mapping[str, Any]) -> Schema:
    return Schema.parse({"fields": fields, "constraints": list(rules)})


TAXI = dictionary(
    [
        number("fare", 0, 100, bins=20, special=[0]),
        number("tips", 0, 20, bins=10),
        number("trip_total", 0, 110, bins=22),
    ],
    {"kind": "at_least", "column": "trip_total", "sum_of": ["fare", "tips"], "offset": -1},
)
SUM = dictionary(
    [number("rent", 0, 50), number("food", 0, 50), number("spent", 0, 80)],
    {"kind": "sum", "total": "spent", "parts": ["rent", "food"]},
)
ORDER = dictionary(
    [
        {"name": name, "type": "date", "bins": 12,
         "constraints": {"minimum": low, "maximum": "2021-12-31", "required": True}}
        for name, low in (("start", "2020-01-01"), ("end", "2020-06-01"))
    ],
    {"kind": "order", "columns": ["start", "end"]},
)  # fmt: skip
LOOKUP = dictionary(
    [integer("age", 0, 99), category("band", "child", "adult", "old")],
    {"kind": "lookup", "columns": ["age", "band"], "rows": AGE_BANDS},
)
FORBIDDEN = dictionary(
    [integer("age", 0, 99), category("status", "single", "married", "widowed")],
    {"kind": "forbidden", "when": {"age": {"maximum": 14}, "status": ["married", "widowed"]}},
)
EVERY = dictionary(
    [
        integer("age", 0, 99, required=False),
        category("band", "child", "adult", "old"),
        category("status", "single", "married", "widowed"),
        integer("wage", 0, 50, required=False),
        integer("benefits", 0, 20),
        integer("income", 0, 60),
        integer("taxed", 0, 70),
        integer("from", 0, 30),
        integer("to", 0, 40, required=False),
    ],
    {"kind": "lookup", "columns": ["age", "band"], "rows": AGE_BANDS},
    {"kind": "forbidden", "when": {"band": ["child"], "status": ["married", "widowed"]}},
    {"kind": "implied", "when": {"age": {"maximum": 14}}, "then": {"wage": [None]}},
    {"kind": "implied", "when": {"band": ["old"]}, "then": {"wage": {"maximum": 10}}},
    {"kind": "sum", "total": "income", "parts": ["wage", "benefits"]},
    {"kind": "at_least", "column": "income", "sum_of": ["taxed"], "offset": -5},
    {"kind": "order", "columns": ["from", "to", "age"], "strict": True},
)
BY_KIND = {
    "at_least": TAXI,
    "sum": SUM,
    "order": ORDER,
    "lookup": LOOKUP,
    "forbidden": FORBIDDEN,
}


def independent(schema: Schema, rows: int, seed: int = 0) -> dict[str, NDArray[np.int64]]:
    """Codes uniform over each column, so that many rows break the rules."""
    rng = np.random.default_rng(seed)
    return {column.name: rng.integers(0, column.codes, rows) for column in schema.columns}


def repaired(
    schema: Schema, codes: Mapping[str, NDArray[np.int64]], seed: int = 0
) -> tuple[dict[str, NDArray[np.int64]], Repairs]:
    rows = len(next(iter(codes.values())))
    stream = RepairedRows(iter([Table(dict(codes), rows)]), schema, seed)
    parts = list(stream)
    joined = {name: np.concatenate([part.codes[name] for part in parts]) for name in codes}
    assert stream.repairs is not None
    return joined, stream.repairs


def broken(schema: Schema, codes: Mapping[str, NDArray[np.int64]]) -> list[int]:
    return [int(mask.sum()) for mask in schema.violations(codes)]
