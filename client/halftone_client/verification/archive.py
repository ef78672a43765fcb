"""The zip archive of a bundle, read strictly: all its bytes are those that its files determine.

A bundle's archive has one form: files one after the other, with fixed times and attributes, sizes
after the data, the list of files at once after the last one, and nothing else. So headers and list
are made again from names, sizes and checksums, and compared byte for byte. Of the files' own bytes,
packed data can have several forms for one content; what covers them is the hash of the archive.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from halftone_client.verification.faults import ARCHIVE, BundleFault

# Above it sizes and places move to fields of 64 bits, as in Python's `zipfile`.
LIMIT = 2**31 - 1
_FILES_LIMIT = 2**16 - 1
_STORED, _PACKED = 0, 8
# Sizes follow the data.
_FLAGS = 0x08
# 1980-01-01 00:00 in DOS form.
_DOS_TIME, _DOS_DATE = 0, 0x21
_UNIX = 3
_ATTRIBUTES = 0o100644 << 16
_PLAIN_VERSION, _LARGE_VERSION = 20, 45
_ALL_ONES = 0xFFFFFFFF
_END = struct.Struct("<4s4H2LH")
_LISTED = struct.Struct("<4s4B4HL2L5H2L")
_LOCAL = struct.Struct("<4s2B4HL2L2H")
_AT_ONCE = 2**20
_MOST_FILES = 1000
# What can be shown, and lies below the folder into which the archive is unpacked.
_NAME = re.compile(r"(?=.{1,200}\Z)\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class File:
    """One file as the list at the end has it, and where its data lie."""

    name: str
    method: int
    is_large: bool
    checksum: int
    packed_bytes: int
    size_bytes: int
    header_at: int

    @property
    def header(self) -> bytes:
        """What comes before its data."""
        size = _ALL_ONES if self.is_large else 0
        extra = struct.pack("<HHQQ", 1, 16, 0, 0) if self.is_large else b""
        name = self.name.encode("ascii")
        fixed = _LOCAL.pack(
            b"PK\3\4", self._version, 0, _FLAGS, self.method, _DOS_TIME, _DOS_DATE,
            0, size, size, len(name), len(extra),
        )  # fmt: skip
        return fixed + name + extra

    @property
    def trailer(self) -> bytes:
        """What comes after its data."""
        form = "<4sLQQ" if self.is_large else "<4sLLL"
        return struct.pack(form, b"PK\7\x08", self.checksum, self.packed_bytes, self.size_bytes)

    @property
    def listed(self) -> bytes:
        """Its entry in the list of files."""
        wide: list[int] = []
        sizes = (self.size_bytes, self.packed_bytes)
        if max(sizes) > LIMIT:
            wide += sizes
            sizes = (_ALL_ONES, _ALL_ONES)
        place = self.header_at
        if place > LIMIT:
            wide.append(place)
            place = _ALL_ONES
        extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        version = _LARGE_VERSION if wide else self._version
        name = self.name.encode("ascii")
        fixed = _LISTED.pack(
            b"PK\1\2", version, _UNIX, version, 0, _FLAGS, self.method, _DOS_TIME, _DOS_DATE,
            self.checksum, sizes[1], sizes[0], len(name), len(extra), 0, 0, 0, _ATTRIBUTES, place,
        )  # fmt: skip
        return fixed + name + extra

    @property
    def data_at(self) -> int:
        return self.header_at + len(self.header)

    @property
    def end_at(self) -> int:
        return self.data_at + self.packed_bytes + len(self.trailer)

    @property
    def _version(self) -> int:
        return _LARGE_VERSION if self.is_large else _PLAIN_VERSION


class Archive:
    """The files of an archive, in order. Raises `BundleFault` for one of another form."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.files = tuple(_files(stream))
        self._by_name = {file.name: file for file in self.files}
        if len(self._by_name) != len(self.files):
            raise BundleFault(ARCHIVE, "it has two files of one name")

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def file(self, name: str) -> File:
        """Raises `BundleFault` where there is none."""
        if name not in self._by_name:
            raise BundleFault(name, "it is missing")
        return self._by_name[name]

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content of a file, checked against its size and checksum at the end."""
        file = self.file(name)
        size_bytes, checksum = 0, 0
        for piece in _unpacked(self._stream, file):
            size_bytes += len(piece)
            if size_bytes > file.size_bytes:
                raise BundleFault(name, "it is longer than the archive says")
            checksum = zlib.crc32(piece, checksum)
            yield piece
        if (size_bytes, checksum) != (file.size_bytes, file.checksum):
            raise BundleFault(name, "its bytes are not those that the archive says")

    def sha256(self, name: str) -> str:
        """The hash of a file's content, in hex."""
        digest = hashlib.sha256()
        for piece in self.pieces(name):
            digest.update(piece)
        return digest.hexdigest()

    def content(self, name: str, most_bytes: int) -> bytes:
        """The whole content of a file. Raises `BundleFault` beyond `most_bytes`."""
        if self.file(name).size_bytes > most_bytes:
            raise BundleFault(name, f"it is larger than {most_bytes} bytes")
        return b"".join(self.pieces(name))

    def sha256_before(self, name: str) -> tuple[str, int]:
        """The hash of all bytes of the archive before a file, and how many there are."""
        end = self.file(name).header_at
        digest = hashlib.sha256()
        for piece in _read(self._stream, 0, end):
            digest.update(piece)
        return digest.hexdigest(), end


def _files(stream: BinaryIO) -> list[File]:
    length = stream.seek(0, 2)
    if length < _END.size:
        raise BundleFault(ARCHIVE, "it is no zip archive")
    found = _listed(stream, length)
    expected_at = 0
    for file in found:
        if file.header_at != expected_at:
            raise BundleFault(file.name, "it does not begin where the file before it ends")
        if file.end_at > length:
            raise BundleFault(file.name, "it goes on beyond the end of the archive")
        if _bytes(stream, file.header_at, len(file.header)) != file.header:
            raise BundleFault(file.name, "its header in the archive was changed")
        expected_at = file.end_at
        end = expected_at - len(file.trailer)
        if _bytes(stream, end, len(file.trailer)) != file.trailer:
            raise BundleFault(file.name, "its size or checksum in the archive was changed")
    listed = b"".join(file.listed for file in found)
    expected = listed + _ends(len(found), len(listed), expected_at)
    if _bytes(stream, expected_at, length - expected_at) != expected:
        raise BundleFault(ARCHIVE, "its list of files was changed")
    return found


def _ends(number: int, list_bytes: int, list_at: int) -> bytes:
    """What follows the list of files."""
    wide = b""
    if max(list_bytes, list_at) > LIMIT or number > _FILES_LIMIT:
        end_at = list_at + list_bytes
        wide = struct.pack(
            "<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, number, number, list_bytes, list_at
        )
        wide += struct.pack("<4sLQL", b"PK\6\7", 0, end_at, 1)
    return wide + _END.pack(
        b"PK\5\6", 0, 0, min(number, 0xFFFF), min(number, 0xFFFF),
        min(list_bytes, _ALL_ONES), min(list_at, _ALL_ONES), 0,
    )  # fmt: skip


def _listed(stream: BinaryIO, length: int) -> list[File]:
    """The files as the list at the end has them; what it says is compared later."""
    end = _END.unpack(_bytes(stream, length - _END.size, _END.size))
    if end[0] != b"PK\5\6":
        raise BundleFault(ARCHIVE, "its end was changed, or something follows it")
    number, list_bytes, at = end[4], end[5], end[6]
    if at == _ALL_ONES:
        # The wide end of the list: 56 bytes, before a locator of 20.
        wide_at = length - _END.size - 20 - 56
        if wide_at < 0:
            raise BundleFault(ARCHIVE, "its end was changed")
        *_, list_bytes, at = struct.unpack("<4sQ2H2L4Q", _bytes(stream, wide_at, 56))
    if number > _MOST_FILES or at + list_bytes > length:
        raise BundleFault(ARCHIVE, "its list of files was changed")
    found = []
    for _ in range(number):
        file, at = _one(stream, at)
        found.append(file)
    return found


def _one(stream: BinaryIO, at: int) -> tuple[File, int]:
    fields = _LISTED.unpack(_bytes(stream, at, _LISTED.size))
    method, checksum = fields[6], fields[9]
    packed, size, name_length, extra_length, place = (*fields[10:14], fields[18])
    name_bytes = _bytes(stream, at + _LISTED.size, name_length)
    extra = _bytes(stream, at + _LISTED.size + name_length, extra_length)
    name = name_bytes.decode("latin-1")
    if not _NAME.fullmatch(name) or method not in (_STORED, _PACKED):
        raise BundleFault(ARCHIVE, "its list of files was changed")
    wide = list(struct.unpack(f"<{(len(extra) - 4) // 8}Q", extra[4:])) if extra else []
    if size == _ALL_ONES:
        size, packed = wide[0], wide[1]
        del wide[:2]
    if place == _ALL_ONES:
        place = wide[0]
    # Which of the two forms it has stands in its own header; all of that is compared later.
    header = _LOCAL.unpack(_bytes(stream, place, _LOCAL.size))
    file = File(name, method, header[11] != 0, checksum, packed, size, place)
    return file, at + _LISTED.size + name_length + extra_length


def _unpacked(stream: BinaryIO, file: File) -> Iterator[bytes]:
    pieces = _read(stream, file.data_at, file.packed_bytes)
    if file.method == _STORED:
        yield from pieces
        return
    packed = zlib.decompressobj(-15)
    try:
        for piece in pieces:
            # In steps, so that a few bytes cannot become gigabytes in memory.
            rest = piece
            while rest and not packed.eof:
                yield packed.decompress(rest, _AT_ONCE)
                rest = packed.unconsumed_tail
        while not packed.eof and (last := packed.decompress(packed.unconsumed_tail, _AT_ONCE)):
            yield last
    except zlib.error:
        raise BundleFault(file.name, "its packed bytes are damaged") from None
    if not packed.eof or packed.unused_data:
        raise BundleFault(file.name, "its packed bytes are damaged")


def _read(stream: BinaryIO, start: int, size_bytes: int) -> Iterator[bytes]:
    position, end = start, start + size_bytes
    while position < end:
        stream.seek(position)
        piece = stream.read(min(_AT_ONCE, end - position))
        if not piece:
            raise BundleFault(ARCHIVE, "it ends too early")
        position += len(piece)
        yield piece


def _bytes(stream: BinaryIO, start: int, size_bytes: int) -> bytes:
    return b"".join(_read(stream, start, size_bytes))
