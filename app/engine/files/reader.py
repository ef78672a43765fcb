"""Opening a table file of any supported format."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

import pyarrow as pa

from app.engine.files.delimited import read_delimited
from app.engine.files.dialect import Dialect, after_lines, sniff_dialect
from app.engine.files.jsonlines import read_jsonlines
from app.engine.files.layout import FileReport, TableLayout
from app.engine.files.limits import expect_columns
from app.engine.files.options import Compression, FileOptions, Format
from app.engine.files.parquet import open_parquet, read_parquet
from app.engine.files.source import (
    SNIFFED_BYTES,
    bounded,
    chunks_of,
    compression_of,
    decoded,
    decompressed,
    encoding_of,
    not_text,
    peek,
    without_comments,
)
from app.engine.rows import refuse


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


def open_table(stream: BinaryIO, options: FileOptions | None = None) -> TableReader:
    """Detects the options that are None, and reads only the first part of the file.

    Parquet needs a seekable stream. Raises `TableError` for a file that cannot be a table.
    """
    options = FileOptions() if options is None else options
    head, chunks = peek(chunks_of(stream), 4)
    if options.format == "parquet" or (options.format is None and head[:4] == b"PAR1"):
        stream.seek(0)
        return _open_parquet(stream, options)
    compression = options.compression or compression_of(head)
    plain = bounded(decompressed(chunks, compression), options.max_bytes)
    return _open_text(plain, options, compression)


def _open_parquet(stream: BinaryIO, options: FileOptions) -> TableReader:
    opened = open_parquet(stream, options.max_bytes)
    names = tuple(opened.schema_arrow.names)
    report = FileReport("parquet", None, None, False, None, None, None, 0, names, (), 0)
    return TableReader(read_parquet(opened), TableLayout(names), report)


def _open_text(
    plain: Iterator[bytes], options: FileOptions, compression: Compression
) -> TableReader:
    head, chunks = peek(plain, SNIFFED_BYTES)
    if not head:
        raise refuse("the file is empty", "upload a file with at least one row")
    encoding, mark = encoding_of(head, options.encoding)
    sample = _sample(head[mark:], encoding)
    kind = options.format or _text_format(sample)
    if options.comment is not None:
        sample = b"".join(without_comments(iter([sample.encode()]), options.comment)).decode()
    dialect = None if kind == "jsonl" else sniff_dialect(sample, options, kind == "tsv")
    if dialect and len(head) >= SNIFFED_BYTES and not after_lines(sample, dialect.lines_before):
        raise refuse(f"the header is longer than {SNIFFED_BYTES} bytes", "shorten the names")
    text = decoded(chunks, encoding, mark, dialect.place if dialect else _line_place)
    report = FileReport(
        format="tsv" if kind == "csv" and dialect and dialect.delimiter == "\t" else kind,
        compression=None if compression == "none" else compression,
        encoding=encoding,
        byte_order_mark=mark > 0,
        delimiter=dialect.delimiter if dialect else None,
        quote=dialect.quote if dialect else None,
        newline=dialect.newline if dialect else None,
        header_rows=dialect.header_rows if dialect else 0,
        columns=dialect.names if dialect else (),
        notes=dialect.notes if dialect else (),
        rows=0,
    )
    return _open_delimited(text, dialect, options, report) if dialect else _open_json(text, report)


def _sample(head: bytes, encoding: str) -> str:
    try:
        return codecs.getincrementaldecoder(encoding)(errors="replace").decode(head)
    except UnicodeError as error:
        raise not_text(encoding, error) from error


def _line_place(lines: int, line: str) -> tuple[int | None, str | None]:
    """JSON Lines: each line is a row."""
    return (lines + 1 if line else None), None


def _text_format(sample: str) -> Format:
    return "jsonl" if sample.lstrip().startswith("{") else "csv"


def _open_delimited(
    text: Iterator[bytes], dialect: Dialect, options: FileOptions, report: FileReport
) -> TableReader:
    if options.comment is not None:
        text = without_comments(text, options.comment)
    rows = _without_lines(text, dialect.lines_before)
    layout = TableLayout(
        names=dialect.names,
        has_header=dialect.header_rows > 0,
        first_record=dialect.records_before + 1,
        decimal=options.decimal,
    )
    return TableReader(read_delimited(rows, dialect), layout, report)


def _open_json(text: Iterator[bytes], report: FileReport) -> TableReader:
    blocks = read_jsonlines(text)
    first = next(blocks, None)
    if first is None:
        raise refuse("the file is empty", "upload a file with at least one row")
    names = tuple(first.schema.names)
    return TableReader(_chain(first, blocks), TableLayout(names), replace(report, columns=names))


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _without_lines(text: Iterator[bytes], lines: int) -> Iterator[bytes]:
    """The text after its first physical lines, which lie within the sniffed part."""
    head, chunks = peek(text, SNIFFED_BYTES)
    # The first chunk is the head again; its rest after the header replaces it.
    next(chunks, None)
    start = head.decode(errors="ignore")  # a character cut at the end lies beyond the header
    skipped = len(start.encode()) - len(after_lines(start, lines).encode())
    yield head[skipped:]
    yield from chunks
