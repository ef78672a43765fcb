"""What a file leaves open, guessed from its content: for proposals alone.

A guess depends on rows. So it is for the custodian, who declares it with the dataset, where the
file is read as declared.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from dataclasses import replace
from typing import BinaryIO

import charset_normalizer

from app.engine.files.dialect import DELIMITERS, after_lines, records_in
from app.engine.files.options import FileOptions
from app.engine.files.source import (
    SNIFFED_BYTES,
    SNIFFED_MAGIC_BYTES,
    bounded,
    chunks_of,
    compression_of,
    decompressed,
    encoding_of,
    peek,
    refuse_other_files,
    whole_text,
)
from app.engine.rows import quoted, refuse

# Encodings whose measure of disorder differs by less fit a text equally well.
_SLACK = 0.02
_SAMPLED_RECORDS = 100
_STEADY_SHARE = 0.8
_MOST_CANDIDATES = 4
_COMMON = ("cp1252", "cp1250", "cp1251", "koi8-r", "cp932", "gb18030")


def with_guesses(stream: BinaryIO, options: FileOptions) -> tuple[FileOptions, tuple[str, ...]]:
    """The options with a guess for each that the file does not say, and a note on each guess.

    Raises `TableError` if the encoding could be one of several that read the file differently.
    """
    head, chunks = peek(chunks_of(stream), SNIFFED_MAGIC_BYTES)
    if options.format == "parquet" or head[:4] == b"PAR1":
        return options, ()
    # First: an archive or a picture would be taken for text of some unknown encoding.
    refuse_other_files(head)
    compression = options.compression or compression_of(head)
    head, _ = peek(bounded(decompressed(chunks, compression), options.max_bytes), SNIFFED_BYTES)
    encoding, mark = encoding_of(head, options.encoding, has_rows_first=options.has_rows_first)
    notes: list[str] = []
    if options.encoding is None and encoding == "utf-8" and not _is_utf_8(head):
        encoding, note = _guessed_encoding(head)
        options = replace(options, encoding=encoding)
        notes.append(note)
    text = whole_text(head[mark:], encoding)
    if options.format != "jsonl" and options.delimiter is None and not options.rows_of_names:
        delimiter = _guessed_delimiter(after_lines(text, options.skip_rows), options.quote)
        options = replace(options, delimiter=delimiter)
        notes.append(f"delimiter {quoted(delimiter)}: guessed from the rows")
    return options, tuple(notes)


def _is_utf_8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _guessed_encoding(head: bytes) -> tuple[str, str]:
    """The encoding that most fits the text, and how it reads the first word that tells.

    Windows-1252, if it fits as well as any: Central European pages fit western text nearly as
    well. Beyond it a choice between different readings is the custodian's.
    """
    line = next(line for line in head.splitlines() if not line.isascii())
    found = charset_normalizer.from_bytes(head)
    best = found.best()
    alike = [match.encoding for match in found if best and match.chaos <= best.chaos + _SLACK]
    if "cp1252" in alike:
        chosen = "cp1252"
    else:
        names = dict.fromkeys([*alike[:_MOST_CANDIDATES], *_COMMON])
        readings = {name: text for name in names if (text := _read(line, name)) is not None}
        if len(set(readings.values())) != 1:
            shown = "; ".join(f"{name} reads {quoted(text)}" for name, text in readings.items())
            raise refuse(
                f"the file is not UTF-8, and its encoding is not certain. {shown}",
                "declare `encoding`",
            )
        chosen = next(iter(readings))
    name = codecs.lookup(chosen).name
    note = f"encoding {name}: guessed, it reads {quoted(_read(line, name) or '')}; check it"
    return name, note


def _read(line: bytes, encoding: str) -> str | None:
    """The first word of a line that is not ASCII; None if the line is not of this encoding."""
    try:
        words = re.split(r"[\s,;|\"]+", line.decode(encoding))
    except UnicodeDecodeError:
        return None
    return next((word for word in words if not word.isascii()), "")


def _guessed_delimiter(text: str, quote: str | None) -> str:
    """The delimiter with the most cells, among those that give most records the same number."""

    def steady(mark: str) -> int:
        sample = records_in(text, mark, '"' if quote is None else quote, _SAMPLED_RECORDS)
        widths = Counter(map(len, sample))
        if not widths:
            return 0
        width, records = widths.most_common(1)[0]
        return width if records >= _STEADY_SHARE * len(sample) else 0

    return max(DELIMITERS, key=steady)
