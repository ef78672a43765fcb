"""Small dictionaries, tables and sessions on the real kernel, for tests of synthesizers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.engine.method import Limits
from app.engine.privacy.library import LocalSession, open_session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema

EXACT = PrivacyLoss.pure(10**18)
"""Epsilon of a million: the noise is 0 but for a chance of e^-10000."""

LIMITS = Limits(max_total_rows=10_000, rows=None, memory_bytes=2**31, time_s=60.0)
ROW = PrivacyUnit("row")


def colours(entity: bool = False) -> Schema:
    """`colour` (red, green, blue, null), `size` (0 to 9), `fare` (5 bins, special 0, null)."""
    fields: list[dict[str, object]] = [
        {"name": "colour", "type": "string", "constraints": {"enum": ["red", "green", "blue"]}},
        {
            "name": "size",
            "type": "integer",
            "constraints": {"minimum": 0, "maximum": 9, "required": True},
        },
        {
            "name": "fare",
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 100},
            "bins": 5,
            "special": [0],
        },
    ]
    if entity:
        fields.insert(0, {"name": "id", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields})


def digits(cells: dict[str, int]) -> Schema:
    """Required integer columns with so many values each."""
    return Schema.parse(
        {
            "fields": [
                {
                    "name": name,
                    "type": "integer",
                    "constraints": {"minimum": 0, "maximum": most - 1, "required": True},
                }
                for name, most in cells.items()
            ]
        }
    )


def random_codes(schema: Schema, rows: int, seed: int = 0) -> dict[str, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return {column.name: rng.integers(0, column.codes, rows) for column in schema.columns}


def session_on(
    schema: Schema,
    codes: dict[str, NDArray[np.int64]],
    loss: PrivacyLoss = EXACT,
    unit: PrivacyUnit = ROW,
    entities: NDArray[np.int64] | None = None,
) -> LocalSession:
    return open_session(codes, schema, unit, loss, entities=entities)


def quiet(fraction: float, stage: str) -> None:
    """Progress that nobody reads; the fraction and stage are still checked."""
    assert 0 <= fraction <= 1
    assert stage
