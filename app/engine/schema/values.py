"""Values of each type: read from JSON, written to JSON, placed on the number line.

In Python a boolean is a bool, an integer or year an int, a number a `Decimal`, a string a
str, and dates and times are naive `datetime` objects with whole seconds. The place of a
value (its tick) is the number itself, days since 1970-01-01, seconds since then, or seconds
since midnight.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

TypeName = Literal["boolean", "integer", "number", "string", "date", "datetime", "time", "year"]
Value = bool | int | Decimal | str | dt.date | dt.datetime | dt.time

TYPES: tuple[TypeName, ...] = (
    "boolean",
    "integer",
    "number",
    "string",
    "date",
    "datetime",
    "time",
    "year",
)

# A double holds every decimal of 15 digits without change.
MOST_DIGITS = 15
# Integers are kept in 64 bits, never as doubles: identifiers of 19 digits are not rounded.
SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (dictionary times carry no zone)


def from_wire(kind: TypeName, raw: Any, formats: Sequence[str] = ()) -> Value:
    """The value of a JSON scalar. Raises `ValueError`, which says what was expected.

    Dates and times are ISO 8601, or written in one of the field's own `formats`.
    """
    if kind == "boolean":
        if isinstance(raw, bool):
            return raw
        raise ValueError("expected true or false")
    if kind == "string":
        if is_text(raw):
            return str(raw)
        raise ValueError("expected a string")
    if kind in ("integer", "year"):
        return _whole(raw)
    if kind == "number":
        return _decimal(raw)
    return _moment(kind, raw, formats)


def is_text(raw: Any) -> bool:
    """Whether a JSON value is text that UTF-8 can write: JSON may hold lone surrogates."""
    return isinstance(raw, str) and not any("\ud800" <= mark <= "\udfff" for mark in raw)


def _decimal(raw: Any) -> Decimal:
    if isinstance(raw, bool) or not isinstance(raw, int | float | Decimal):
        raise ValueError("expected a number")
    try:
        value = Decimal(str(raw))
    except InvalidOperation as error:
        raise ValueError("expected a number") from error
    if not value.is_finite():
        raise ValueError("expected a finite number")
    value = value.normalize() if value else Decimal(0)
    digits, exponent = len(value.as_tuple().digits), value.adjusted()
    if digits > MOST_DIGITS or not -15 <= exponent <= 15:
        raise ValueError(f"expected a number of at most {MOST_DIGITS} digits, 1e-15 to 1e15")
    return value


def _whole(raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | float | Decimal):
        raise ValueError("expected a whole number")
    if isinstance(raw, int):
        value = raw
    elif Decimal(str(raw)).is_finite() and Decimal(str(raw)) == int(raw):
        value = int(raw)
    else:
        raise ValueError("expected a whole number")
    if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
        raise ValueError("expected a whole number of 64 bits: from -2^63 to 2^63 - 1")
    return value


def _moment(kind: TypeName, raw: Any, formats: Sequence[str]) -> Value:
    if not isinstance(raw, str):
        raise ValueError(f"expected a {kind} as text, ISO 8601")
    value = _iso(kind, raw)
    for form in formats if value is None else ():
        value = _formatted(kind, raw, form)
        if value is not None:
            break
    if value is None:
        raise ValueError(f"expected a {kind}, ISO 8601 or in the field's own format")
    return value


def _iso(kind: TypeName, raw: str) -> Value | None:
    try:
        if kind == "date":
            return dt.date.fromisoformat(raw)
        if kind == "time":
            value: dt.time | dt.datetime = dt.time.fromisoformat(raw)
        else:
            value = dt.datetime.fromisoformat(raw.removesuffix("Z"))
    except ValueError:
        return None
    return None if value.tzinfo else value.replace(microsecond=0)


def _formatted(kind: TypeName, raw: str, form: str) -> Value | None:
    try:
        value = dt.datetime.strptime(raw, form)  # noqa: DTZ007  (see _EPOCH)
    except ValueError:
        return None
    if kind == "date":
        return value.date()
    return value.time() if kind == "time" else value


def to_wire(value: Value) -> Any:
    """The JSON scalar that `from_wire` reads back as the same value."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value


def text(value: Value) -> str:
    """How a value is shown in a label."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(to_wire(value))


def tick(value: Value) -> Decimal:
    """The place of a value on the number line (see the module's docstring)."""
    if isinstance(value, dt.datetime):
        return Decimal((value - _EPOCH) // dt.timedelta(seconds=1))
    if isinstance(value, dt.date):
        return Decimal((value - _EPOCH.date()).days)
    if isinstance(value, dt.time):
        return Decimal(value.hour * 3600 + value.minute * 60 + value.second)
    if isinstance(value, str):
        raise TypeError("text has no place on the number line")
    return Decimal(value)


def at_tick(kind: TypeName, place: Decimal) -> Value:
    """The value at a place, the inverse of `tick`."""
    if kind == "number":
        return place.normalize() if place else Decimal(0)
    if kind == "date":
        return _EPOCH.date() + dt.timedelta(days=int(place))
    if kind == "datetime":
        return _EPOCH + dt.timedelta(seconds=int(place))
    if kind == "time":
        return (_EPOCH + dt.timedelta(seconds=int(place))).time()
    return int(place)
