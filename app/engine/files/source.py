"""The bytes of a file: decompressed within a limit, decoded strictly, passed on as UTF-8."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import charset_normalizer
import pyarrow as pa

from app.engine.files.options import Compression
from app.engine.rows import RowProblem, TableError, refuse

CHUNK_BYTES = 1 << 20
SNIFFED_BYTES = 1 << 20
_SLACK = 0.02
_MAGIC: tuple[tuple[bytes, Compression], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
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


def encoding_of(head: bytes, declared: str | None) -> tuple[str, int]:
    """The encoding, the declared one if any, and the length of the byte order mark to drop."""
    mark = next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), None)
    if declared is not None:
        plain = codecs.lookup(declared).name
        if mark is not None and _agree(plain, mark[1]):
            return mark[1], len(mark[0])
        return plain, 0
    if mark is not None:
        return mark[1], len(mark[0])
    return _sniffed_encoding(head), 0


def not_text(encoding: str, error: UnicodeError) -> TableError:
    """The refusal of a whole file that is not in the encoding."""
    return refuse(f"the file is not {encoding} text: {error}", "declare the right encoding")


def _agree(declared: str, marked: str) -> bool:
    return declared in (marked, marked.removesuffix("-le").removesuffix("-be"), f"{marked}-sig")


def _sniffed_encoding(head: bytes) -> str:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        matches = charset_normalizer.from_bytes(head)
        best = matches.best()
        if best is None:
            raise refuse(
                "the encoding of the file could not be detected",
                'declare it, such as "encoding": "latin-1"',
            ) from None
        # Central European code pages fit western text nearly as well: the common one is chosen.
        alike = {match.encoding for match in matches if match.chaos <= best.chaos + _SLACK}
        return codecs.lookup("cp1252" if "cp1252" in alike else best.encoding).name
    return "utf-8"


def decoded(
    chunks: Iterator[bytes],
    encoding: str,
    mark: int,
    place: Callable[[int, str], tuple[int | None, str | None]],
) -> Iterator[bytes]:
    """The text as UTF-8, without the `mark` bytes of the byte order mark.

    A byte that cannot be decoded raises `TableError`; `place` says in which data row and column
    a partial line ends that comes after a number of lines.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    lines, line = 0, ""
    for chunk in _ended(chunks):
        piece, mark = chunk[mark:], 0
        try:
            text = decoder.decode(piece, final=not chunk)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode(encoding, errors="replace")
            lines, line = lines + before.count("\n"), _last_line(line, before)
            row, column = place(lines, line)
            problem = RowProblem(
                row,
                lines + 1,
                column,
                f"a byte is not {encoding} text",
                'declare the file\'s "encoding", or save it as UTF-8',
            )
            raise TableError([problem]) from None
        except UnicodeError as error:
            # Such as UTF-16 without its byte order mark.
            raise not_text(encoding, error) from None
        lines, line = lines + text.count("\n"), _last_line(line, text)
        yield text.encode() if encoding != "utf-8" else piece


def _ended(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks, then an empty one that ends the text."""
    yield from (chunk for chunk in chunks if chunk)
    yield b""


def _last_line(line: str, text: str) -> str:
    start = text.rfind("\n")
    return (line + text if start < 0 else text[start + 1 :])[-CHUNK_BYTES:]


def without_comments(text: Iterator[bytes], mark: str) -> Iterator[bytes]:
    """UTF-8 text without the lines that start with the mark."""
    start, rest = mark.encode(), b""
    for chunk in text:
        lines = (rest + chunk).splitlines(keepends=True)
        rest = lines.pop() if lines else b""
        yield b"".join(line for line in lines if not line.startswith(start))
    if not rest.startswith(start):
        yield rest
