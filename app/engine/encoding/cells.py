"""Arrow columns as distinct cell texts and indices: each text is looked at once a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.rows import refuse


@dataclass(frozen=True)
class Cells:
    """`texts` are distinct, without nulls; `indices`, int32, shape (rows,), point at them,

    and at `len(texts)` for null. `plain` cells were typed in the file and are written here in
    the plain way (`.` for decimals, ISO 8601, true and false).
    """

    texts: pa.StringArray
    indices: NDArray[np.int32]
    plain: bool


def cells_of(array: pa.Array | pa.ChunkedArray, name: str) -> Cells:
    """The cells of a column; raises `TableError` for nested types."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # combine_chunks keeps chunks of huge columns
        raise refuse("the block is too large", "read the file in smaller blocks", name)
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    values = encoded.dictionary
    if values.null_count:
        encoded = encoded.cast(values.type).dictionary_encode()
        values = encoded.dictionary
    plain = not _is_text(values.type)
    indices = _indices(encoded, len(values))
    return Cells(_texts(values, name), indices, plain)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _indices(encoded: pa.DictionaryArray, null: int) -> NDArray[np.int32]:
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int32()), null)
    return np.asarray(indices).astype(np.int32, copy=False)


def _texts(values: Any, name: str) -> pa.StringArray:
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        values = values.cast(pa.timestamp(kind.unit))
    try:
        return values.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise refuse(
            f"a column of type {kind} cannot be read as single values",
            "leave the field out, or write the column as text, numbers or dates",
            name,
        ) from error
