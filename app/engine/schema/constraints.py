"""Cross-column constraints: what must hold between the columns of a row.

A missing value (null) breaks no rule, unless a condition or a lookup lists null itself. So a
rule checks only rows in which all columns that it needs have values. Rules work on blocks of
stored codes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.schema.column import Column
from app.engine.schema.scale import Linear
from app.engine.schema.values import Value, tick, to_wire

DAY_SECONDS = 86_400

Codes = Mapping[str, NDArray[Any]]
Mask = NDArray[np.bool_]


class Constraint(Protocol):
    """One declared rule over the columns of a row."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def violations(self, codes: Codes) -> Mask:
        """Which rows of a block of stored codes break the rule, shape (rows,)."""
        ...

    def to_wire(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Sum:
    """`total` is the sum of `parts`, up to `tolerance`, computed exactly.

    The default tolerance is half a step for each column whose values may have been rounded to their
    grid: one without a declared `step`, or with a larger one than another column. It is 0 for
    whole numbers, and for numbers of one declared step, such as cents.
    """

    total: Column
    parts: tuple[Column, ...]
    tolerance: float | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.total.name, *(part.name for part in self.parts))

    @property
    def allowed(self) -> float:
        """How far the total may be from the sum of its parts."""
        return float(self._allowed)

    @cached_property
    def _allowed(self) -> Decimal:
        if self.tolerance is not None:
            return Decimal(repr(self.tolerance))
        scales = [column.scale for column in (self.total, *self.parts)]
        # Whole numbers without a declared step are kept as they are.
        grids = [
            s for s in scales if isinstance(s, Linear) and (s.kind == "number" or s.declared_step)
        ]
        finest = min((grid.step for grid in grids), default=Decimal(0))
        rounded = [grid for grid in grids if not grid.declared_step or grid.step > finest]
        return sum((grid.step for grid in rounded), Decimal(0)) / 2

    @cached_property
    def _balance(self) -> _Balance:
        return _Balance(self.total, self.parts)

    def violations(self, codes: Codes) -> Mask:
        rest, null = self._balance.of(codes)
        return np.asarray(np.abs(rest) > math.floor(self._balance.whole(self._allowed))) & ~null

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"kind": "sum", "total": self.total.name}
        wire["parts"] = [part.name for part in self.parts]
        return wire if self.tolerance is None else wire | {"tolerance": self.tolerance}


@dataclass(frozen=True)
class AtLeast:
    """`column` is not below the sum of `sum_of` plus `offset`, computed exactly.

    The check does not allow for rounding to the grid. Where that matters, the offset can be
    declared lower.
    """

    column: Column
    sum_of: tuple[Column, ...]
    offset: Value = 0

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column.name, *(part.name for part in self.sum_of))

    @cached_property
    def least(self) -> float:
        """The lowest allowed difference between the column and the sum of the others."""
        return float(tick(self.offset))

    @cached_property
    def _balance(self) -> _Balance:
        return _Balance(self.column, self.sum_of)

    def violations(self, codes: Codes) -> Mask:
        rest, null = self._balance.of(codes)
        return np.asarray(rest < math.ceil(self._balance.whole(tick(self.offset)))) & ~null

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"kind": "at_least", "column": self.column.name}
        wire["sum_of"] = [part.name for part in self.sum_of]
        return wire | {"offset": to_wire(self.offset)} if self.offset else wire


@dataclass(frozen=True)
class _Balance:
    """A column less the sum of others, in whole multiples of 10^-decimals: doubles would make a
    sum of cents differ from the cents that it is."""

    column: Column
    others: tuple[Column, ...]

    @cached_property
    def _decimals(self) -> int:
        return max(column.decimals for column in (self.column, *self.others))

    @cached_property
    def _dtype(self) -> type:
        """Python's integers, which are slow, where 64 bits would not hold the sums."""
        largest = sum(column.largest_place for column in (self.column, *self.others))
        return np.int64 if self.whole(Decimal(largest)) < 2**62 else object

    def whole(self, amount: Decimal) -> Decimal:
        """An amount in the multiples that `of` counts in."""
        return amount.scaleb(self._decimals)

    def of(self, codes: Codes) -> tuple[NDArray[Any], Mask]:
        """The differences, and where a value is missing; both of shape (rows,)."""
        rest, null = self._places(self.column, codes)
        for other in self.others:
            places, missing = self._places(other, codes)
            rest, null = rest - places, null | missing
        return rest, null

    def _places(self, column: Column, codes: Codes) -> tuple[NDArray[Any], Mask]:
        own = codes[column.name]
        missing = own == column.null_code if column.nullable else np.zeros(len(own), bool)
        return column.whole_places(own, self._decimals, self._dtype), np.asarray(missing)


@dataclass(frozen=True)
class Order:
    """The values never decrease from one column to the next that has a value; with `strict` they
    increase.

    A date beside a datetime is its whole day: `date <= datetime` holds if the date is not after the
    day of the datetime, `date < datetime` if it is before that day. Two datetimes are compared to
    the second, also where a date is in the order.
    """

    ordered: tuple[Column, ...]
    strict: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.ordered)

    @cached_property
    def has_days(self) -> bool:
        """Whether dates stand beside datetimes, so that all are compared in seconds."""
        return {column.type for column in self.ordered} == {"date", "datetime"}

    def span(self, column: Column, places: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The first and the last of what each place stands for: of a date beside datetimes, the
        seconds of its day."""
        if self.has_days and column.type == "date":
            return places * DAY_SECONDS, places * DAY_SECONDS + DAY_SECONDS - 1
        return places, places

    def place(self, column: Column, point: NDArray[Any]) -> NDArray[Any]:
        """The place of a column whose span contains a point."""
        if self.has_days and column.type == "date":
            return np.asarray(np.floor_divide(point, DAY_SECONDS))
        return point

    def falls(self, before: NDArray[Any], after: NDArray[Any]) -> Mask:
        """Where spans, of shape (2, rows), stand in the wrong order."""
        broken = before[1] >= after[0] if self.strict else before[0] > after[1]
        return np.asarray(broken)

    def violations(self, codes: Codes) -> Mask:
        spans, nulls = [], []
        for column in self.ordered:
            places, null = column.places(codes[column.name])
            spans.append(np.stack(self.span(column, places)))
            nulls.append(null)
        last, missing = spans[0], nulls[0]
        broken = np.zeros(len(missing), bool)
        for own, null in zip(spans[1:], nulls[1:], strict=True):
            broken |= self.falls(last, own) & ~missing & ~null
            last, missing = np.where(null, last, own), missing & null
        return broken

    def to_wire(self) -> dict[str, Any]:
        wire = {"kind": "order", "columns": list(self.columns)}
        return wire | {"strict": True} if self.strict else wire


@dataclass(frozen=True)
class Condition:
    """A set of values of one column: listed values (None is null), or values within bounds."""

    column: Column
    listed: tuple[Value | None, ...] = ()
    minimum: Value | None = None
    maximum: Value | None = None

    @cached_property
    def _codes(self) -> NDArray[np.int64]:
        found = [self.column.code(value) for value in self.listed]
        return np.unique(np.array([code for code in found if code is not None], np.int64))

    def holds(self, codes: Codes) -> Mask:
        own = codes[self.column.name]
        if self.listed:
            return np.isin(own.astype(np.int64), self._codes)
        places, null = self.column.places(own)
        holds = ~null
        if self.minimum is not None:
            holds &= places >= self.column.place_of(self.minimum)
        if self.maximum is not None:
            holds &= places <= self.column.place_of(self.maximum)
        return holds

    def unknown(self, codes: Codes) -> Mask:
        """Where the value is missing and null is not listed, shape (rows,)."""
        null = self.column.null_code
        own = codes[self.column.name]
        if null is None or None in self.listed:
            return np.zeros(len(own), bool)
        return np.asarray(own == null)

    def to_wire(self) -> Any:
        if self.listed:
            return [None if value is None else to_wire(value) for value in self.listed]
        bounds = {"minimum": self.minimum, "maximum": self.maximum}
        return {key: to_wire(value) for key, value in bounds.items() if value is not None}


@dataclass(frozen=True)
class Forbidden:
    """No row meets all the conditions."""

    when: tuple[Condition, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(condition.column.name for condition in self.when)

    def violations(self, codes: Codes) -> Mask:
        return _all_hold(self.when, codes)

    def to_wire(self) -> dict[str, Any]:
        return {"kind": "forbidden", "when": _conditions(self.when)}


@dataclass(frozen=True)
class Implied:
    """A row that meets all conditions of `when` meets all of `then`."""

    when: tuple[Condition, ...]
    then: tuple[Condition, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(condition.column.name for condition in (*self.when, *self.then))

    def violations(self, codes: Codes) -> Mask:
        broken = np.zeros(len(codes[self.columns[0]]), bool)
        for condition in self.then:
            broken |= ~condition.holds(codes) & ~condition.unknown(codes)
        return _all_hold(self.when, codes) & broken

    def to_wire(self) -> dict[str, Any]:
        return {
            "kind": "implied",
            "when": _conditions(self.when),
            "then": _conditions(self.then),
        }


@dataclass(frozen=True)
class Lookup:
    """The columns take only the combinations of values in `rows` (None is null)."""

    looked_up: tuple[Column, ...]
    rows: tuple[tuple[Value | None, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.looked_up)

    @cached_property
    def listed(self) -> NDArray[np.int64]:
        """Codes of the combinations, shape (columns, rows)."""
        codes = [
            [_required_code(column, row[place]) for row in self.rows]
            for place, column in enumerate(self.looked_up)
        ]
        return np.array(codes, np.int64)

    @cached_property
    def _index(self) -> _Combinations:
        return _Combinations.of(self.listed)

    @cached_property
    def excused(self) -> tuple[Column, ...]:
        """Columns with null in no listed row. A null there breaks no rule."""
        return tuple(
            column
            for place, column in enumerate(self.looked_up)
            if column.nullable and all(row[place] is not None for row in self.rows)
        )

    def violations(self, codes: Codes) -> Mask:
        broken = ~self._index.contains([codes[name] for name in self.columns])
        for column in self.excused:
            broken &= np.asarray(codes[column.name] != column.null_code)
        return broken

    def to_wire(self) -> dict[str, Any]:
        rows = [[None if cell is None else to_wire(cell) for cell in row] for row in self.rows]
        return {"kind": "lookup", "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True)
class _Combinations:
    """The listed combinations as sorted prefixes, for a binary search column by column.

    A prefix of j columns is numbered by its place among the distinct prefixes of that length. So
    numbers stay below the number of rows and never overflow, however many columns there are.
    """

    values: tuple[NDArray[np.int64], ...]
    prefixes: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, listed: NDArray[np.int64]) -> _Combinations:
        """`listed` has shape (columns, combinations)."""
        numbers = np.zeros(listed.shape[1], np.int64)
        values, prefixes = [], []
        for column in listed:
            distinct = np.unique(column)
            joint = numbers * len(distinct) + np.searchsorted(distinct, column)
            known, numbers = np.unique(joint, return_inverse=True)
            values.append(distinct)
            prefixes.append(known)
        return cls(tuple(values), tuple(prefixes))

    def contains(self, columns: Sequence[NDArray[Any]]) -> Mask:
        numbers = np.zeros(len(columns[0]), np.int64)
        found = np.ones(len(columns[0]), bool)
        for column, distinct, known in zip(columns, self.values, self.prefixes, strict=True):
            slot, is_known = _find(distinct, column.astype(np.int64))
            numbers, is_prefix = _find(known, numbers * len(distinct) + slot)
            found &= is_known & is_prefix
        return found


def _find(known: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], Mask]:
    """Places in a sorted array, and a mask of the wanted values that it contains."""
    slots = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return slots, known[slots] == wanted


def _required_code(column: Column, value: Value | None) -> int:
    code = column.code(value)
    if code is None:
        raise ValueError(f"{value!r} is not a declared value of `{column.name}`")
    return code


def _all_hold(conditions: tuple[Condition, ...], codes: Codes) -> Mask:
    held = conditions[0].holds(codes)
    for condition in conditions[1:]:
        held &= condition.holds(codes)
    return held


def _conditions(conditions: tuple[Condition, ...]) -> dict[str, Any]:
    return {condition.column.name: condition.to_wire() for condition in conditions}
