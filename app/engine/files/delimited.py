"""CSV and TSV, piece by piece, through Arrow's reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from app.engine.files.dialect import Dialect
from app.engine.files.records import QuoteFault, whole_records
from app.engine.rows import MOST_LISTED, RowProblem, TableError, refuse


def read_delimited(chunks: Iterator[bytes], dialect: Dialect) -> Iterator[pa.RecordBatch]:
    """Batches of dictionary-encoded text, without header. `chunks` are UTF-8 data rows alone.

    Under a header, a delimiter at the end of a row adds no cell. Without one the first row says how
    many cells there are, and all rows have as many. In a table of one column a blank line is a row
    without a value, otherwise it is none. Raises `TableError`: at the end, with every row of
    another width (pieces from the first such row on are not handed out), or at once where nothing
    more can be read.
    """
    table = _Table(dialect)
    try:
        for piece in whole_records(chunks, dialect.delimiter, dialect.quote):
            batch = table.read(piece)
            if not table.problems and batch.num_rows:
                yield batch
    except QuoteFault as fault:
        raise TableError([*table.problems, table.quote_problem(fault)]) from fault
    if table.problems:
        raise TableError(table.problems)


class _Table:
    """Reads pieces of whole records, each by itself, and keeps the problems of rows."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._width = len(dialect.names)
        # Without a header, a short first row could otherwise pass for a table of fewer columns, in
        # which the other rows end with a delimiter, and blank lines are rows.
        self._may_end_empty = dialect.header_rows > 0
        # Cells that the rows of the last piece had too many: a delimiter at the end makes one.
        self._surplus = 0
        self._rows = 0
        self.problems: list[RowProblem] = []

    def read(self, piece: bytes) -> pa.RecordBatch:
        """The rows of the table's width; the others become problems."""
        for surplus in (self._surplus, 1 - self._surplus) if self._may_end_empty else (0,):
            batch = self._uniform(piece, surplus)
            if batch is not None:
                self._surplus = surplus
                self._rows += batch.num_rows
                return batch
        return self._row_by_row(piece)

    def _uniform(self, piece: bytes, surplus: int) -> pa.RecordBatch | None:
        """All rows, if each has the table's cells and after them as many empty ones."""
        found = self._parsed(piece, self._width + surplus)
        if found is None or not all(
            pc.all(pc.equal(column, "")).as_py() for column in found.columns[self._width :]
        ):
            return None
        return _batch(found.columns[: self._width], self._dialect)

    def _parsed(self, piece: bytes, width: int) -> pa.Table | None:
        """The piece in so many columns, or None if a row has another number of cells."""
        odd: list[Any] = []

        def refused(row: Any) -> str:
            odd.append(row)
            return "error"

        places = [str(place) for place in range(width)]
        text = pa.dictionary(pa.int32(), pa.string())
        try:
            return pyarrow.csv.read_csv(
                pa.py_buffer(piece),
                # One block, so that nothing is read ahead and no row is divided.
                pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=len(piece) + 1, column_names=places
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=self._dialect.delimiter,
                    quote_char=self._dialect.quote or False,
                    double_quote=True,
                    newlines_in_values=bool(self._dialect.quote),
                    ignore_empty_lines=self._width > 1,
                    invalid_row_handler=refused,
                ),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(places, text), strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid as error:
            if odd:
                return None
            raise refuse(
                f"the table cannot be read: {error}", "check the file's delimiter and quotes"
            ) from error

    def _row_by_row(self, piece: bytes) -> pa.RecordBatch:
        rows = self._records(piece)
        kept = [row[: self._width] for row in rows if self._fits(row)]
        for number, row in enumerate(rows, start=self._rows + 1):
            if not self._fits(row) and len(self.problems) < MOST_LISTED:
                self.problems.append(self._width_problem(number, row))
        self._rows += len(rows)
        columns = [[row[place] for row in kept] for place in range(self._width)]
        arrays = [pa.array(column, pa.string()).dictionary_encode() for column in columns]
        return _batch(arrays, self._dialect)

    def _records(self, text: bytes) -> list[list[str]]:
        records = self._dialect.records(text.decode())
        if self._width == 1:
            return [record or [""] for record in records]
        return [record for record in records if record]

    def _fits(self, row: list[str]) -> bool:
        is_trailing = self._may_end_empty and len(row) == self._width + 1 and not row[-1]
        return len(row) == self._width or is_trailing

    def _width_problem(self, number: int, row: list[str]) -> RowProblem:
        names, actual, expected = self._dialect.names, len(row), self._width
        column = names[actual] if actual < expected else names[-1]
        if actual == 1 and self._dialect.delimiter in row[0]:
            remedy = "the whole row is in quotes: remove the outer quotes"
        elif actual < expected:
            remedy = "add the missing cells, or quote the cell that contains a line break"
        else:
            remedy = "remove the extra cells, or quote the cell that contains a delimiter"
        message = f"cells in the row: {actual}, columns of the table: {expected}"
        return RowProblem(number, self._record(number), column, message, remedy)

    def quote_problem(self, fault: QuoteFault) -> RowProblem:
        rows = self._records(fault.before)
        # A text that ends with a row is before the first cell of the next one.
        is_between = not fault.before or fault.before[-1:] in (b"\n", b"\r")
        number = self._rows + max(len(rows), 1) + (is_between and bool(rows))
        cell = 0 if is_between else len(rows[-1]) - 1
        column = self._dialect.names[min(cell, self._width - 1)]
        return RowProblem(number, self._record(number), column, fault.message, fault.remedy)

    def _record(self, row: int) -> int:
        return row + self._dialect.records_before


def _batch(columns: list[pa.Array] | list[pa.ChunkedArray], dialect: Dialect) -> pa.RecordBatch:
    arrays = [
        column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(dialect.names))
