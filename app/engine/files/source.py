"""The bytes of a file: decompressed within a limit, decoded, passed on as UTF-8."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from app.engine.escapes import ESCAPING
from app.engine.files.options import Compression
from app.engine.rows import TableError, refuse

CHUNK_BYTES = 1 << 20
SNIFFED_BYTES = 1 << 20
# Of a file with comments; a record may be as long.
LONGEST_LINE_BYTES = 1 << 20
# The start of a ZIP archive names its first file.
SNIFFED_MAGIC_BYTES = 256
_MAGIC: tuple[tuple[bytes, Compression], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
# Files that are sent by mistake: what they are, and what to send.
_OTHER_FILES = (
    (b"PK\x03\x04", "a ZIP archive", "unpack it and send the table in it"),
    (b"\xd0\xcf\x11\xe0", "a workbook of Excel (xls)", "save the sheet as CSV (UTF-8)"),
    (b"BZh", "compressed by bzip2", "compress it by gzip or zstd, or send it as it is"),
    (b"\xfd7zXZ", "compressed by xz", "compress it by gzip or zstd, or send it as it is"),
    (b"%PDF", "a PDF document", "send the table as CSV"),
    (b"\x89PNG\r\n", "a picture (PNG)", "send the table as CSV"),
    (b"\xff\xd8\xff", "a picture (JPEG)", "send the table as CSV"),
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class ChunkStream(io.RawIOBase):
    """A readable stream over chunks. An exception of the chunks is kept in `error`."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")
        self.error: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            while not self._rest:
                self._rest = memoryview(next(self._chunks))
        except StopIteration:
            return 0
        except Exception as error:
            self.error = error
            raise
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def chunks_of(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK_BYTES):
        yield chunk


def peek(chunks: Iterator[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """The first `size` bytes or more, as far as the file has them, and all chunks again."""
    head = bytearray()
    for chunk in chunks:
        head += chunk
        if len(head) >= size:
            break
    return bytes(head), _again(bytes(head), chunks)


def _again(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from rest


def compression_of(head: bytes) -> Compression:
    found = [name for magic, name in _MAGIC if head.startswith(magic)]
    return found[0] if found else "none"


def refuse_other_files(head: bytes) -> None:
    """Raises `TableError` for common files that are no tables, which would read as odd text."""
    for magic, what, remedy in _OTHER_FILES:
        if head.startswith(magic):
            if what == "a ZIP archive" and (b"[Content_Types]" in head or b"xl/" in head):
                what, remedy = "a workbook of Excel (xlsx)", "save the sheet as CSV (UTF-8)"
            raise refuse(f"the file is {what}", remedy)


def decompressed(chunks: Iterator[bytes], how: Compression) -> Iterator[bytes]:
    """Decompressed chunks; raises `TableError` if the compression is not the declared one."""
    if how == "none":
        yield from chunks
        return
    packed = pa.PythonFile(io.BufferedReader(ChunkStream(chunks), CHUNK_BYTES), mode="r")
    try:
        unpacked = pa.CompressedInputStream(packed, how)
        while chunk := unpacked.read(CHUNK_BYTES):
            yield chunk
    except OSError as error:
        raise refuse(f"the file is not whole {how} data", "compress and upload it again") from error


def bounded(chunks: Iterator[bytes], most: int) -> Iterator[bytes]:
    """The same chunks; raises `TableError` after more than `most` bytes."""
    seen = 0
    for chunk in chunks:
        seen += len(chunk)
        if seen > most:
            raise refuse(
                f"the file is larger than {most} bytes after decompression",
                "split it, or ask the administrator for a higher limit",
            )
        yield chunk


def encoding_of(head: bytes, declared: str | None, *, has_rows_first: bool) -> tuple[str, int]:
    """The encoding, and the length of the byte order mark to drop.

    It is the declared one, else that of a byte order mark, else UTF-8: never a guess, which rows
    would decide. Where a row comes first (`has_rows_first`), its bytes are no mark of UTF-16 or
    UTF-32: in another row they would be cells.
    """
    mark = next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), None)
    if declared is not None:
        plain = codecs.lookup(declared).name
        if mark is not None and _agree(plain, mark[1]):
            return mark[1], len(mark[0])
        return plain, 0
    if mark is not None and (mark[1] == "utf-8" or not has_rows_first):
        return mark[1], len(mark[0])
    return "utf-8", 0


def not_text(encoding: str, error: UnicodeError | str) -> TableError:
    """The refusal of a whole file that is not in the encoding."""
    return refuse(f"the file is not {encoding} text: {error}", "declare the right encoding")


def whole_text(head: bytes, encoding: str) -> str:
    """The start of a file as text, without a character that is cut off; raises `TableError`."""
    try:
        return codecs.getincrementaldecoder(encoding)(errors=ESCAPING).decode(head)
    except UnicodeError as error:
        raise not_text(encoding, error) from error


def _agree(declared: str, marked: str) -> bool:
    return declared in (marked, marked.removesuffix("-le").removesuffix("-be"), f"{marked}-sig")


def decoded(chunks: Iterator[bytes], encoding: str, mark: int) -> Iterator[bytes]:
    """The text as UTF-8, without the `mark` bytes of the byte order mark.

    Bytes that are not text are kept, escaped (`app.engine.escapes`), so that they concern their
    own cell alone. In UTF-16 and UTF-32 a part of a code unit would shift all that follows, to the
    end of the file, which is then no whole number of units: `TableError`.
    """
    decoder = codecs.getincrementaldecoder(encoding)(errors=ESCAPING)
    unit_bytes, size_bytes = _unit_bytes(encoding), 0
    for chunk in _ended(chunks):
        piece, mark = chunk[mark:], 0
        size_bytes += len(piece)
        if not chunk and size_bytes % unit_bytes:
            raise not_text(encoding, "it ends within a character")
        if encoding == "utf-8" and piece.isascii() and not decoder.getstate()[0]:
            yield piece
            continue
        try:
            yield decoder.decode(piece, final=not chunk).encode()
        except UnicodeError as error:
            # Such as UTF-16 without its byte order mark.
            raise not_text(encoding, error) from None


def _unit_bytes(encoding: str) -> int:
    return 4 if encoding.startswith("utf-32") else 2 if encoding.startswith("utf-16") else 1


def _ended(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks, then an empty one that ends the text."""
    yield from (chunk for chunk in chunks if chunk)
    yield b""


def without_comments(text: Iterator[bytes], mark: str) -> Iterator[bytes]:
    """UTF-8 text without the lines that start with the mark.

    Raises `TableError` for a line that would take more memory than a record may.
    """
    start, rest = mark.encode(), b""
    for chunk in text:
        lines = (rest + chunk).splitlines(keepends=True)
        rest = lines.pop() if lines else b""
        yield b"".join(line for line in lines if not line.startswith(start))
        if len(rest) > LONGEST_LINE_BYTES:
            raise refuse(
                f"a line is longer than {LONGEST_LINE_BYTES} bytes", "break it into several"
            )
    if not rest.startswith(start):
        yield rest
