"""The dialect of a text table (delimiter, newline, header), detected from its first bytes."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass

from app.engine.files.options import FileOptions
from app.engine.rows import refuse

_DELIMITERS = (",", ";", "\t", "|")
# Enough records for a majority: some may be ragged or commented.
_SAMPLED_RECORDS = 100
# A missing quote would otherwise make the rest of the file one cell.
LONGEST_CELL = 4 << 20


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

    def place(self, lines: int, line: str) -> tuple[int | None, str | None]:
        """The data row and the column in which a partial line ends, after `lines` whole ones."""
        cells = next(iter(_records(line, self.delimiter, self.quote)), [])
        place, row = len(cells) - 1, lines + 1 - self.lines_before
        column = self.names[place] if 0 <= place < len(self.names) else None
        return (row if row > 0 else None), column


def sniff_dialect(text: str, options: FileOptions, is_tsv: bool) -> Dialect:
    """The dialect of a text from its beginning; raises `TableError` if it has no record."""
    text = after_lines(text, options.skip_rows)
    quote = '"' if options.quote is None else options.quote
    delimiter = options.delimiter or ("\t" if is_tsv else _delimiter(text, quote))
    reader = _Records(text, delimiter, quote)
    header = [reader.next_record() for _ in range(options.rows_of_names)]
    lines = reader.lines
    width = max((len(record) for record in header), default=0)
    sample = reader.sample()
    notes: list[str] = []
    if not header:
        width = Counter(map(len, sample)).most_common(1)[0][0] if sample else 0
    elif sample and all(len(row) == width + 1 and not row[-1] for row in sample):
        width += 1
        notes.append("every row ends with a delimiter: a last column without a name was added")
    if not width:
        raise refuse("the file is empty", "upload a file with at least one row")
    names = _names(header, width) if header else tuple(f"column {i + 1}" for i in range(width))
    return Dialect(
        delimiter=delimiter,
        quote=quote,
        newline=_newline(text),
        names=names,
        header_rows=options.rows_of_names,
        lines_before=options.skip_rows + lines,
        records_before=options.skip_rows + options.rows_of_names,
        notes=tuple(notes + _name_notes(names)),
    )


def after_lines(text: str, lines: int) -> str:
    """The text without its first physical lines."""
    stream = io.StringIO(text, newline="")
    for _ in range(lines):
        stream.readline()
    return stream.read()


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

    def sample(self) -> list[list[str]]:
        """A sample of whole data records. The last one may be cut off, so it is left out."""
        records: list[list[str]] = []
        try:
            for record in self._reader:
                records += [record] if record else []
                if len(records) > _SAMPLED_RECORDS:
                    break
        except csv.Error:
            return records
        return records[:-1] if len(records) > 1 else records


def _csv_reader(text: str, delimiter: str, quote: str) -> csv.Reader:  # type: ignore[name-defined]
    csv.field_size_limit(LONGEST_CELL)
    stream = io.StringIO(text, newline="")
    if not quote:
        return csv.reader(stream, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(stream, delimiter=delimiter, quotechar=quote)


def _records(text: str, delimiter: str, quote: str) -> list[list[str]]:
    try:
        return list(_csv_reader(text, delimiter, quote))
    except csv.Error:
        return []


def _delimiter(text: str, quote: str) -> str:
    """The delimiter with the most cells per record, among those that give most records the same."""

    def score(mark: str) -> tuple[float, int]:
        sample = _Records(text, mark, quote).sample()
        widths = Counter(len(record) for record in sample)
        if not widths:
            return (0.0, 0)
        width, records = widths.most_common(1)[0]
        return (records / len(sample) if width > 1 else 0.0, width)

    scores = {mark: score(mark) for mark in _DELIMITERS}
    steady = {mark: width for mark, (share, width) in scores.items() if share >= 0.8}
    if steady:
        return max(steady, key=lambda mark: steady[mark])
    return (
        max(_DELIMITERS, key=lambda mark: scores[mark])
        if any(share for share, _ in scores.values())
        else ","
    )


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
