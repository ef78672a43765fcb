"""The canonical JSON form of a dictionary, without defaults."""

from __future__ import annotations

from typing import Any

from app.engine.schema.column import Column, EntityColumn, LeftOut, QuantileBins, TextFormat
from app.engine.schema.scale import Categories
from app.engine.schema.values import Value, at_tick, to_wire


def write_field(field: Column | EntityColumn | LeftOut) -> dict[str, Any]:
    """The JSON form of a field, which `parsing` reads back as an equal field."""
    wire: dict[str, Any] = {"name": field.name, "type": field.type}
    if field.position is not None:
        wire["column"] = field.position
    if isinstance(field, LeftOut):
        return wire
    if field.title is not None:
        wire["title"] = field.title
    if field.description is not None:
        wire["description"] = field.description
    wire |= _text_format(field.text_format)
    if isinstance(field, EntityColumn):
        return wire | {"role": "entity"}
    return wire | _column(field)


def _text_format(text: TextFormat) -> dict[str, Any]:
    plain = TextFormat()
    wire: dict[str, Any] = {}
    if text.formats:
        wire["format"] = text.formats[0] if len(text.formats) == 1 else list(text.formats)
    for key, value, default in (
        ("decimalChar", text.decimal_char, plain.decimal_char),
        ("groupChar", text.group_char, plain.group_char),
        ("bareNumber", text.bare_number, plain.bare_number),
        ("trueValues", text.true_values, plain.true_values),
        ("falseValues", text.false_values, plain.false_values),
        ("missingValues", text.missing, plain.missing),
    ):
        if value != default:
            wire[key] = list(value) if isinstance(value, tuple) else value
    return wire


def _column(column: Column) -> dict[str, Any]:
    constraints: dict[str, Any] = {"required": not column.nullable}
    wire: dict[str, Any] = {"constraints": constraints}
    if isinstance(column.scale, Categories):
        if column.type != "boolean":
            constraints["enum"] = [to_wire(value) for value in column.scale.values]
    else:
        constraints["minimum"] = to_wire(at_tick(column.type, column.scale.minimum))
        constraints["maximum"] = to_wire(at_tick(column.type, column.scale.maximum))
        if column.scale.declared_step:
            wire["step"] = to_wire(column.scale.step)
    if column.discovers is not None:
        del constraints["enum"]
        wire["values"] = {"discover": column.discovers}
    if column.bins is not None:
        wire["bins"] = _bins(column.bins)
    if column.special:
        wire["special"] = [to_wire(value) for value in column.special]
    if column.other is not None:
        wire["other"] = to_wire(column.other)
    if column.undeclared != ("reject" if column.other is None else "other"):
        wire["undeclared"] = column.undeclared
    return wire


def _bins(bins: int | tuple[Value, ...] | QuantileBins) -> Any:
    if isinstance(bins, QuantileBins):
        return {"quantiles": bins.count}
    return bins if isinstance(bins, int) else [to_wire(edge) for edge in bins]
