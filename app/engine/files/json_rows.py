"""JSON Lines, and a JSON array of objects, with numbers exactly as written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, KeysView
from contextlib import suppress
from typing import Any, NoReturn

import pyarrow as pa

from app.engine import strict_json
from app.engine.files.source import ChunkStream
from app.engine.rows import MOST_LISTED, RowProblem, TableError, refuse
from app.engine.schema.values import is_text
from app.engine.strict_json import RepeatedKey

BLOCK_ROWS = 16_384
LONGEST_OBJECT_BYTES = 4 << 20
MOST_KEYS = 2000


def keys_of(chunks: Iterator[bytes]) -> tuple[str, ...]:
    """All keys of the rows, without blanks around them; wrong rows are passed over.

    Raises `TableError` for too many keys, and for a text that cannot be divided into rows.
    """
    keys: dict[str, None] = {}
    for text in _objects(chunks):
        # A small compressed file can be a thousand million blank lines.
        if text.isspace():
            continue
        found = _keys(text)
        if found <= keys.keys():
            continue
        keys.update(dict.fromkeys(map(str.strip, found)))
        if len(keys) > MOST_KEYS:
            raise refuse(f"the rows have more than {MOST_KEYS} keys", f"write 1 to {MOST_KEYS}")
    return tuple(filter(is_text, keys))


def _keys(text: bytes) -> KeysView[str]:
    parsed = None
    try:
        parsed = json.loads(text)
    except ValueError:
        # Python converts no number of thousands of digits, which is text here.
        with suppress(ValueError):
            parsed = json.loads(text, parse_int=str)
    except RecursionError:
        pass
    return parsed.keys() if isinstance(parsed, dict) else {}.keys()


def read_json(chunks: Iterator[bytes], names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Batches of dictionary-encoded text: numbers as written, true and false, null.

    `names` are the columns; a row without such a key has null there. Raises `TableError`, at the
    end where single rows are wrong.
    """
    rows = _Rows()
    block: list[dict[str, str | None]] = []
    for text in _objects(chunks):
        cells = rows.parse(text)
        block += [] if cells is None else [cells]
        if len(block) == BLOCK_ROWS:
            if not rows.problems:
                yield _batch(block, names)
            block = []
    if rows.problems:
        raise TableError(rows.problems)
    if block:
        yield _batch(block, names)


def _batch(block: list[dict[str, str | None]], names: tuple[str, ...]) -> pa.RecordBatch:
    columns = [
        pa.array([cells.get(name) for cells in block], pa.string()).dictionary_encode()
        for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


class _Rows:
    """Objects parsed into dicts of cell texts, and the problems of those that cannot be parsed."""

    def __init__(self) -> None:
        self.problems: list[RowProblem] = []
        self.row = 0
        self.record = 0

    def parse(self, text: bytes) -> dict[str, str | None] | None:
        self.record += 1
        if not text.strip():
            return None
        self.row += 1
        try:
            parsed = strict_json.loads(
                text, parse_int=str, parse_float=str, parse_constant=_no_constant
            )
        except RepeatedKey as error:
            self._wrong(str(error), "write each key of an object once", error.key)
            return None
        except (ValueError, RecursionError) as error:
            self._wrong(f"the line is not JSON: {error}", "write one object per line")
            return None
        if not isinstance(parsed, dict):
            self._wrong("the line is not an object", 'write {"column": value, ...}')
            return None
        cells = {key.strip(): _text(value) for key, value in parsed.items()}
        if len(cells) < len(parsed):
            self._wrong("two keys differ in the blanks around them alone", "rename one")
            return None
        if b"\\u" in text and not all(map(_is_whole, (*cells, *cells.values()))):
            self._wrong("a text contains half of a surrogate pair", "write whole characters")
            return None
        return cells

    def _wrong(self, message: str, remedy: str, column: str | None = None) -> None:
        if len(self.problems) < MOST_LISTED:
            self.problems.append(RowProblem(self.row, self.record, column, message, remedy))


def _is_whole(text: str | None) -> bool:
    return text is None or is_text(text)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)


def _objects(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The text of each row; blank lines too, so that the records can be counted."""
    stream = io.BufferedReader(ChunkStream(chunks), LONGEST_OBJECT_BYTES)
    start = stream.peek(1).lstrip()
    if start.startswith(b"["):
        yield from _elements(io.TextIOWrapper(stream, "utf-8"))
        return
    record = 0
    while line := stream.readline(LONGEST_OBJECT_BYTES + 1):
        record += 1
        if len(line) > LONGEST_OBJECT_BYTES:
            raise _too_long(record)
        yield line


def _elements(stream: io.TextIOWrapper) -> Iterator[bytes]:
    """The text of each element of an array."""
    array = _Array(stream)
    array.take("[")
    if array.next_mark() != "]":
        yield array.element()
        while array.next_mark() == ",":
            array.take(",")
            yield array.element()
    array.take("]")
    if array.next_mark():
        raise array.fault("text follows the end of the array")


class _Array:
    """A JSON array that is read element by element, at most one of them in memory."""

    _READ = 1 << 20

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream
        self._decoder = json.JSONDecoder(parse_int=str, parse_float=str)
        self._text = ""
        self._at = 0
        self._elements = 0

    def next_mark(self) -> str:
        """The next character that is no blank, which is not taken; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, mark: str) -> None:
        if self.next_mark() != mark:
            raise self.fault(f'"{mark}" is missing')
        self._at += 1

    def element(self) -> bytes:
        self.next_mark()
        self._elements += 1
        while True:
            try:
                _, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                # Perhaps the element goes on beyond what was read, perhaps it is not JSON.
                is_long = len(self._text) - self._at > LONGEST_OBJECT_BYTES
                if is_long or isinstance(error, RecursionError) or not self._more():
                    raise self.fault(str(error)) from None
                continue
            if end < len(self._text) or not self._more():
                start, self._at = self._at, end
                return self._text[start:end].encode()

    def fault(self, message: str) -> TableError:
        place = f" at element {self._elements}" if self._elements else ""
        remedy = f"write it again, with objects of at most {LONGEST_OBJECT_BYTES} bytes"
        return refuse(f"the file is not a JSON array{place}: {message}", remedy)

    def _more(self) -> bool:
        """Whether there was more to read; what has been taken is dropped."""
        read = self._stream.read(self._READ)
        self._text, self._at = self._text[self._at :] + read, 0
        return bool(read)


def _too_long(record: int) -> TableError:
    return refuse(f"row {record} is longer than {LONGEST_OBJECT_BYTES} bytes", "split it")
