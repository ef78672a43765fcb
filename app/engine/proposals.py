"""A dictionary proposed from a file: private until its custodian confirms each column.

Everything in it comes from the private data, so none of it is public. Each field is marked
`"proposed": true`, which `Schema.parse` refuses. The custodian checks the field against what is
publicly known, corrects it, and removes the mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.engine.encoding.cells import cells_of
from app.engine.encoding.moments import ticks
from app.engine.encoding.reading import numbers, whole_numbers
from app.engine.schema.scale import DEFAULT_BINS
from app.engine.schema.values import TypeName, Value, at_tick, from_wire, tick, to_wire

# With more distinct texts than this, a column is taken for free text.
MOST_CATEGORIES = 200
MOST_NUMERIC_CATEGORIES = 20
MOST_CELLS_PROPOSED = 1000
_SHOWN_DIGITS = 2
_MISSING = ("", "NA", "N/A", "n/a", "NULL", "null", "None", "NaN", "nan", "?", "-")
_TRUTHS = ({"true", "false"}, {"True", "False"}, {"TRUE", "FALSE"})
_FORMATS: tuple[tuple[TypeName, str], ...] = (
    ("date", ""),
    ("date", "%d/%m/%Y"),
    ("date", "%m/%d/%Y"),
    ("date", "%d.%m.%Y"),
    ("date", "%Y%m%d"),
    ("datetime", ""),
    ("datetime", "%d/%m/%Y %H:%M:%S"),
    ("datetime", "%m/%d/%Y %H:%M:%S"),
    ("time", ""),
    ("time", "%H:%M"),
    ("time", "%H:%M:%S"),
)


def propose(blocks: Iterable[pa.RecordBatch], missing: Sequence[str] = ()) -> dict[str, Any]:
    """The wire form of a proposed schema, each field marked `proposed`.

    Ranges are rounded outwards to two digits or whole years. A column of more than 200 texts is
    proposed as free text, which is left out. `missing` lists the spellings of null, in place of
    common ones. Reads all blocks in bounded memory.
    """
    spellings = ("", *missing) if missing else _MISSING
    guesses: list[_Guess] = []
    names: list[str] = []
    for block in blocks:
        if not guesses:
            names = list(block.schema.names)
            guesses = [_Guess(spellings) for _ in names]
        for place, guess in enumerate(guesses):
            guess.see(cells_of(block.column(place), names[place]).texts)
    found = sorted(set[str]().union({"", *missing}, *(guess.missing for guess in guesses)))
    fields = [_field(names, place, guess.describe()) for place, guess in enumerate(guesses)]
    return {"fields": fields, "missingValues": found}


def _field(names: list[str], place: int, described: dict[str, Any]) -> dict[str, Any]:
    name = names[place].strip()
    addressed = (
        {"name": name}
        if name and names.count(names[place]) == 1
        else {
            "name": f"{name or 'column'} ({place + 1})",
            "column": place + 1,
        }
    )
    return {**addressed, **described, "proposed": True}


@dataclass
class _Range:
    """A type and format that fit every text so far, and the range of the values."""

    kind: TypeName
    form: str = ""
    low: float = float("inf")
    high: float = float("-inf")

    def fits(self, texts: pa.StringArray) -> bool:
        places, readable = self._read(texts)
        if not readable.all():
            return False
        self.low, self.high = min(self.low, places.min()), max(self.high, places.max())
        return True

    def _read(self, texts: pa.StringArray) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        if self.kind == "integer":
            return whole_numbers(texts)
        if self.kind == "number":
            return numbers(texts)
        return ticks(texts, self.kind, [self.form] if self.form else [])

    def describe(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"type": self.kind}
        if self.form:
            wire["format"] = self.form
        if self.kind == "time":
            return wire
        low, high = self._ends()
        ends = {"minimum": to_wire(low), "maximum": to_wire(high)}
        if self.kind == "integer" and tick(high) - tick(low) >= MOST_CELLS_PROPOSED:
            wire["bins"] = DEFAULT_BINS
        return wire | {"constraints": ends}

    def _ends(self) -> tuple[Value, Value]:
        """Bounds rounded outwards: to two digits, or to whole years."""
        low, high = (Decimal(repr(float(place))) for place in (self.low, self.high))
        if self.kind in ("integer", "number"):
            low, high = _outwards(low, ROUND_FLOOR), _outwards(high, ROUND_CEILING)
            return at_tick(self.kind, low), at_tick(self.kind, high)
        first, last = (str(to_wire(at_tick(self.kind, place)))[:4] for place in (low, high))
        return from_wire(self.kind, f"{first}-01-01"), from_wire(self.kind, f"{last}-12-31")


def _outwards(place: Decimal, rounding: str) -> Decimal:
    """Rounded away from the data to two significant digits."""
    if not place:
        return Decimal(0)
    unit = Decimal(10) ** (place.adjusted() - _SHOWN_DIGITS + 1)
    return (place / unit).to_integral_value(rounding) * unit


def _all_readings() -> list[_Range]:
    return [_Range("integer"), _Range("number"), *(_Range(kind, form) for kind, form in _FORMATS)]


@dataclass
class _Guess:
    """The types that fit all texts of one column so far."""

    spellings: Sequence[str]
    readings: list[_Range] = field(default_factory=_all_readings)
    values: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)

    def see(self, texts: pa.StringArray) -> None:
        trimmed = pc.unique(pc.utf8_trim_whitespace(texts))
        is_missing = pc.is_in(trimmed, pa.array(self.spellings, pa.string()))
        self.missing |= set(trimmed.filter(is_missing).to_pylist())
        present = trimmed.filter(pc.invert(is_missing))
        if not len(present):
            return
        if len(self.values) <= MOST_CATEGORIES:
            self.values |= set(present[: MOST_CATEGORIES + 1].to_pylist())
        self.readings = [reading for reading in self.readings if reading.fits(present)]

    def describe(self) -> dict[str, Any]:
        if not self.values:
            return {"type": "string"}
        if any(self.values <= truths for truths in _TRUTHS):
            return {"type": "boolean"}
        if self.readings:
            return self._ranged(self.readings[0])
        if len(self.values) > MOST_CATEGORIES:
            return {"type": "string"}
        return {"type": "string", "constraints": {"enum": sorted(self.values)}}

    def _ranged(self, reading: _Range) -> dict[str, Any]:
        few = len(self.values) <= MOST_NUMERIC_CATEGORIES
        if reading.kind == "integer" and few and "." not in "".join(self.values):
            values = cast(list[int], sorted({int(value) for value in self.values}))
            return {"type": "integer", "constraints": {"enum": values}}
        return reading.describe()
