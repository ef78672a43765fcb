"""How a table is stored in its blob collection: one part for each column, one chunk for each block.

A query reads only its own columns. Every block but the last has `block_rows` rows; the
manifest, written last, states how many rows there are, so that a missing tail is noticed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.engine.schema import PrivacyUnit, Schema

ENTITIES = "entities"
MANIFEST = "manifest"
# 128 bits: two of a billion ids collide with a probability below 1e-20.
ENTITY_BYTES = 16

MOST_BLOCK_ROWS = 2**17
FEWEST_BLOCK_ROWS = 2**12
# Approximate bytes of codes of one block in memory, all columns together. The number of rows
# follows from the dictionary alone, so that it reveals nothing.
BLOCK_BYTES = 2**24

_MANIFEST_BYTES = 64
# Lengths before encryption: at least this, above it rounded up to four significant bits.
_SMALLEST_PADDED = 4096
# Starts a frame that decoders of Zstandard skip (RFC 8878, section 3.1.2); its length follows.
_SKIPPED = struct.Struct("<II")
_SKIPPED_MAGIC = 0x184D2A50

_HEADER = struct.Struct("<4sBBI")
# Starts every block, with the version of the format.
_MAGIC = b"HTC1"
_DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class BlockError(ValueError):
    """Stored bytes are not a block of codes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Rows of the table, and of each of its blocks but the last."""

    rows: int
    block_rows: int

    def __post_init__(self) -> None:
        if self.rows < 0 or self.block_rows < 1:
            raise ValueError("a table has rows in blocks of at least one row")

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.block_rows)

    def rows_of(self, block: int) -> int:
        return min(self.block_rows, self.rows - block * self.block_rows)

    def to_bytes(self) -> bytes:
        # Of one length, whatever the number of rows.
        wire = json.dumps({"rows": self.rows, "block_rows": self.block_rows})
        return wire.ljust(_MANIFEST_BYTES).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        wire = json.loads(data)
        return cls(int(wire["rows"]), int(wire["block_rows"]))


def block_rows(schema: Schema, unit: PrivacyUnit) -> int:
    """How many rows of this table make a block: public, and fewer for wide tables."""
    row_bytes = sum(column.dtype.itemsize for column in schema.columns)
    row_bytes += 4 * len(number_parts(schema))
    row_bytes += ENTITY_BYTES if unit.kind == "entity" else 0
    return max(FEWEST_BLOCK_ROWS, min(MOST_BLOCK_ROWS, BLOCK_BYTES // row_bytes))


def part_names(schema: Schema) -> dict[str, str]:
    """The part that holds each column, by the column's name (names may be long)."""
    return {column.name: f"column-{i}" for i, column in enumerate(schema.columns)}


def number_parts(schema: Schema) -> dict[str, str]:
    """The part that holds, for each column whose values a release discovers, its texts as numbers.

    Number i stands for text i of the part of `texts_part`. Both are private.
    """
    return {
        column.name: f"numbers-{i}"
        for i, column in enumerate(schema.columns)
        if column.discovers is not None
    }


def texts_part(numbers: str) -> str:
    """The part with the texts that a part of numbers refers to."""
    return numbers.replace("numbers", "texts")


def pack_texts(texts: Sequence[str]) -> bytes:
    plain = json.dumps(texts, ensure_ascii=False).encode()
    packed = bytes(pa.Codec("zstd", compression_level=1).compress(plain))
    return struct.pack("<Q", len(plain)) + packed


def unpack_texts(data: bytes) -> tuple[str, ...]:
    """The texts that `pack_texts` was given. Raises `BlockError` for other bytes."""
    try:
        (size,) = struct.unpack_from("<Q", data)
        return tuple(
            json.loads(pa.Codec("zstd").decompress(data[8:], decompressed_size=size).to_pybytes())
        )
    except (struct.error, ValueError, pa.ArrowException, OSError) as error:
        raise BlockError("the stored texts cannot be read") from error


def padded(packed: bytes) -> bytes:
    """Packed codes or texts, made longer by up to an eighth; `unpack` reads them as before.

    Encryption does not hide a length, and the length of compressed rows depends on their values.
    """
    least = len(packed) + _SKIPPED.size
    step = 1 << max(least.bit_length() - 4, 0)
    filling = max(_SMALLEST_PADDED, -(-least // step) * step) - least
    return packed + _SKIPPED.pack(_SKIPPED_MAGIC, filling) + bytes(filling)


def pack(array: NDArray[Any]) -> bytes:
    """Unsigned codes, shape (rows,) or (rows, lanes), compressed with Zstandard.

    A column has one lane. An id of `ENTITY_BYTES` takes two lanes of 64 bits.
    """
    lanes = 1 if array.ndim == 1 else array.shape[1]
    header = _HEADER.pack(_MAGIC, array.dtype.itemsize, lanes, len(array))
    # Always little-endian, so that a store can move between machines.
    plain = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return header + bytes(pa.Codec("zstd", compression_level=1).compress(plain.tobytes()))


def unpack(data: bytes) -> NDArray[Any]:
    """The array that `pack` was given. Raises `BlockError` for other bytes."""
    try:
        magic, itemsize, lanes, rows = _HEADER.unpack_from(data)
        dtype = np.dtype(_DTYPES[itemsize])
        size = rows * lanes * itemsize
        plain = pa.Codec("zstd").decompress(data[_HEADER.size :], decompressed_size=size)
    except (struct.error, KeyError, pa.ArrowException, OSError) as error:
        raise BlockError("the stored block cannot be read") from error
    array = np.frombuffer(plain, dtype.newbyteorder("<")).astype(dtype, copy=False)
    if magic != _MAGIC or array.size != rows * lanes:
        raise BlockError("the stored block cannot be read")
    return array if lanes == 1 else array.reshape(rows, lanes)
