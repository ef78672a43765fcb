"""Arrow columns as distinct cell texts and indices, so that each text is read once per block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.escapes import ESCAPING
from app.engine.rows import TableError, refuse


@dataclass(frozen=True)
class Cells:
    """The cells of a column.

    `texts` are distinct and without nulls. `indices`, int32, shape (rows,), point into them; null
    has the index `len(texts)`. With `plain`, the file had typed values, which are written in the
    standard way here (`.` for decimals, ISO 8601, true and false). `has_zone` says that its times
    had a time zone: the texts are what a clock there showed.
    """

    texts: pa.StringArray
    indices: NDArray[np.int32]
    plain: bool
    has_zone: bool = False


def cells_of(array: pa.Array | pa.ChunkedArray, name: str) -> Cells:
    """The cells of a column; raises `TableError` for nested types."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    # combine_chunks leaves several chunks if one could not hold the column.
    if isinstance(array, pa.ChunkedArray):
        raise refuse("the block is too large", "read the file in smaller blocks", name)
    if pa.types.is_floating(array.type):
        # pandas writes missing numbers as NaN.
        array = pc.if_else(pc.is_nan(array), None, array)
    if pa.types.is_null(array.type):  # a typed file's column without any value
        array = array.cast(pa.string())
    if pa.types.is_nested(array.type):
        raise _not_single_values(array.type, name)
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    values = encoded.dictionary
    if values.null_count:
        encoded = encoded.cast(values.type).dictionary_encode()
        values = encoded.dictionary
    plain = not _is_text(values.type)
    indices = _indices(encoded, len(values))
    return Cells(_texts(values, name), indices, plain, _has_zone(values.type))


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or _is_bytes(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _has_zone(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _indices(encoded: pa.DictionaryArray, null: int) -> NDArray[np.int32]:
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int32()), null)
    return np.asarray(indices).astype(np.int32, copy=False)


def _texts(values: pa.Array, name: str) -> pa.StringArray:
    kind = values.type
    if _is_text(kind):
        return _checked_text(values)
    try:
        if _has_zone(kind):
            # What a clock of the column's zone shows, as CSV has it. UTC needs no list of zones.
            bare = values.cast(pa.timestamp(kind.unit))
            values = bare if kind.tz in ("UTC", "Z", "+00:00") else pc.local_timestamp(values)
        texts = values.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise _not_single_values(kind, name) from error
    if pa.types.is_float64(kind):
        # One null among whole numbers lets programs write them all as floats, and Arrow writes
        # those from 1e15 on with an exponent.
        is_whole = pc.and_(pc.equal(values, pc.trunc(values)), pc.less_equal(pc.abs(values), 2**53))
        whole = pc.if_else(is_whole, values, 0.0).cast(pa.int64()).cast(pa.string())
        texts = pc.if_else(is_whole, whole, texts)
    return texts


def _checked_text(values: pa.Array) -> pa.StringArray:
    """The same texts as UTF-8: writers of Parquet do not check theirs."""
    try:
        texts = values.cast(pa.string())
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = values.view(pa.large_binary()) if pa.types.is_large_string(values.type) else values
        raw = raw.view(pa.binary()) if pa.types.is_string(values.type) else raw
        return pa.array([held.decode("utf-8", ESCAPING) for held in raw.to_pylist()], pa.string())
    return texts


def _not_single_values(kind: pa.DataType, name: str) -> TableError:
    return refuse(
        f"a column of type {kind} cannot be read as single values",
        "leave the field out, or write the column as text, numbers or dates",
        name,
    )


@dataclass(frozen=True)
class Spans:
    """The bytes of each text: int64 starts and lengths in `data`, shape (texts,)."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, texts: pa.StringArray) -> Spans:
        _, offsets, data = texts.buffers()
        first, count = texts.offset, len(texts)
        if not count:
            none = np.zeros(0, np.int64)
            return cls(np.zeros(0, np.uint8), none, none)
        bounds = np.frombuffer(offsets, np.int32)[first : first + count + 1].astype(np.int64)
        held = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return cls(held, bounds[:-1], np.diff(bounds))

    def words(self) -> NDArray[np.uint64]:
        """The 8 bytes that start at each byte, little-endian, padded with 0: an unaligned view."""
        padded = np.zeros(len(self.data) + 8, np.uint8)
        padded[: len(self.data)] = self.data
        return np.ndarray((len(self.data) + 1,), "<u8", padded.data, strides=(1,))

    def first_bytes(self) -> NDArray[np.uint8]:
        """The first byte of each text, 0 for the empty one."""
        return self.bytes_at(0)

    def last_bytes(self) -> NDArray[np.uint8]:
        """The last byte of each text, 0 for the empty one."""
        return self.bytes_at(-1)

    def bytes_at(self, place: int) -> NDArray[np.uint8]:
        """The byte of each text at a place, from its end if negative; 0 if there is none."""
        if not len(self.data):
            return np.zeros(len(self.starts), np.uint8)
        within = place + (self.lengths if place < 0 else 0)
        inside = np.clip(self.starts + within, 0, len(self.data) - 1)
        exists = (within >= 0) & (within < self.lengths)
        return np.where(exists, self.data[inside], 0).astype(np.uint8)


def trimmed(texts: pa.StringArray) -> pa.StringArray:
    """Texts without leading and trailing blanks.

    If no text starts or ends with a blank or a byte beyond ASCII, the same array is returned.
    """
    spans = Spans.of(texts)
    for ends in (spans.first_bytes(), spans.last_bytes()):
        if np.any(((ends <= 0x20) & (ends > 0)) | (ends >= 0x80)):
            return pc.utf8_trim_whitespace(texts)
    return texts
