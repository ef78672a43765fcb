"""The dialect of a text table (delimiter, newline, header), read off its header alone.

No row has a say in it: what one row contains must not change how another is read.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from app.engine.files.options import FileOptions
from app.engine.files.records import LONGEST_PIECE_BYTES
from app.engine.rows import refuse

DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class Dialect:
    """`lines_before` physical lines and `records_before` records precede the first data row."""

    delimiter: str
    quote: str
    newline: str
    names: tuple[str, ...]
    header_rows: int
    lines_before: int
    records_before: int
    notes: tuple[str, ...]

    def records(self, text: str) -> list[list[str]]:
        """The records of a text, cell by cell; a blank line is an empty one."""
        return list(_csv_reader(text, self.delimiter, self.quote))


def dialect_of(
    text: str, options: FileOptions, names: Collection[str] = (), *, is_tsv: bool = False
) -> Dialect:
    """The dialect of a text from its beginning; raises `TableError` if it has no record.

    Where no delimiter is declared it is the one that cuts the header into most of the declared
    `names`, then into most cells. Without a header it is the comma, and the first row says how
    many columns there are: a file is accepted only if all rows agree.
    """
    text = after_lines(text, options.skip_rows)
    quote = '"' if options.quote is None else options.quote
    if options.delimiter is not None:
        delimiter = options.delimiter
    elif is_tsv:
        delimiter = "\t"
    else:
        delimiter = _delimiter(text, quote, options.rows_of_names, names)
    reader = _Records(text, delimiter, quote)
    header = [reader.next_record() for _ in range(options.rows_of_names)]
    lines = reader.lines
    width = max(map(len, header or [reader.next_record()]))
    if not width:
        raise refuse("the file is empty", "upload a file with at least one row")
    found = _names(header, width) if header else tuple(f"column {i + 1}" for i in range(width))
    return Dialect(
        delimiter=delimiter,
        quote=quote,
        newline=_newline(text),
        names=found,
        header_rows=options.rows_of_names,
        lines_before=options.skip_rows + lines,
        records_before=options.skip_rows + options.rows_of_names,
        notes=tuple(_name_notes(found)),
    )


def after_lines(text: str, lines: int) -> str:
    """The text without its first physical lines."""
    stream = io.StringIO(text, newline="")
    for _ in range(lines):
        stream.readline()
    return stream.read()


def records_in(text: str, delimiter: str, quote: str, most: int) -> list[list[str]]:
    """The first whole records of a text that are not blank. The last one may be cut off."""
    records: list[list[str]] = []
    try:
        for record in _csv_reader(text, delimiter, quote):
            records += [record] if record else []
            if len(records) > most:
                break
    except csv.Error:
        return records
    return records[:-1] if len(records) > 1 else records


class _Records:
    """Records of the first part of a text, and how many physical lines they took."""

    def __init__(self, text: str, delimiter: str, quote: str) -> None:
        self._reader = _csv_reader(text, delimiter, quote)

    @property
    def lines(self) -> int:
        return int(self._reader.line_num)

    def next_record(self) -> list[str]:
        """The next record that is not blank; an empty list at the end."""
        try:
            return next((record for record in self._reader if record), [])
        except csv.Error as error:
            raise refuse(
                f"the header cannot be read: {error}", "check the quotes, or declare `quote`"
            ) from error


def _csv_reader(text: str, delimiter: str, quote: str) -> csv.Reader:  # type: ignore[name-defined]
    csv.field_size_limit(LONGEST_PIECE_BYTES)
    stream = io.StringIO(text, newline="")
    if not quote:
        return csv.reader(stream, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(stream, delimiter=delimiter, quotechar=quote)


def _delimiter(text: str, quote: str, header_rows: int, names: Collection[str]) -> str:
    declared = {name.strip() for name in names}

    def found(mark: str) -> tuple[int, int]:
        reader = _Records(text, mark, quote)
        header = [reader.next_record() for _ in range(header_rows)]
        width = max(map(len, header), default=0)
        return len(declared.intersection(map(str.strip, _names(header, width)))), width

    # The first of equals: without a header, or with one of a single cell, the comma.
    return max(DELIMITERS, key=found) if header_rows else DELIMITERS[0]


def _newline(text: str) -> str:
    first = min((i for i in (text.find("\n"), text.find("\r")) if i >= 0), default=-1)
    if first < 0:
        return "\n"
    return "\r\n" if text[first : first + 2] == "\r\n" else text[first]


def _names(header: list[list[str]], width: int) -> tuple[str, ...]:
    """One name for each column; with several header rows, blanks in all but the last repeat

    the name to their left (as merged cells of a sheet do), and the parts are joined by " / ".
    """
    rows = [[*record, *[""] * (width - len(record))] for record in header]
    filled = [_filled(row) for row in rows[:-1]] + [[cell.strip() for cell in rows[-1]]]
    return tuple(
        " / ".join(dict.fromkeys(filter(None, parts))) for parts in zip(*filled, strict=True)
    )


def _filled(row: list[str]) -> list[str]:
    filled: list[str] = []
    for cell in row:
        filled.append(cell.strip() or (filled[-1] if filled else ""))
    return filled


def _name_notes(names: tuple[str, ...]) -> list[str]:
    notes = []
    blank = [place for place, name in enumerate(names, start=1) if not name]
    if blank:
        notes.append(f"columns without a name: {_listed(blank)}")
    for name, times in Counter(names).items():
        if name and times > 1:
            places = [place for place, other in enumerate(names, start=1) if other == name]
            notes.append(f'columns named "{name}": {_listed(places)}')
    return notes


def _listed(places: list[int]) -> str:
    shown = ", ".join(map(str, places[:20]))
    return shown if len(places) <= 20 else f"{shown}, ..."
