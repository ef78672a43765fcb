"""Tables as text: CSV in the notation of a dictionary, and JSON Lines with JSON's types.

Arrow builds the text column by column; Python formats each distinct value once.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from app.engine.schema import Column, EntityColumn, Schema
from app.engine.schema.column import TextFormat

# The characters after which spreadsheets run a cell as a formula (OWASP, CSV injection).
_RUN_BY_SPREADSHEETS = ("=", "+", "-", "@", "\t", "\r")
_TO_QUOTE = (",", '"', "\n", "\r")


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """How the cells of each column are written; columns without a format are written plainly.

    `escape_formulas` puts a `'` before text that a spreadsheet would run as a formula.
    """

    formats: Mapping[str, TextFormat]
    missing: tuple[str, ...] = ("",)
    escape_formulas: bool = False

    @classmethod
    def of(cls, schema: Schema, *, escape_formulas: bool = False) -> CsvStyle:
        """The spelling of a dictionary, so that it can read back what is written."""
        fields = [field for field in schema.fields if isinstance(field, Column | EntityColumn)]
        return cls(
            {field.name: field.text_format for field in fields},
            schema.missing_values,
            escape_formulas,
        )

    def null(self, name: str) -> str:
        own = self.formats[name].missing if name in self.formats else None
        spellings = self.missing if own is None else own
        return spellings[0] if spellings else ""

    def harmless(self, text: str) -> str:
        runs = self.escape_formulas and text.startswith(_RUN_BY_SPREADSHEETS)
        return f"'{text}" if runs else text


def csv_header(names: list[str], style: CsvStyle) -> bytes:
    return (",".join(_quoted(style.harmless(name)) for name in names) + "\n").encode()


def csv_lines(table: pa.Table, style: CsvStyle) -> bytes:
    """All rows of a table, a line each."""
    if not table.num_rows:
        return b""
    cells = [
        _csv_cells(table.column(name).combine_chunks(), name, style) for name in table.column_names
    ]
    if len(cells) == 1:
        # A reader would skip a blank line: a lone empty cell is written in quotes.
        cells = [pc.if_else(pc.equal(cells[0], ""), '""', cells[0])]
    return _joined(pc.binary_join_element_wise(*cells, ","))


def json_lines(table: pa.Table, formats: Mapping[str, TextFormat]) -> bytes:
    """All rows of a table, an object a line: JSON's types, dates in the format of the column."""
    if not table.num_rows:
        return b""
    pieces: list[Any] = []
    for place, name in enumerate(table.column_names):
        pieces.append(("{" if place == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":")
        form = formats.get(name, TextFormat())
        pieces.append(_json_cells(table.column(name).combine_chunks(), form))
    return _joined(pc.binary_join_element_wise(*pieces, "}", ""))


def _joined(lines: pa.Array) -> bytes:
    # Large offsets: the text of one group may pass 2 GiB.
    text = pa.LargeListArray.from_arrays(pa.array([0, len(lines)], pa.int64()), lines)
    joined: bytes = pc.binary_join(text, "\n")[0].as_buffer().to_pybytes()
    return joined + b"\n"


def _csv_cells(array: pa.Array, name: str, style: CsvStyle) -> pa.Array:
    form = style.formats.get(name, TextFormat())
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        cells = pc.cast(array, pa.string())
        if form.decimal_char != "." and pa.types.is_floating(array.type):
            cells = pc.replace_substring(cells, ".", form.decimal_char)
            cells = _each(cells, _quoted)
    else:
        cells = _each(array, lambda value: _quoted(spelled(value, form, style)))
    return pc.fill_null(cells, _quoted(style.null(name)))


def spelled(value: Any, form: TextFormat, style: CsvStyle) -> str:
    """The text of a boolean, text, date or time."""
    if isinstance(value, bool):
        return style.harmless((form.true_values if value else form.false_values)[0])
    if isinstance(value, str):
        return style.harmless(value)
    return _moment(value, form)


def _moment(value: dt.date | dt.time, form: TextFormat) -> str:
    if form.formats:
        return value.strftime(form.formats[0])
    return value.isoformat()


def _json_cells(array: pa.Array, form: TextFormat) -> pa.Array:
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        cells = pc.cast(array, pa.string())
    else:
        cells = _each(array, lambda value: _json(value, form))
    return pc.fill_null(cells, "null")


def _json(value: Any, form: TextFormat) -> str:
    plain = value if isinstance(value, str | bool) else _moment(value, form)
    return json.dumps(plain, ensure_ascii=False)


def _each(array: pa.Array, spell: Callable[[Any], str]) -> pa.Array:
    """Text of each value; null stays null."""
    # Millions of rows have few distinct values; Python formats only these.
    encoded = array.dictionary_encode()
    spelled = [spell(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(spelled, pa.string()).take(encoded.indices)


def _quoted(cell: str) -> str:
    # Some readers strip spaces outside quotes.
    needs = any(mark in cell for mark in _TO_QUOTE) or cell != cell.strip(" ")
    return '"' + cell.replace('"', '""') + '"' if needs else cell


def csv_pieces(groups: Iterator[pa.Table], names: list[str], style: CsvStyle) -> Iterator[bytes]:
    yield csv_header(names, style)
    for group in groups:
        yield csv_lines(group, style)
