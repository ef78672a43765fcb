"""JSON Lines: one object per line, with numbers exactly as written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa

from app.engine import strict_json
from app.engine.files.source import ChunkStream
from app.engine.rows import MOST_LISTED, RowProblem, TableError, refuse
from app.engine.schema.values import is_text
from app.engine.strict_json import RepeatedKey

BLOCK_ROWS = 16_384
LONGEST_LINE = 4 << 20
MOST_KEYS = 2000


def read_jsonlines(chunks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    """Batches of dictionary-encoded text: numbers as written, true and false, null.

    The keys of the first block are the columns; a key that comes only later is a problem.
    Raises `TableError`, at the end where single rows are wrong.
    """
    rows = _Rows()
    for batch in _blocks(io.BufferedReader(ChunkStream(chunks)), rows):
        if not rows.problems:
            yield batch
    if rows.problems:
        raise TableError(rows.problems)


class _Rows:
    """Lines parsed into dicts of cell texts, and the problems of lines that cannot be parsed."""

    def __init__(self) -> None:
        self.problems: list[RowProblem] = []
        self.names: tuple[str, ...] = ()
        self.row = 0
        self.record = 0

    def parse(self, line: bytes) -> dict[str, str | None] | None:
        self.record += 1
        if not line.strip():
            return None
        self.row += 1
        try:
            parsed = strict_json.loads(
                line, parse_int=str, parse_float=str, parse_constant=_no_constant
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
        cells = {key: _text(value) for key, value in parsed.items()}
        if b"\\u" in line and not all(map(_is_whole, (*cells, *cells.values()))):
            self._wrong("a text contains half of a surrogate pair", "write whole characters")
            return None
        if self.names and not cells.keys() <= set(self.names):
            late = sorted(cells.keys() - set(self.names))[0]
            self._wrong("this key is missing in the first row", "add it there, with null", late)
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


def _blocks(stream: io.BufferedReader, rows: _Rows) -> Iterator[pa.RecordBatch]:
    block: list[dict[str, str | None]] = []
    while line := stream.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise refuse(f"line {rows.record + 1} is longer than {LONGEST_LINE} bytes", "split it")
        cells = rows.parse(line)
        block += [] if cells is None else [cells]
        if len(block) == BLOCK_ROWS:
            yield _batch(block, rows)
            block = []
    if block:
        yield _batch(block, rows)


def _batch(block: list[dict[str, str | None]], rows: _Rows) -> pa.RecordBatch:
    if not rows.names:
        rows.names = tuple(dict.fromkeys(key for cells in block for key in cells))
        if not 1 <= len(rows.names) <= MOST_KEYS:
            raise refuse(f"the rows have {len(rows.names)} keys", f"write 1 to {MOST_KEYS}")
    columns = [
        pa.array([cells.get(name) for cells in block], pa.string()).dictionary_encode()
        for name in rows.names
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(rows.names))
