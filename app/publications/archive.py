"""The archive of a publication: made once and kept, so that it stays what was cited.

A release's bundle changes when the signing key is rotated or the service is upgraded. A publication
keeps the bytes of the moment at which it was made.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, cast

from app.bundles.bundle import MEDIA_TYPE, SUMS
from app.database import Database
from app.storage.blobs import BlobStore

__all__ = ["MEDIA_TYPE", "ListedFile", "Listing", "listed", "opened", "pieces", "pieces_of"]

# Name of the blob part that holds the archive, in the collection of its publication.
PART = "bundle"
# Bounds the memory of a download.
PIECE_BYTES = 2**20
_MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
}
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of an archive; its hash is SHA-256 in hex."""

    name: str
    media_type: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of an archive, and the archive's own size and SHA-256."""

    files: tuple[ListedFile, ...]
    size_bytes: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, wire: dict[str, Any]) -> Listing:
        files = tuple(ListedFile(**each) for each in wire["files"])
        return cls(files, wire["size_bytes"], wire["sha256"])


def opened(database: Database, publication_id: str) -> BinaryIO:
    """The stored archive, seekable. Raises `BlobMissing`."""
    return cast(BinaryIO, BlobStore(database).open(publication_id, PART))


def listed(file: BinaryIO, sha256: str) -> Listing:
    """What an archive holds, as its own sums state it; `sha256` is that of the archive."""
    with zipfile.ZipFile(file) as archive:
        sums = archive.read(SUMS)
        lines = [line for line in sums.decode().splitlines() if not line.startswith("#")]
        stated = {name: sha256 for sha256, name in (line.split("  ", 1) for line in lines)}
        files = tuple(
            ListedFile(
                info.filename,
                _media_type(info.filename),
                info.file_size,
                # The sums cannot state their own hash, nor that of their signature.
                stated.get(info.filename)
                or hashlib.sha256(archive.read(info.filename)).hexdigest(),
            )
            for info in archive.infolist()
        )
    return Listing(files, file.seek(0, 2), sha256)


def pieces(file: BinaryIO, part: slice) -> Iterator[bytes]:
    """Some of the bytes of the archive itself."""
    file.seek(part.start)
    left = part.stop - part.start
    while left > 0 and (piece := file.read(min(PIECE_BYTES, left))):
        left -= len(piece)
        yield piece


def pieces_of(file: BinaryIO, name: str, part: slice) -> Iterator[bytes]:
    """Some of the bytes of one file in the archive."""
    with zipfile.ZipFile(file) as archive, archive.open(name) as member:
        member.seek(part.start)
        left = part.stop - part.start
        while left > 0 and (piece := member.read(min(PIECE_BYTES, left))):
            left -= len(piece)
            yield piece


def _media_type(name: str) -> str:
    return _MEDIA_TYPES.get(name.rpartition(".")[2], _TEXT)
