"""Ways to read the texts of a column: a type, and how its values are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.encoding.moments import ticks
from app.engine.encoding.reading import numbers, spelled_plainly, whole_numbers
from app.engine.schema.column import TextFormat
from app.engine.schema.values import TypeName

# A column may hold some cells that are wrong: at most this share of those that are not blank.
MOST_UNREADABLE = 0.02
_FEWEST_TO_JUDGE = 50
_SHOWN = 3
# Most ways to read a column are wrong, which its first texts show.
_JUDGED = 100
# Doubles and the dictionary's decimals end here.
_LARGEST_NUMBER = 1e15

_DATES = (
    "%Y%m%d", "", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d",
    "%d %B %Y", "%d-%b-%Y", "%d. %B %Y", "%B %d, %Y", "%B %Y",
)  # fmt: skip
_DATETIMES = (
    "", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M",
    "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%m/%d/%Y %I:%M:%S %p", "%Y/%m/%d %H:%M:%S",
)  # fmt: skip
_TIMES = ("", "%H:%M", "%H:%M:%S")
# Pairs of group and decimal mark, in the order in which they are preferred.
_PLAIN_MARKS = (None, ".")
_MARKS = (
    (",", "."), ("'", "."), ("’", "."), (" ", "."), ("\u00a0", "."),
    (None, ","), (".", ","), (" ", ","), ("\u00a0", ","),
)  # fmt: skip
# A sign or unit before or after a number. Other letters make a code or a name: A12, Day 1.
_AROUND = (
    r"^(?P<before>(?:[A-Z]{0,3}\p{Sc}|(?:[A-Z]{3}|Fr|Rs|kr)[ \x{a0}])[ \x{a0}]?|)"
    r"[+-]?[0-9](?:[0-9.,'’ \x{a0}]*[0-9])?"
    r"(?P<after>[ \x{a0}]?(?:%|‰|\p{Sc}|[a-zµ°][A-Za-z²³/]{0,5})|[ \x{a0}][A-Z]{3}|)$"
)


@dataclass
class Reading:
    """A type and a spelling, how many cells it reads so far, and their range on the number line.

    `wire` are the keys of the field that declare the spelling.
    """

    kind: TypeName
    wire: Mapping[str, Any] = field(default_factory=dict)
    text_format: TextFormat = field(default_factory=TextFormat)
    low: Any = None
    high: Any = None
    decimals: int = 0
    affixes: set[str] = field(default_factory=set)
    unreadable: int = 0
    examples: list[str] = field(default_factory=list)
    is_out: bool = False

    def see(self, texts: pa.StringArray, rows: NDArray[np.int64], seen: int) -> None:
        """Distinct texts with their numbers of rows; `seen` is the number of rows so far."""
        if len(texts) >= _JUDGED and self.read(texts[:_JUDGED])[1].mean() < 0.5:
            self.is_out = True
            return
        places, readable = self.read(texts)
        if readable.any():
            low, high = places[readable].min(), places[readable].max()
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        if not readable.all():
            self.unreadable += int(rows[~readable].sum())
            room = _SHOWN - len(self.examples)
            self.examples += texts.filter(pa.array(~readable))[: max(room, 0)].to_pylist()
        # More wrong cells than a whole column of this length may have: the rest is not read.
        # One sign or unit, before or after all numbers.
        self.is_out = len(self.affixes) > 1 or self.unreadable > _most_unreadable(max(seen, 10_000))

    def accepts(self, present: int) -> bool:
        """Whether it reads the column, of which so many cells are not blank."""
        return (
            not self.is_out
            and self.low is not None
            and self.unreadable <= _most_unreadable(present)
        )

    def read(self, texts: pa.StringArray) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Places on the number line, and which texts are values; both of shape (texts,)."""
        if self.kind in ("integer", "number"):
            plain = spelled_plainly(texts, self.text_format)
            values, readable = self._numbers(plain)
            if not self.text_format.bare_number:
                readable = readable & self._has_unit(texts)
            return values, readable
        formats = self.text_format.formats
        places, readable = ticks(texts, self.kind, formats)
        if formats and formats[0] == "%Y%m%d":
            # Numbers of eight digits are dates only if all have four digits for a likely year.
            is_date = pc.match_substring_regex(texts, "^(18|19|20|21)[0-9]{6}$")
            readable = readable & np.asarray(is_date)
        return places, readable

    def holds(self, text: str) -> bool:
        """Whether a text is a value within the range seen."""
        places, readable = self.read(pa.array([text], pa.string()))
        return bool(readable[0]) and bool(self.low <= places[0] <= self.high)

    def _numbers(self, plain: pa.StringArray) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        if self.kind == "integer":
            return whole_numbers(plain)
        values, readable = numbers(plain)
        readable = readable & (np.abs(values) < _LARGEST_NUMBER)
        self._count_decimals(plain.filter(pa.array(readable)))
        return values, readable

    def _has_unit(self, texts: pa.StringArray) -> NDArray[np.bool_]:
        """Whether at most a sign or unit is around the number; which ones is remembered."""
        parts = pc.extract_regex(texts, _AROUND)
        before, after = parts.field("before"), parts.field("after")
        is_enclosed = pc.and_(pc.not_equal(before, ""), pc.not_equal(after, ""))
        fits = pc.and_(parts.is_valid(), pc.invert(is_enclosed))
        around = pc.binary_join_element_wise(before, after, "…")
        self.affixes |= set(pc.unique(around.filter(fits)).to_pylist()) - {"…"}
        return np.asarray(fits)

    def _count_decimals(self, texts: pa.StringArray) -> None:
        tails = pc.extract_regex(texts, r"\.(?P<tail>[0-9]*)").field("tail")
        longest = pc.max(pc.utf8_length(pc.utf8_rtrim(tails, "0"))).as_py()
        # An exponent hides how many digits were meant.
        if pc.any(pc.match_substring_regex(texts, "[eE]")).as_py():
            longest = 99
        self.decimals = max(self.decimals, longest or 0)


def _most_unreadable(present: int) -> int:
    return int(MOST_UNREADABLE * present) if present >= _FEWEST_TO_JUDGE else 0


def plain_numbers() -> list[Reading]:
    return [Reading("integer"), Reading("number")]


def moments() -> list[Reading]:
    """Dates, datetimes and times, in the order in which they are preferred."""
    forms = [("date", form) for form in _DATES] + [("datetime", form) for form in _DATETIMES]
    forms += [("time", form) for form in _TIMES]
    return [_moment(cast(TypeName, kind), form) for kind, form in forms]


def _moment(kind: TypeName, form: str) -> Reading:
    if not form:
        return Reading(kind)
    return Reading(kind, {"format": form}, TextFormat(formats=(form,)))


def marked_numbers(plain: Sequence[Reading]) -> list[Reading]:
    """Numbers with marks between or around their digits, by preference.

    Until a text with a mark occurs they read what `plain` numbers read, so they begin with that.
    """
    found = []
    for bare in (True, False):
        for group, decimal in _MARKS if bare else (_PLAIN_MARKS, *_MARKS):
            wire: dict[str, Any] = {} if decimal == "." else {"decimalChar": decimal}
            wire |= {} if group is None else {"groupChar": group}
            wire |= {} if bare else {"bareNumber": False}
            form = TextFormat(decimal_char=decimal, group_char=group, bare_number=bare)
            for each in plain:
                reading = replace(
                    each,
                    wire=wire,
                    text_format=form,
                    affixes=set(),
                    examples=list(each.examples),
                )
                # Points that were decimal marks so far.
                reading.is_out = each.is_out or (decimal != "." and each.decimals > 0)
                found.append(reading)
    return found
