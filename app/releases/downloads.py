"""Stored samples as files to download: streamed a row group at a time, never held whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from app.engine.schema import Schema
from app.problems import Conflict, Invalid
from app.releases.spelling import CsvStyle, csv_pieces, json_lines
from app.storage.blobs import BlobError

# Name of the blob part that holds a sample, in the collection of its id.
PART = "parquet"
# 1 MiB: bounds the memory of a download, whatever the size of the sample.
_BYTES_AT_ONCE = 2**20
# Raise it when the same rows are written differently, so that ETags change.
_RENDERING = 1


class Format(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    JSONL = "jsonl"

    @property
    def media_type(self) -> str:
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    Format.CSV: "text/csv; charset=utf-8",
    Format.PARQUET: "application/vnd.apache.parquet",
    Format.JSONL: "application/jsonl",
}


@dataclass(frozen=True, slots=True)
class Rendering:
    """A format and its option."""

    format: Format
    escape_formulas: bool = False

    def __post_init__(self) -> None:
        if self.escape_formulas and self.format is not Format.CSV:
            raise Invalid.at(
                "/query/escape_formulas",
                "Only CSV is opened by spreadsheets that run cells.",
                "Leave the option out, or ask for format=csv.",
            )

    def etag(self, content_sha256: str) -> str:
        """A strong tag: equal tags mean equal bytes."""
        facts = f"{content_sha256} {self.format} {self.escape_formulas} {_RENDERING}"
        return f'"{hashlib.sha256(facts.encode()).hexdigest()[:32]}"'


@dataclass(frozen=True, slots=True)
class StoredSample:
    """A sample that can be downloaded; `file` is its Parquet form, `schema` its dictionary."""

    id: str
    kind: str
    content_sha256: str
    size_bytes: int
    schema: Schema
    file: BinaryIO


def pieces(sample: StoredSample, rendering: Rendering) -> Iterator[bytes]:
    """The bytes of the download; every chunk is read in a short transaction of its own.

    Raises `Conflict` at once where stored bytes are damaged.
    """
    # Before the first byte is sent, while a refusal can still be an HTTP status.
    check(sample.file)
    return unchecked_pieces(sample, rendering)


def unchecked_pieces(sample: StoredSample, rendering: Rendering) -> Iterator[bytes]:
    """`pieces` of a sample whose stored bytes were checked before."""
    sample.file.seek(0)
    if rendering.format is Format.PARQUET:
        return iter(lambda: sample.file.read(_BYTES_AT_ONCE), b"")
    style = CsvStyle({}, escape_formulas=rendering.escape_formulas)
    if sample.kind == "rows":
        style = CsvStyle.of(sample.schema, escape_formulas=rendering.escape_formulas)
    groups = _groups(sample.file)
    if rendering.format is Format.JSONL:
        return (json_lines(group, style.formats) for group in groups)
    return csv_pieces(groups, pq.read_schema(sample.file).names, style)


def check(file: BinaryIO) -> None:
    """Read the whole file: after a response has begun, it cannot turn into an error.

    Raises `Conflict` where stored bytes are damaged.
    """
    try:
        while file.read(_BYTES_AT_ONCE):
            pass
    except BlobError:
        raise Conflict(
            "The sample's stored bytes are damaged. Delete it and ask for one with the same seed,"
            " which has the same rows; the store needs `halftone verify`."
        ) from None
    file.seek(0)


def _groups(file: BinaryIO) -> Iterator[pa.Table]:
    file.seek(0)
    parquet = pq.ParquetFile(file)
    for place in range(parquet.num_row_groups):
        yield parquet.read_row_group(place)
