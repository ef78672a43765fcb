"""The Table Schema (Data Package 2) of a CSV file as it is written, which is not that of the table
that was uploaded.

Missing values have one spelling, special values widen a range or join a list, columns that a method
left out are gone, and discovered values are listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from app.engine.schema import Column, EntityColumn, Schema
from app.engine.schema.column import TextFormat
from app.engine.schema.scale import Categories
from app.engine.schema.values import Value, at_tick, tick, to_wire
from app.releases.spelling import CsvStyle, spelled

# Table Schema writes a year in four digits.
_YEARS = range(1000, 10_000)


def rows_schema(schema: Schema, names: Sequence[str]) -> dict[str, Any]:
    """Of a sample of rows with these columns; `schema` has the discovered values."""
    style = CsvStyle.of(schema)
    fields = {
        field.name: field for field in schema.fields if isinstance(field, Column | EntityColumn)
    }
    return {
        "fields": [_field(fields[name], style) for name in names],
        # Each field states its own.
        "missingValues": [],
    }


def counts_schema(names: Sequence[str]) -> dict[str, Any]:
    """Of a histogram: labels of cells, and the count in the last column."""
    labels = [{"name": name, "type": "string"} for name in names[:-1]]
    count = {"name": names[-1], "type": "integer"}
    required = {"constraints": {"required": True}}
    return {"fields": [each | required for each in (*labels, count)], "missingValues": []}


def _field(field: Column | EntityColumn, style: CsvStyle) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": field.name, "type": _type(field)}
    for key in ("title", "description"):
        if getattr(field, key) is not None:
            wire[key] = getattr(field, key)
    if isinstance(field, EntityColumn):
        return wire | {"description": _made_up(field), "constraints": {"required": True}}
    wire |= _notation(field.type, field.text_format)
    if field.nullable:
        wire["missingValues"] = [style.null(field.name)]
    wire["constraints"] = {"required": not field.nullable, **_domain(field, style)}
    if field.special:
        wire["special"] = [to_wire(value) for value in field.special]
    return wire


def _type(field: Column | EntityColumn) -> str:
    if isinstance(field, EntityColumn):
        # Made-up numbers from 1 are no years.
        return "string" if field.type == "string" else "integer"
    if field.type == "year" and not all(place in _YEARS for place in map(tick, _ends(field))):
        return "integer"
    return field.type


def _made_up(field: EntityColumn) -> str:
    return f"{field.description or ''} Made-up ids of the synthetic entities.".strip()


def _notation(kind: str, text: TextFormat) -> dict[str, Any]:
    """How the CSV writes the values, where Table Schema's default is another way."""
    wire: dict[str, Any] = {}
    if kind in ("date", "datetime", "time") and text.formats:
        wire["format"] = text.formats[0]
    if kind == "number" and text.decimal_char != ".":
        wire["decimalChar"] = text.decimal_char
    if kind == "boolean":
        wire["trueValues"], wire["falseValues"] = [text.true_values[0]], [text.false_values[0]]
    return wire


def _ends(column: Column) -> list[Value]:
    """All listed values, or the ends of the range, with special and other values."""
    scale = column.scale
    declared: Sequence[Value]
    if isinstance(scale, Categories):
        declared = scale.values
    else:
        declared = (at_tick(column.type, scale.minimum), at_tick(column.type, scale.maximum))
    return [*declared, *(value for value in column.tail_values if value is not None)]


def _domain(column: Column, style: CsvStyle) -> dict[str, Any]:
    if column.type == "boolean":
        return {}
    values = _ends(column)
    if isinstance(column.scale, Categories):
        return {"enum": [_constraint(value, column, style) for value in dict.fromkeys(values)]}
    return {
        "minimum": _constraint(min(values, key=tick), column, style),
        "maximum": _constraint(max(values, key=tick), column, style),
    }


def _constraint(value: Value, column: Column, style: CsvStyle) -> Any:
    """Numbers as JSON has them; what is written in a notation, in that notation."""
    if isinstance(value, Decimal | int):
        return to_wire(value)
    return spelled(value, column.text_format, style)
