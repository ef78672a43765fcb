"""Opening a table file of any supported format."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import BinaryIO

import pyarrow as pa

from app.engine.escapes import shown
from app.engine.files.delimited import read_delimited
from app.engine.files.dialect import Dialect, after_lines, dialect_of
from app.engine.files.json_rows import keys_of, read_json
from app.engine.files.layout import FileReport, TableLayout
from app.engine.files.limits import expect_columns
from app.engine.files.options import FileOptions, Format
from app.engine.files.parquet import open_parquet, read_parquet
from app.engine.files.source import (
    SNIFFED_BYTES,
    SNIFFED_MAGIC_BYTES,
    bounded,
    chunks_of,
    compression_of,
    decoded,
    decompressed,
    encoding_of,
    peek,
    refuse_other_files,
    whole_text,
    without_comments,
)
from app.engine.rows import refuse

# An object, or an array of objects; a header may well start with a bracket.
_JSON = re.compile(r"\s*(\{|\[\s*[{\]])")


class TableReader:
    """An iterator over the blocks of a table, in order and in bounded memory; it can be used once.

    Columns of text files come as dictionary-encoded text, those of Parquet typed. Raises
    `TableError` while it is read, or at the end for rows that had to be passed over.
    """

    def __init__(
        self, blocks: Iterator[pa.RecordBatch], layout: TableLayout, report: FileReport
    ) -> None:
        expect_columns(len(layout.names))
        self._blocks = blocks
        self.layout = layout
        self._report = report
        self.rows = 0

    @property
    def report(self) -> FileReport:
        """What was detected in the file, with the number of rows read so far."""
        return replace(self._report, rows=self.rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for block in self._blocks:
            self.rows += block.num_rows
            yield block


def open_table(
    stream: BinaryIO, options: FileOptions | None = None, names: Collection[str] = ()
) -> TableReader:
    """Opens a table; how a row is read depends on the options, the header and itself alone.

    `names` are the declared names of columns, by which a delimiter that is not declared is found
    in the header. The stream must be seekable. Reads only the first part of the file, but JSON
    twice, since any row may have a key that no other has. Raises `TableError` for a file that
    cannot be a table.
    """
    options = FileOptions() if options is None else options
    head, chunks = peek(chunks_of(stream), SNIFFED_MAGIC_BYTES)
    if options.format == "parquet" or (not options.is_delimited and head[:4] == b"PAR1"):
        stream.seek(0)
        return _open_parquet(stream, options)
    refuse_other_files(head)
    compression = options.compression or compression_of(head)
    plain = bounded(decompressed(chunks, compression), options.max_bytes)
    head, plain = peek(plain, SNIFFED_BYTES)
    if not head:
        raise refuse("the file is empty", "upload a file with at least one row")
    encoding, mark = encoding_of(head, options.encoding, has_rows_first=options.has_rows_first)
    sample = whole_text(head[mark:], encoding)
    kind: Format = options.format or (
        "jsonl" if not options.is_delimited and _JSON.match(sample) else "csv"
    )
    report = FileReport(
        format=kind,
        compression=None if compression == "none" else compression,
        encoding=encoding,
        byte_order_mark=mark > 0,
    )
    if kind == "jsonl":
        names = keys_of(decoded(plain, encoding, mark))
        stream.seek(0)
        again = bounded(decompressed(chunks_of(stream), compression), options.max_bytes)
        return _open_json(decoded(again, encoding, mark), names, report)
    text = decoded(plain, encoding, mark)
    if options.comment is not None:
        sample = b"".join(without_comments(iter([sample.encode()]), options.comment)).decode()
        text = without_comments(text, options.comment)
    dialect = dialect_of(sample, options, names, is_tsv=kind == "tsv")
    rows = after_lines(sample, dialect.lines_before)
    if len(head) >= SNIFFED_BYTES and not rows:
        raise refuse(f"the header is longer than {SNIFFED_BYTES} bytes", "shorten the names")
    if options.format is None and not options.is_delimited and _JSON.match(rows):
        raise refuse("the file could be CSV or JSON", "declare its `format`")
    return _open_delimited(text, dialect, options, report)


def _open_parquet(stream: BinaryIO, options: FileOptions) -> TableReader:
    opened = open_parquet(stream, options.max_bytes)
    names = tuple(opened.schema_arrow.names)
    report = FileReport("parquet", columns=names)
    return TableReader(read_parquet(opened), TableLayout(names), report)


def _open_delimited(
    text: Iterator[bytes], dialect: Dialect, options: FileOptions, report: FileReport
) -> TableReader:
    layout = TableLayout(
        names=dialect.names,
        has_header=dialect.header_rows > 0,
        first_record=dialect.records_before + 1,
        decimal=options.decimal,
        encoding=report.encoding,
    )
    report = replace(
        report,
        format="tsv" if dialect.delimiter == "\t" else report.format,
        delimiter=dialect.delimiter,
        quote=dialect.quote,
        newline=dialect.newline,
        header_rows=dialect.header_rows,
        columns=tuple(map(shown, dialect.names)),
        notes=dialect.notes,
    )
    rows = _without_lines(text, dialect.lines_before)
    return TableReader(read_delimited(rows, dialect), layout, report)


def _open_json(text: Iterator[bytes], names: tuple[str, ...], report: FileReport) -> TableReader:
    if not names:
        raise refuse("the file has no row with a key", 'write {"column": value, ...}')
    layout = TableLayout(names, has_positions=False, first_record=1, encoding=report.encoding)
    return TableReader(read_json(text, names), layout, replace(report, columns=names))


def _without_lines(text: Iterator[bytes], lines: int) -> Iterator[bytes]:
    """The text after its first physical lines, which lie within the sniffed part."""
    head, chunks = peek(text, SNIFFED_BYTES)
    # The first chunk is the head again; its rest after the header replaces it.
    next(chunks, None)
    start = head.decode(errors="ignore")  # a character cut at the end lies beyond the header
    skipped = len(start.encode()) - len(after_lines(start, lines).encode())
    yield head[skipped:]
    yield from chunks
