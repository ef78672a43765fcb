"""Dates and times from text, a column at a time and strictly: no 31 February, no locale."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.schema.values import TypeName

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MARKS = {
    "d": r"(?P<day>[0-9]{1,2})",
    "m": r"(?P<month>[0-9]{1,2})",
    "Y": r"(?P<year>[0-9]{4})",
    "y": r"(?P<short_year>[0-9]{2})",
    "b": r"(?P<month_name>[A-Za-z]{3})",
    "B": r"(?P<month_name>[A-Za-z]{3,9})",
    "H": r"(?P<hour>[0-9]{1,2})",
    "I": r"(?P<half_hour>[0-9]{1,2})",
    "p": r"(?P<half>[AaPp][Mm])",
    "M": r"(?P<minute>[0-9]{1,2})",
    "S": r"(?P<second>[0-9]{1,2})",
    "%": "%",
}
_DATE = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_CLOCK = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.[0-9]+)?)?"
_OFFSET = r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_ZONED = r"(?:[0-9]Z|:[0-9]{2}(?:\.[0-9]+)?[+-][0-9]{2}:?[0-9]{2})Z?$"
_MIDNIGHT = rf"(?:[T ]00:00(?::00(?:\.0+)?)?{_OFFSET})?Z?"
# RE2, the regular expressions of Arrow, accepts a backslash only before these characters.
_ASCII_MARK = re.compile(r"[!-/:-@\[-`{-~]")
_ISO = {
    "date": _DATE + _MIDNIGHT,
    "datetime": f"{_DATE}(?:[T ]{_CLOCK}{_OFFSET})?Z?",
    "time": _CLOCK,
}


# The first and the last year that a column declares.
Years = tuple[int, int]


def ticks(
    texts: pa.StringArray, kind: TypeName, formats: Sequence[str], years: Years | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Days (date) or seconds (datetime, time) of each text, and a mask of the readable texts.

    Both have shape (texts,). Without `formats` texts are ISO 8601, otherwise the first format
    that fits counts. Fractions of a second are dropped. A trailing Z or offset is ignored: what
    the clock showed counts. A year of two digits is the one that lies within `years`; a text for
    which two do cannot be read. Without `years` POSIX decides: 69 to 99 mean 1969 to 1999.
    """
    patterns = [_pattern(form) for form in formats] or [_ISO[kind]]
    places = np.zeros(len(texts), np.int64)
    readable = np.zeros(len(texts), bool)
    for pattern in patterns:
        found, fits = _read(texts, kind, f"^{pattern}$", years)
        fits &= ~readable
        places[fits] = found[fits]
        readable |= fits
    return places, readable


def have_zone(texts: pa.StringArray) -> NDArray[np.bool_]:
    """Which of the texts that `ticks` reads as ISO 8601 have a Z or an offset, shape (texts,)."""
    return np.asarray(pc.match_substring_regex(texts, _ZONED))


def _pattern(form: str) -> str:
    pieces = re.split(r"%(.)", form)
    literal = [_ASCII_MARK.sub(r"\\\g<0>", piece) for piece in pieces[::2]]
    marks = [_MARKS[mark] for mark in pieces[1::2]] + [""]
    return "".join(text + mark for text, mark in zip(literal, marks, strict=True))


class _Parts:
    """The named parts of each text as whole numbers, or a default if the pattern lacks the part."""

    def __init__(self, matched: pa.StructArray) -> None:
        self._matched = matched
        self._names = {field.name for field in matched.type}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def text(self, name: str) -> pa.StringArray:
        return pc.fill_null(self._matched.field(name), "")

    def number(self, name: str, default: int) -> NDArray[np.int64]:
        if name not in self._names:
            return np.full(len(self._matched), default, np.int64)
        text = self.text(name)
        digits = pc.if_else(pc.equal(text, ""), str(default), text)
        return np.asarray(digits.cast(pa.int64()))


def _read(
    texts: pa.StringArray, kind: TypeName, pattern: str, years: Years | None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    matched = pc.extract_regex(texts, pattern)
    fits = np.asarray(matched.is_valid())
    parts = _Parts(matched)
    year, is_year = _year(parts, years)
    days, is_day = _days(parts, year)
    is_day &= is_year
    seconds, is_clock = _seconds(parts)
    if kind == "date":
        return days, fits & is_day
    if kind == "time":
        return seconds, fits & is_clock
    return days * 86_400 + seconds, fits & is_day & is_clock


def _days(parts: _Parts, year: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    month, day = _month(parts), parts.number("day", 1)
    plausible = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    months = (year - 1970) * 12 + np.where(plausible, month, 1) - 1
    dates = months.astype("datetime64[M]").astype("datetime64[D]") + np.where(plausible, day, 1) - 1
    # A day beyond the end of its month, such as 31 February, falls into another month.
    same_month = dates.astype("datetime64[M]").astype(np.int64) == months
    return dates.astype(np.int64), plausible & same_month


def _year(parts: _Parts, years: Years | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The years, and where there is only one that they can be."""
    if "short_year" not in parts:
        year = parts.number("year", 1970)
        return year, np.ones(len(year), bool)
    short = parts.number("short_year", 70)
    if years is None:
        return short + np.where(short < 69, 2000, 1900), np.ones(len(short), bool)
    first, last = years
    year = first + (short - first) % 100
    return year, year + 100 > last


def _month(parts: _Parts) -> NDArray[np.int64]:
    if "month_name" not in parts:
        return parts.number("month", 1)
    names = pc.utf8_lower(pc.utf8_slice_codeunits(parts.text("month_name"), 0, 3))
    found = pc.fill_null(pc.index_in(names, pa.array(_MONTHS)), -1)
    return np.asarray(found).astype(np.int64) + 1


def _seconds(parts: _Parts) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    hour = parts.number("hour", 0)
    valid = hour <= 23
    if "half_hour" in parts:
        half_hour = parts.number("half_hour", 12)
        afternoon = np.zeros(len(hour), bool)
        if "half" in parts:
            afternoon = np.asarray(pc.equal(pc.utf8_lower(parts.text("half")), "pm"))
        hour = half_hour % 12 + 12 * afternoon
        valid = (half_hour >= 1) & (half_hour <= 12)
    minute, second = parts.number("minute", 0), parts.number("second", 0)
    return hour * 3600 + minute * 60 + second, valid & (minute <= 59) & (second <= 59)
