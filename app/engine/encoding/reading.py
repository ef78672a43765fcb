"""The code of each distinct cell text of a column, or the reason why it has none."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.encoding.cells import Cells, trimmed
from app.engine.encoding.moments import Years, have_zone, ticks
from app.engine.escapes import has_escapes
from app.engine.schema.column import Column, TextFormat
from app.engine.schema.scale import Categories, Linear
from app.engine.schema.values import LARGEST_INTEGER, SMALLEST_INTEGER, at_tick, tick

_WHOLE = r"^[+-]?[0-9]+(\.0*)?$"
# Shorter texts fit in 64 bits. Python refuses to read thousands of digits, so it is not asked to.
_MOST_SURE_DIGITS, _LONGEST = 19, 200
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$"
_AROUND_NUMBER = r"^[^0-9+\-.]*(?P<number>[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)[^0-9]*$"


class Reason(IntEnum):
    """Why a cell has no declared value."""

    NONE = 0
    MISSING = 1
    UNREADABLE = 2
    UNDECLARED = 3
    NOT_TEXT = 4


@dataclass(frozen=True)
class Meaning:
    """Codes and reasons of the distinct texts, null last; -1 means no code. Shape (texts + 1,)."""

    codes: NDArray[np.int64]
    reasons: NDArray[np.uint8]


@dataclass(frozen=True)
class CellReader:
    """Reads the cells of one column.

    `missing` lists its spellings of null. `decimal` is the decimal character of the file, for a
    column that declares none.
    """

    column: Column
    missing: tuple[str, ...]
    decimal: str | None = None

    def read(self, cells: Cells) -> Meaning:
        """Codes and reasons of the cells, before `undeclared` is applied.

        With `clip`, numbers and times out of range have the code of the nearer end already, and
        keep their reason.
        """
        bare = trimmed(cells.texts)
        codes, reasons = self._decoded(cells.texts, bare, cells.plain)
        not_text = has_escapes(cells.texts)
        codes[not_text], reasons[not_text] = -1, Reason.NOT_TEXT
        codes, reasons = np.append(codes, -1), np.append(reasons, np.uint8(Reason.MISSING))
        is_missing = np.append(self._is_missing(cells.texts, bare), True)
        null = self.column.null_code
        codes[is_missing] = -1 if null is None else null
        reasons[is_missing] = Reason.MISSING if null is None else Reason.NONE
        return Meaning(codes, reasons)

    def zoned(self, cells: Cells, meaning: Meaning) -> NDArray[np.bool_]:
        """Which cells are a date or time whose zone or offset was left out, shape (texts + 1,)."""
        found = np.zeros(len(cells.texts) + 1, bool)
        if self.column.type not in ("date", "datetime"):
            return found
        if cells.has_zone:
            found[:-1] = True
        elif not cells.plain and not self.column.text_format.formats:
            found[:-1] = have_zone(trimmed(cells.texts))
        return found & np.isin(meaning.reasons, (Reason.NONE, Reason.UNDECLARED))

    @cached_property
    def declared_texts(self) -> pa.StringArray:
        """The texts that a cell of the column can match."""
        if self.column.type == "boolean":
            form = self._form
            return pa.array([*form.true_values, *form.false_values], pa.string())
        return self._spelled if self.column.type == "string" else pa.array([], pa.string())

    @cached_property
    def _form(self) -> TextFormat:
        form = self.column.text_format
        if self.decimal is None or form.decimal_char != ".":
            return form
        return replace(form, decimal_char=self.decimal)

    def _is_missing(self, texts: pa.StringArray, bare: pa.StringArray) -> NDArray[np.bool_]:
        spellings = pa.array(self.missing, pa.string())
        found = pc.is_in(texts, spellings)
        return np.asarray(found if bare is texts else pc.or_(found, pc.is_in(bare, spellings)))

    def _decoded(
        self, texts: pa.StringArray, bare: pa.StringArray, plain: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        form = TextFormat() if plain else self._form
        if self.column.type == "string":
            return self._categories(texts, bare)
        if self.column.type == "boolean":
            return self._truths(bare, form)
        places, readable = self._places(bare, form)
        codes = self._listed(places)
        if isinstance(self.column.scale, Linear):
            codes = np.where(codes < 0, self._points(places, self.column.scale), codes)
        reasons = _reasons(codes)
        if self.column.undeclared == "clip":
            low = self.column.scale.minimum if isinstance(self.column.scale, Linear) else Decimal(0)
            ends = np.where(places < _place(low, places), 0, self.column.regular - 1)
            codes = np.where(codes < 0, ends, codes)
        # Last, since unreadable texts hold a placeholder that may lie within the range.
        codes[~readable], reasons[~readable] = -1, Reason.UNREADABLE
        return codes, reasons

    def _categories(
        self, texts: pa.StringArray, bare: pa.StringArray
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Categories match exactly, or without the blanks around the cell."""
        found = pc.index_in(texts, self._spelled)
        if bare is not texts:
            found = pc.coalesce(found, pc.index_in(bare, self._spelled))
        found = pc.fill_null(found, -1)
        codes = self._spelled_codes[np.asarray(found)]
        return codes, _reasons(codes)

    @cached_property
    def _spelled(self) -> pa.StringArray:
        scale = self.column.scale
        values = list(scale.values) if isinstance(scale, Categories) else []
        other = self.column.other
        return pa.array([*values, *([other] if other not in (None, *values) else [])], pa.string())

    @cached_property
    def _spelled_codes(self) -> NDArray[np.int64]:
        """Codes of `_spelled`, then -1, which index -1 (no match) reads."""
        codes = list(range(self.column.regular))
        if len(self._spelled) > len(codes) and self.column.other_code is not None:
            codes.append(self.column.other_code)
        return np.array([*codes, -1], np.int64)

    def _truths(
        self, bare: pa.StringArray, form: TextFormat
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        true = np.asarray(pc.is_in(bare, pa.array(form.true_values, pa.string())))
        false = np.asarray(pc.is_in(bare, pa.array(form.false_values, pa.string())))
        codes = np.where(true, 1, np.where(false, 0, -1)).astype(np.int64)
        return codes, np.where(codes < 0, Reason.UNREADABLE, Reason.NONE).astype(np.uint8)

    def _places(
        self, bare: pa.StringArray, form: TextFormat
    ) -> tuple[NDArray[np.int64] | NDArray[np.float64], NDArray[np.bool_]]:
        kind = self.column.type
        if kind in ("date", "datetime", "time"):
            return ticks(bare, kind, form.formats, self._years)
        digits = spelled_plainly(bare, form)
        if kind == "number":
            return numbers(digits)
        return whole_numbers(digits)

    @cached_property
    def _years(self) -> Years | None:
        """The first and the last year that a column of dates or moments declares."""
        scale, kind = self.column.scale, self.column.type
        if kind not in ("date", "datetime"):
            return None
        if isinstance(scale, Linear):
            declared = [at_tick(kind, scale.minimum), at_tick(kind, scale.maximum)]
        else:
            declared = list(scale.values)
        years = [value.year for value in declared if isinstance(value, dt.date)]
        return (min(years), max(years)) if years else None

    def _listed(self, places: NDArray[Any]) -> NDArray[np.int64]:
        """Codes of categories, special values and `other`; -1 for any other place."""
        known, codes = self._known
        if not len(known):
            return np.full(len(places), -1, np.int64)
        slots = np.minimum(np.searchsorted(known, places), len(known) - 1)
        return np.where(known[slots] == places, codes[slots], -1)

    @cached_property
    def _known(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Places in increasing order, and their codes."""
        column = self.column
        pairs = list(enumerate(column.tail_values, start=column.regular))
        if isinstance(column.scale, Categories):
            pairs += list(enumerate(column.scale.values))
        placed = sorted((tick(value), code) for code, value in pairs if value is not None)
        dtype, exact = (np.float64, float) if column.type == "number" else (np.int64, int)
        places = np.array([exact(place) for place, _ in placed], dtype)
        return places, np.array([code for _, code in placed], np.int64)

    def _points(self, places: NDArray[Any], scale: Linear) -> NDArray[np.int64]:
        """The code of the nearest point of each place; -1 outside the bounds."""
        low, high = _place(scale.minimum, places), _place(scale.maximum, places)
        inside = (places >= low) & (places <= high)
        if scale.kind == "number":
            steps = np.rint((np.clip(places, low, high) - low) / float(scale.step))
            points = np.minimum(steps.astype(np.int64), scale.regular - 1)
        else:
            points = _nearest_whole(np.clip(places, low, high), scale)
        return np.where(inside, points, -1)


def _place(end: Decimal, places: NDArray[Any]) -> int | float:
    """An end of a range to compare places with: a double for numbers, otherwise exactly."""
    return float(end) if places.dtype == np.float64 else int(end)


def _nearest_whole(places: NDArray[np.int64], scale: Linear) -> NDArray[np.int64]:
    """Codes of whole places within the bounds of a scale, exactly; a half goes to the even code.

    A range of 64-bit integers may be longer than 2^63, so distances are unsigned.
    """
    step = np.uint64(scale.step)
    distance = places.astype(np.uint64) - np.array(int(scale.minimum), np.int64).astype(np.uint64)
    codes, rest = distance // step, distance % step
    # Compared without doubling, which could leave 64 bits.
    up = (rest > step - rest) | ((rest == step - rest) & (codes % np.uint64(2) == 1))
    nearest: NDArray[np.int64] = (codes + up).astype(np.int64)
    return np.minimum(nearest, scale.regular - 1)


def _reasons(codes: NDArray[np.int64]) -> NDArray[np.uint8]:
    return np.where(codes < 0, Reason.UNDECLARED, Reason.NONE).astype(np.uint8)


def spelled_plainly(texts: pa.StringArray, form: TextFormat) -> pa.StringArray:
    """Numbers in standard spelling: no group characters, `.` for decimals, no text around them."""
    if form.group_char is not None:
        texts = _without_groups(texts, form.group_char)
    if form.decimal_char != ".":
        # A point is not a decimal character here, so it must make the text unreadable.
        texts = pc.replace_substring(texts, ".", "?")
        texts = pc.replace_substring(texts, form.decimal_char, ".")
    if not form.bare_number:
        found = pc.extract_regex(texts, _AROUND_NUMBER)
        texts = pc.coalesce(found.field("number"), texts)
    return texts


def _without_groups(texts: pa.StringArray, mark: str) -> pa.StringArray:
    """Without the marks between groups of three digits. Any other one makes a text unreadable:
    `1.5` is not 15, though `.` groups digits."""
    escaped = re.escape(mark)
    grouped = rf"(?P<whole>[0-9]{{1,3}}(?:{escaped}[0-9]{{3}})+)"
    parts = pc.extract_regex(
        texts, rf"^(?P<before>[^0-9]*){grouped}(?P<after>(?:[^0-9{escaped}].*)?)$"
    )
    digits = pc.replace_substring(parts.field("whole"), mark, "")
    plain = pc.binary_join_element_wise(parts.field("before"), digits, parts.field("after"), "")
    return pc.replace_substring(pc.if_else(pc.is_valid(parts), plain, texts), mark, "?")


def numbers(texts: pa.StringArray) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The double nearest to each text, and a mask of the texts that are numbers."""
    readable = np.asarray(pc.match_substring_regex(texts, _NUMBER))
    values = np.asarray(pc.if_else(pa.array(readable), texts, "0").cast(pa.float64()))
    return values, readable & np.isfinite(values)


def whole_numbers(texts: pa.StringArray) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Each text as a whole number (`7`, `007`, `+7`, `7.0`), and a mask of those that are one.

    A number that 64 bits cannot hold is none.
    """
    readable = np.asarray(pc.match_substring_regex(texts, _WHOLE))
    digits = pc.if_else(pa.array(readable), texts, "0")
    if pc.any(pc.match_substring_regex(digits, r"[+.]")).as_py():
        digits = pc.replace_substring_regex(digits, r"^\+|\.0*$", "")
    is_long = np.asarray(pc.greater_equal(pc.binary_length(digits), _MOST_SURE_DIGITS))
    if is_long.any():
        too_large = is_long.copy()
        too_large[is_long] = [
            not SMALLEST_INTEGER <= int(text) <= LARGEST_INTEGER if len(text) <= _LONGEST else True
            for text in digits.filter(pa.array(is_long)).to_pylist()
        ]
        readable &= ~too_large
        digits = pc.if_else(pa.array(too_large), "0", digits)
    return np.asarray(digits.cast(pa.int64())), readable
