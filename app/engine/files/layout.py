"""The columns of a file by position, and what was detected in the file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from app.engine.escapes import likely_encoding, shown
from app.engine.rows import TableError, refuse
from app.engine.schema import Schema
from app.engine.schema.column import LeftOut
from app.engine.unicode_forms import difference


@dataclass(frozen=True)
class TableLayout:
    """Names by position; without a header they are only positions (`column 1`, ...).

    `first_record` is the record, counted from 1, that holds the first data row. `decimal` is
    the decimal mark of number fields that declare none, `encoding` that of the text. JSON has no
    positions: the order of keys is up to each row.
    """

    names: tuple[str, ...]
    has_header: bool = True
    has_positions: bool = True
    first_record: int = 1
    decimal: str | None = None
    encoding: str | None = None

    def bind(self, schema: Schema) -> dict[str, int]:
        """The position (from 0) of each field that is used, by the field's name.

        A field is found by its `column` (counted from 1), else by its name, else, in a file
        without a header, by its place in the dictionary. Raises `TableError`.
        """
        problems: list[TableError] = []
        bound: dict[str, int] = {}
        if not self.has_header:
            self._check_width(schema)
        for place, field in enumerate(schema.fields):
            if isinstance(field, LeftOut):
                continue
            try:
                bound[field.name] = self._find(field.name, field.position, place)
            except TableError as error:
                problems.append(error)
        if problems:
            raise TableError([problem for error in problems for problem in error.problems])
        return bound

    def undeclared(self, schema: Schema) -> tuple[str, ...]:
        """Columns of the file without a field in the dictionary."""
        bound = set(self.bind(schema).values())
        return tuple(name for i, name in enumerate(self.names) if i not in bound)

    def _check_width(self, schema: Schema) -> None:
        placed = all(field.position is not None for field in schema.fields)
        if not placed and len(schema.fields) != len(self.names):
            raise refuse(
                f"the file has {len(self.names)} columns, the dictionary {len(schema.fields)}",
                "without a header, describe every column in order, or give each its `column`",
            )

    def _find(self, name: str, position: int | None, place: int) -> int:
        if position is not None:
            if not self.has_positions:
                raise refuse(
                    "the rows of JSON have no positions", "name the field as its key", name
                )
            if position > len(self.names):
                raise refuse(
                    f"the file has {len(self.names)} columns, not {position}",
                    "correct the field's `column`",
                    name,
                )
            return position - 1
        if not self.has_header:
            return place
        return self._by_name(name)

    @cached_property
    def _places(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """The positions of each name in the header, exactly and without blanks around it."""
        exactly: dict[str, list[int]] = {}
        nearly: dict[str, list[int]] = {}
        for place, name in enumerate(self.names):
            exactly.setdefault(name, []).append(place)
            nearly.setdefault(name.strip(), []).append(place)
        return exactly, nearly

    def _by_name(self, name: str) -> int:
        exactly, nearly = self._places
        found = exactly.get(name) or nearly.get(name.strip(), [])
        if not found:
            raise self._missing(name)
        if len(found) > 1:
            raise refuse(
                f"the file has {len(found)} columns of this name",
                "give the field its `column`, counted from 1",
                name,
            )
        return found[0]

    def _missing(self, name: str) -> TableError:
        message = "the file has no column of this name"
        forms = (difference(each, [name]) for each in self.names)
        form = next(filter(None, forms), None)
        if form is None:
            return refuse(message, self._remedy(name), name)
        remedy = "write the name in the dictionary as the file does, or change it in the file"
        return refuse(f"{message}: {form}", remedy, name)

    def _remedy(self, name: str) -> str:
        odd = [each for each in self.names if shown(each) != each]
        for each in odd:
            likely = likely_encoding(each, [name])
            if likely is not None and likely[1].strip() == name.strip():
                return f'declare the file\'s "encoding": in {likely[0]} the header has this name'
        if odd:
            return f"declare the file's `encoding`: its header is not {self.encoding} text"
        if len(self.names) == 1:
            return "correct the name, or the file's `delimiter`: the header was read as one column"
        return "correct the name, or give the field its `column`, counted from 1"


@dataclass(frozen=True, slots=True)
class FileReport:
    """What the custodian learns about a file; `rows` counts what has been read so far."""

    format: str
    compression: str | None = None
    encoding: str | None = None
    byte_order_mark: bool = False
    delimiter: str | None = None
    quote: str | None = None
    newline: str | None = None
    header_rows: int = 0
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rows: int = 0
