"""Parquet, batch by batch, with the types of the file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from app.engine.files.limits import expect_cells, expect_columns, expect_size
from app.engine.rows import TableError, refuse

BATCH_ROWS = 65_536
# Of a batch, so that a wide table takes no more memory at once than one of 256 columns.
_CELLS_AT_ONCE = 2**24


def open_parquet(stream: BinaryIO, max_bytes: int) -> pq.ParquetFile:
    """Opens the file; raises `TableError` if it is broken, or too large once it is decoded.

    Only the footer is read here, which declares sizes and numbers of values.
    """
    if not stream.seekable():
        raise refuse("a Parquet file must be read with random access", "give a seekable stream")
    try:
        schema = pq.read_schema(stream)
        expect_columns(len(schema))
        text = [field.name for field in schema if pa.types.is_string(field.type)]
        stream.seek(0)
        # Text stays dictionary-encoded, so that a small file of repeats stays small.
        opened = pq.ParquetFile(stream, read_dictionary=text, buffer_size=1 << 20)
    except (pa.ArrowException, OSError) as error:
        raise _broken(error) from error
    metadata = opened.metadata
    # Nested columns have more leaves than names, and more values than rows.
    expect_columns(metadata.num_columns)
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    expect_size(sum(group.total_byte_size for group in groups), max_bytes)
    expect_cells(sum(map(_values, groups)), stream.seek(0, io.SEEK_END))
    return opened


def _values(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(place).num_values for place in range(group.num_columns))


def read_parquet(opened: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Typed batches; raises `TableError` if the file is broken."""
    rows = max(1, min(BATCH_ROWS, _CELLS_AT_ONCE // max(opened.metadata.num_columns, 1)))
    try:
        yield from opened.iter_batches(rows, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise _broken(error) from error


def _broken(error: Exception) -> TableError:
    return refuse(f"the file is not whole Parquet: {error}", "write and upload it again")
