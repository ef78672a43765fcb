"""CSV and TSV, block by block, through Arrow's reader."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv

from app.engine.files.dialect import Dialect
from app.engine.files.source import ChunkStream
from app.engine.rows import MOST_LISTED, RowProblem, TableError, refuse

# Arrow reads up to 32 blocks ahead, so the memory used is 32 times this.
BLOCK_BYTES = 1 << 20


def read_delimited(chunks: Iterator[bytes], dialect: Dialect) -> Iterator[pa.RecordBatch]:
    """Batches of dictionary-encoded text, without header. `chunks` are UTF-8 data rows alone.

    Raises `TableError`: at the end, with every row of another width (blocks from the first
    such row on are not handed out), or at once where nothing more can be read.
    """
    first = next((chunk for chunk in chunks if chunk.strip(b"\r\n")), None)
    if first is None:
        return
    source = ChunkStream(_chain(first, chunks))
    ragged = _RaggedRows(dialect)
    try:
        yield from _batches(source, dialect, ragged)
    except pa.ArrowInvalid as error:
        raise source.error or _unreadable(error) from error
    if ragged.count:
        raise TableError(ragged.problems)


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _batches(
    source: ChunkStream, dialect: Dialect, ragged: _RaggedRows
) -> Iterator[pa.RecordBatch]:
    places = [str(place) for place in range(len(dialect.names))]
    text = pa.dictionary(pa.int32(), pa.string())
    reader = pyarrow.csv.open_csv(
        pa.PythonFile(io.BufferedReader(source, BLOCK_BYTES), mode="r"),
        pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, column_names=places),
        pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            double_quote=True,
            newlines_in_values=bool(dialect.quote),
            invalid_row_handler=ragged,
        ),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(places, text), strings_can_be_null=False
        ),
    )
    for batch in reader:
        if not ragged.count and batch.num_rows:
            yield pa.RecordBatch.from_arrays(batch.columns, names=list(dialect.names))


class _RaggedRows:
    """Arrow's handler of rows whose number of cells differs from that of the table."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.problems: list[RowProblem] = []
        self.count = 0

    def __call__(self, found: Any) -> str:
        self.count += 1
        if len(self.problems) < MOST_LISTED:
            self.problems.append(self._problem(found))
        return "skip"

    def _problem(self, found: Any) -> RowProblem:
        names, row = self._dialect.names, found.number
        record = None if row is None else row + self._dialect.records_before
        expected, actual = found.expected_columns, found.actual_columns
        message = f"cells in the row: {actual}, columns of the table: {expected}"
        column = names[actual] if actual < expected else names[-1]
        quote = self._dialect.quote
        opened = bool(quote) and actual == 1 and found.text.startswith(quote)
        if opened and not found.text.rstrip("\r\n").endswith(quote):
            remedy = "the row starts with a quote that is never closed: close it"
        elif opened:
            remedy = "the whole row is in quotes: remove the outer quotes"
        elif actual < expected:
            remedy = "add the missing cells, or quote the cell that contains a line break"
        else:
            remedy = "remove the extra cells, or quote the cell that contains a delimiter"
        return RowProblem(row, record, column, message, remedy)


def _unreadable(error: Exception) -> TableError:
    if "straddling" in str(error):
        return refuse(
            f"a row is longer than {BLOCK_BYTES} bytes, or a quote is never closed",
            "check the quotes, or declare `quote`",
        )
    return refuse(f"the table cannot be read: {error}", "check the file's delimiter and quotes")
