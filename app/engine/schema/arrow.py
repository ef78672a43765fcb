"""Values of each type as Arrow arrays."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.engine.schema.values import TypeName, Value

ARROW_TYPES: dict[TypeName, pa.DataType] = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "datetime": pa.timestamp("s"),
    "time": pa.time32("s"),
    "year": pa.int64(),
}


def from_ticks(kind: TypeName, places: NDArray[Any], null: NDArray[np.bool_]) -> pa.Array:
    """The Arrow array of the type, from places (int64, or float64 for numbers) and a null mask."""
    arrow_type = ARROW_TYPES[kind]
    if kind == "number":
        return pa.array(places, arrow_type, mask=null)
    # Arrow casts to 32-bit dates and times only from int32.
    if kind in ("date", "time"):
        return pa.array(places.astype(np.int32), pa.int32(), mask=null).cast(arrow_type)
    return pa.array(places.astype(np.int64), pa.int64(), mask=null).cast(arrow_type)


def to_arrow(kind: TypeName, values: Sequence[Value | None]) -> pa.Array:
    plain = [float(value) if isinstance(value, Decimal) else value for value in values]
    return pa.array(plain, ARROW_TYPES[kind])


def taken(values: pa.Array, places: NDArray[Any]) -> pa.Array:
    return values.take(pa.array(places))
