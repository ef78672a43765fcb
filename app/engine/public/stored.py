"""Public entities in a stored model: the codes of their rows, and how many rows each has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.method.model_file import ModelFormatError, integers
from app.engine.privacy.wire import narrowed
from app.engine.public.rows import entity_starts
from app.engine.schema import PrivacyUnit, Schema

Codes = dict[str, NDArray[np.int64]]


def code_arrays(codes: Codes) -> dict[str, NDArray[Any]]:
    """What `stored_codes` reads, beside the names of the columns in their order."""
    return {f"codes{place}": narrowed(column) for place, column in enumerate(codes.values())}


def stored_codes(columns: Any, arrays: Mapping[str, NDArray[Any]], schema: Schema) -> Codes:
    """The codes of `columns`, all of one length. Raises `ModelFormatError` for other columns than
    those of `schema`."""
    known = {column.name: column.codes for column in schema.columns}
    is_list = isinstance(columns, list) and columns
    if not is_list or not all(isinstance(name, str) and name in known for name in columns):
        raise ModelFormatError("the stored model does not fit the dictionary")
    codes = {
        name: integers(arrays, f"codes{place}", least=0, most=known[name] - 1)
        for place, name in enumerate(columns)
    }
    if len({len(column) for column in codes.values()}) != 1:
        raise ModelFormatError("the columns of the stored model differ in length")
    return codes


def stored_starts(arrays: Mapping[str, NDArray[Any]], unit: PrivacyUnit) -> NDArray[np.int64]:
    """Where the rows of each entity begin, by the array `sizes`; raises `ModelFormatError`."""
    sizes = integers(arrays, "sizes", least=1, most=unit.max_rows)
    if not sizes.size:
        raise ModelFormatError("the stored model has no rows")
    return entity_starts(sizes)
