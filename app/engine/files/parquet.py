"""Parquet, batch by batch, with the types of the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from app.engine.rows import TableError, refuse

BATCH_ROWS = 65_536


def open_parquet(stream: BinaryIO, max_bytes: int) -> pq.ParquetFile:
    """Opens the file; raises `TableError` if it is broken or too large after decompression."""
    if not stream.seekable():
        raise refuse("a Parquet file must be read with random access", "give a seekable stream")
    try:
        schema = pq.read_schema(stream)
        text = [field.name for field in schema if pa.types.is_string(field.type)]
        stream.seek(0)
        # Text stays dictionary-encoded, so that a small file of repeats stays small.
        opened = pq.ParquetFile(stream, read_dictionary=text, buffer_size=1 << 20)
    except (pa.ArrowException, OSError) as error:
        raise _broken(error) from error
    groups = range(opened.metadata.num_row_groups)
    size = sum(opened.metadata.row_group(group).total_byte_size for group in groups)
    if size > max_bytes:
        raise refuse(
            f"the file is larger than {max_bytes} bytes after decompression",
            "split it, or ask the administrator for a higher limit",
        )
    return opened


def read_parquet(opened: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Typed batches; raises `TableError` if the file is broken."""
    try:
        yield from opened.iter_batches(BATCH_ROWS, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise _broken(error) from error


def _broken(error: Exception) -> TableError:
    return refuse(f"the file is not whole Parquet: {error}", "write and upload it again")
