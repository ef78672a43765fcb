"""A zip archive as a stream of bytes that depends on the members alone.

Times, attributes and the order are fixed, and there is nothing before, between or after the
members. Members are written once, front to back, so their sizes follow their data.
"""

from __future__ import annotations

import hashlib
import io
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.bundles.files import Written

# 1980-01-01, the first moment that a zip can state.
_TIME = (1980, 1, 1, 0, 0, 0)
_ATTRIBUTES = (stat.S_IFREG | 0o644) << 16
_UNIX = 3
# The fastest: half the size of CSV already, at four times the speed of the default.
_LEVEL = 1
# The bytes depend on it.
COMPRESSION = f"deflate {_LEVEL} {zlib.ZLIB_RUNTIME_VERSION}"


@dataclass(frozen=True, slots=True)
class Member:
    """A file to write. `is_packed`: compress it; `is_large`: it may pass 2 GiB."""

    name: str
    pieces: Iterable[bytes]
    is_packed: bool = True
    is_large: bool = False


class Archive:
    """Writes members one by one; `take` gives the bytes that are ready."""

    def __init__(self) -> None:
        self._drain = _Drain()
        self._zip = zipfile.ZipFile(self._drain, "w")
        self.written: list[Written] = []

    @property
    def size_bytes(self) -> int:
        """How long the archive is so far."""
        return self._drain.position

    @property
    def sha256(self) -> str:
        """Of all bytes so far, in hex."""
        return self._drain.hash.hexdigest()

    def add(self, member: Member) -> Iterator[bytes]:
        """The archive's bytes while the member is written; afterwards it is in `written`."""
        info = zipfile.ZipInfo(member.name, _TIME)
        info.create_system, info.external_attr = _UNIX, _ATTRIBUTES
        info.compress_type = zipfile.ZIP_DEFLATED if member.is_packed else zipfile.ZIP_STORED
        info._compresslevel = _LEVEL  # type: ignore[attr-defined]
        digest, size_bytes = hashlib.sha256(), 0
        with self._zip.open(info, "w", force_zip64=member.is_large) as file:
            for piece in member.pieces:
                file.write(piece)
                digest.update(piece)
                size_bytes += len(piece)
                if held := self._drain.take():
                    yield held
        self.written.append(Written(member.name, size_bytes, digest.hexdigest()))
        yield self._drain.take()

    def close(self) -> Iterator[bytes]:
        """The end of the archive."""
        self._zip.close()
        yield self._drain.take()


class _Drain(io.RawIOBase):
    """A file without a way back, emptied as it is written."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self.position = 0
        self.hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        piece = bytes(data)
        self._held.append(piece)
        self.position += len(piece)
        self.hash.update(piece)
        return len(piece)

    def take(self) -> bytes:
        taken = b"".join(self._held)
        self._held.clear()
        return taken
