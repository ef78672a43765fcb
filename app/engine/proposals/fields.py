"""The field that is proposed for a column, and the guesses in it, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from app.engine.proposals.evidence import MOST_CATEGORIES, WORDS, Evidence
from app.engine.proposals.readings import Reading
from app.engine.proposals.units import Ids
from app.engine.rows import quoted
from app.engine.schema.domain import wide_enough_step
from app.engine.schema.scale import MOST_CODES
from app.engine.schema.values import (
    LARGEST_INTEGER,
    SMALLEST_INTEGER,
    Value,
    at_tick,
    from_wire,
    tick,
    to_wire,
)

MOST_NUMERIC_CATEGORIES = 20
# Over a longer range nobody knows where the rows are, so that equal bins would be a guess.
WIDEST_WITH_EQUAL_BINS = 1000
# Numbers with more decimals are measurements, whose last digits mean little.
_MOST_DECIMALS = 4
_SHOWN_DIGITS = 2
_TRUTHS = ({"true", "false"}, {"True", "False"}, {"TRUE", "FALSE"})


@dataclass
class Described:
    """Keys of a proposed field, and notes on what in it is a guess."""

    wire: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def is_left_out(self) -> bool:
        limits = self.wire.get("constraints", {})
        return self.wire["type"] == "string" and "enum" not in limits and "role" not in self.wire


def describe(seen: Evidence, ids: Ids | None, *, is_unit: bool) -> Described:
    """The field for a column; `ids` if it looks like ids, `is_unit` if it is the unit's column."""
    if ids is not None:
        return _of_ids(ids, is_unit=is_unit)
    found = _of_values(seen)
    if not found.is_left_out and not found.wire.get("undeclared"):
        nulls = seen.missing.total() + (0 if _keeps_words(found) else seen.words.total())
        if not nulls:
            found.wire.setdefault("constraints", {})["required"] = True
    return found


def _of_ids(ids: Ids, *, is_unit: bool) -> Described:
    if is_unit:
        found = Described({"type": "string", "role": "entity"})
        found.notes.append(
            f"The values look like ids: {ids.distinct} in {ids.rows} rows, at most"
            f" {ids.most_rows} rows of one. If they are the ids of those who are protected, keep"
            " the proposed unit; otherwise remove `role`, and choose another unit."
        )
        return found
    kind = "repeat" if ids.repeats else "occur once each"
    return Described(
        {"type": "string"},
        [
            f"The values look like ids, which {kind}: the column is left out. If they are the ids"
            ' of those who are protected, give it "role": "entity" and name it in the unit.'
        ],
    )


def _of_values(seen: Evidence) -> Described:
    if not seen.values and not seen.words:
        return Described({"type": "string"}, ["No values were seen: the column is left out."])
    if seen.values and any(set(seen.values) <= truths for truths in _TRUTHS):
        return Described({"type": "boolean"})
    reading = seen.reading
    if reading is not None:
        return _of_reading(seen, reading)
    if len(seen.values) > MOST_CATEGORIES:
        return Described(
            {"type": "string"},
            [
                f"More than {MOST_CATEGORIES} different texts: taken for free text, and left out of"
                " every release. To use it, list its public values in `constraints/enum`, or"
                ' declare "values": "discover" with an `other`.'
            ],
        )
    return _of_categories(seen)


def _of_categories(seen: Evidence) -> Described:
    enum = sorted({*seen.values, *seen.words})
    found = Described({"type": "string", "constraints": {"enum": enum}})
    for word in seen.words:
        found.notes.append(
            f"{quoted(word)} is proposed as a category. If it means that the value is missing, move"
            " it from `enum` to `missingValues`."
        )
    if seen.is_padded:
        found.notes.append("Codes with leading zeros: 01 is not 1, so they are proposed as texts.")
    return found


def _keeps_words(found: Described) -> bool:
    return bool(set(WORDS) & set(map(str, found.wire.get("constraints", {}).get("enum", ()))))


def _of_reading(seen: Evidence, reading: Reading) -> Described:
    found = Described({"type": reading.kind, **reading.wire})
    if _is_listed(seen, reading):
        values = sorted({int(text) for text in seen.values})
        found.wire["constraints"] = {"enum": values}
    elif reading.kind != "time":
        _add_range(found, reading)
    _note_spelling(found, seen, reading)
    if reading.unreadable:
        found.wire["undeclared"] = "null"
        shown = ", ".join(quoted(text) for text in reading.examples)
        found.notes.append(
            f"{reading.unreadable} of {seen.present} cells are no {reading.kind}, such as {shown}:"
            ' "undeclared": "null" makes them missing. Correct them, or add them to'
            " `missingValues` or `special`."
        )
    return found


def _is_listed(seen: Evidence, reading: Reading) -> bool:
    """Whether whole numbers are few, and written plainly, so that they may be codes."""
    few = len(seen.values) <= MOST_NUMERIC_CATEGORIES
    plain = reading.kind == "integer" and not reading.wire and not reading.unreadable
    return few and plain and not any("." in text for text in seen.values)


def _add_range(found: Described, reading: Reading) -> None:
    low, high = _ends(reading)
    found.wire["constraints"] = {"minimum": to_wire(low), "maximum": to_wire(high)}
    length = tick(high) - tick(low)
    step = None
    if reading.kind == "number" and reading.decimals <= _MOST_DECIMALS:
        step = Decimal(1).scaleb(-reading.decimals)
        found.notes.append(
            f'Decimal places that were seen: {reading.decimals}. "step": {to_wire(step)} keeps'
            " them exactly."
        )
    if length // (step or Decimal(1)) >= MOST_CODES:
        step = wide_enough_step(reading.kind, tick(low), tick(high))
        found.notes.append(
            f'The range has more than 2^32 points: "step": {to_wire(step)} keeps the nearest of'
            " fewer. If the values are ids, leave the column out."
        )
    if step is not None:
        found.wire["step"] = to_wire(step)
    if reading.kind in ("integer", "number") and length >= WIDEST_WITH_EQUAL_BINS:
        found.wire["bins"] = "quantiles"
        found.notes.append(
            'The range is wide, so "bins": "quantiles" has each release find where the rows are. If'
            " edges are public, give them: they cost nothing."
        )


def _note_spelling(found: Described, seen: Evidence, reading: Reading) -> None:
    form = reading.wire.get("format")
    twin = {"%d/%m/%Y": "%m/%d/%Y", "%d-%m-%Y": "%m-%d-%Y"}.get(str(form))
    if twin is None and form is not None and str(form).startswith("%d/%m/%Y "):
        twin = str(form).replace("%d/%m/%Y", "%m/%d/%Y")
    if twin is not None and seen.also_reads(twin):
        found.notes.append(
            f'Day and month cannot be told apart: "format" may be {form} or {twin}. Ask who wrote'
            " the file."
        )
    if form == "%Y%m%d":
        found.notes.append("Eight digits are read as year, month and day.")
    group, decimal = reading.wire.get("groupChar"), reading.wire.get("decimalChar", ".")
    if group is not None:
        found.notes.append(f"{quoted(group)} is read as a mark between thousands.")
        if not reading.decimals and group in (",", "."):
            found.notes.append(
                f"Every {quoted(group)} stands before three digits. If it is the decimal mark,"
                " declare it as `decimalChar` in place of `groupChar`."
            )
    if decimal != ".":
        found.notes.append(f"{quoted(decimal)} is read as the decimal mark.")
    if "bareNumber" in reading.wire:
        shown = ", ".join(
            quoted(each.replace("…", " ").strip()) for each in sorted(reading.affixes)
        )
        found.notes.append(
            f"{shown} is dropped, and the number beside it kept as it stands: 95 % is 95, not 0.95."
        )


def _ends(reading: Reading) -> tuple[Value, Value]:
    """Bounds rounded outwards: to two digits, or to whole years."""
    ends = (reading.low, reading.high)
    if reading.kind == "integer":
        low, high = (Decimal(int(place)) for place in ends)
        low, high = _outwards(low, ROUND_FLOOR), _outwards(high, ROUND_CEILING)
        return max(int(low), SMALLEST_INTEGER), min(int(high), LARGEST_INTEGER)
    low, high = (Decimal(repr(float(place))) for place in ends)
    if reading.kind == "number":
        low, high = _outwards(low, ROUND_FLOOR), _outwards(high, ROUND_CEILING)
        return at_tick(reading.kind, low), at_tick(reading.kind, high)
    first, last = (str(to_wire(at_tick(reading.kind, place)))[:4] for place in (low, high))
    end = "T23:59:59" if reading.kind == "datetime" else ""
    return from_wire(reading.kind, f"{first}-01-01"), from_wire(reading.kind, f"{last}-12-31{end}")


def _outwards(place: Decimal, rounding: str) -> Decimal:
    """Rounded away from the data to two significant digits."""
    if not place:
        return Decimal(0)
    unit = Decimal(10) ** (place.adjusted() - _SHOWN_DIGITS + 1)
    return (place / unit).to_integral_value(rounding) * unit


def data_like(
    names: Sequence[str], columns: Sequence[Evidence], fields: Sequence[Described]
) -> bool:
    """Whether the first row looks like data: its cells are values of their own columns."""
    judged = found = 0
    for name, seen, described in zip(names, columns, fields, strict=True):
        if described.is_left_out or "role" in described.wire:
            continue
        judged += 1
        found += _is_value(name.strip(), seen)
    return found > 0 and 2 * found >= judged


def _is_value(name: str, seen: Evidence) -> bool:
    reading = seen.reading
    return name in seen.values if reading is None else reading.holds(name)
