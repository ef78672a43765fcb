"""Tables to upload: a path, bytes, an open binary file or a DataFrame."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import httpx
import pandas as pd

Uploadable = str | os.PathLike[str] | bytes | BinaryIO | pd.DataFrame

_CHUNK_BYTES = 1 << 18
_CONTENT_TYPES = {
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "parquet": "application/vnd.apache.parquet",
    "jsonl": "application/jsonl",
}
_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".jsonl": "jsonl"}
_SUFFIXES |= {".pq": "parquet", ".ndjson": "jsonl"}
_COMPRESSED = {".gz", ".zst"}


@dataclass(frozen=True, slots=True)
class Source:
    """A table that can be opened for sending; `repeatable` if it can be opened again."""

    open: Callable[[], AbstractContextManager[BinaryIO]]
    name: str
    format: str
    repeatable: bool = True

    @property
    def content_type(self) -> str:
        return _CONTENT_TYPES[self.format]


def source_of(table: Uploadable, format: str | None = None) -> Source:
    """How to send `table`. `format` (csv, tsv, parquet, jsonl) is read off a name if not given.

    A DataFrame goes as CSV without its index. Raises `ValueError` for an unknown format.
    """
    if isinstance(table, pd.DataFrame):
        table, format = table.to_csv(index=False).encode(), "csv"
    if isinstance(table, str | os.PathLike):
        path = Path(table)
        return Source(lambda: path.open("rb"), path.name, _format(path.name, format))
    if isinstance(table, bytes):
        data, known = table, _format("", format)
        return Source(lambda: io.BytesIO(data), f"table.{known}", known)
    return _from_file(table, format)


def _from_file(file: BinaryIO, format: str | None) -> Source:
    name = Path(str(getattr(file, "name", ""))).name
    known = _format(name, format)
    if not file.seekable():
        return Source(lambda: nullcontext(file), name or f"table.{known}", known, repeatable=False)
    start = file.tell()

    def rewound() -> AbstractContextManager[BinaryIO]:
        file.seek(start)
        return nullcontext(file)

    return Source(rewound, name or f"table.{known}", known)


def _format(name: str, given: str | None) -> str:
    if given is not None:
        if given not in _CONTENT_TYPES:
            raise ValueError(f"format {given!r} is none of {', '.join(_CONTENT_TYPES)}")
        return given
    suffixes = [suffix for suffix in Path(name).suffixes if suffix.lower() not in _COMPRESSED]
    return _SUFFIXES.get(suffixes[-1].lower(), "csv") if suffixes else "csv"


class FileStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """An open file as a request body for both kinds of transport."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._file.read(_CHUNK_BYTES):
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk


def length_of(file: BinaryIO) -> int | None:
    """Bytes from here to the end; None if that can't be known."""
    if not file.seekable():
        return None
    here = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(here)
    return end - here
