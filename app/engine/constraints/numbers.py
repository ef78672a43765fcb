"""Mending sums, inequalities and orders: numbers are moved by as little as will do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.constraints.donors import Codes, Donors, Mask, Rows, subset, take
from app.engine.constraints.points import Points
from app.engine.schema.column import Column
from app.engine.schema.constraints import AtLeast, Order, Sum

Floats = NDArray[np.float64]
Rounding = Callable[[Points, Floats], tuple[Codes, Mask]]


@dataclass(frozen=True)
class SumMender:
    """The total becomes the sum of its parts; where it cannot, the parts give way."""

    rule: Sum

    @cached_property
    def _total(self) -> Points:
        return Points(self.rule.total)

    @cached_property
    def _parts(self) -> tuple[Points, ...]:
        return _points(self.rule.parts)

    def mend(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        del donors, rng
        steps = (self._set_total, self._fit_parts)
        steps[turn % 2](rows)
        steps[1 - turn % 2](rows)

    def _set_total(self, rows: Rows) -> None:
        broken = self.rule.violations(rows)
        target = _sum_of(self._parts, subset(rows, broken))
        take(rows, self.rule.total.name, broken, self._total.nearest(target))

    def _fit_parts(self, rows: Rows) -> None:
        broken = self.rule.violations(rows)
        few = subset(rows, broken)
        _fit(self._parts, few, self._total.places(few[self.rule.total.name]), _nearest)
        for part in self.rule.parts:
            take(rows, part.name, broken, few[part.name])


@dataclass(frozen=True)
class AtLeastMender:
    """The column takes a value that valid rows have beside like numbers, else the least that
    will do; where none does, or in every other turn, the numbers summed are lowered."""

    rule: AtLeast

    @cached_property
    def _column(self) -> Points:
        return Points(self.rule.column)

    @cached_property
    def _parts(self) -> tuple[Points, ...]:
        return _points(self.rule.sum_of)

    def mend(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        if turn % 2 == 0:
            self._redraw(rows, donors, rng)
            self._raise(rows)
        self._lower(rows)

    def _redraw(self, rows: Rows, donors: Donors, rng: np.random.Generator) -> None:
        name = self.rule.column.name
        drawn, found = donors.like(self.rule.sum_of, rows, rng)
        if not found.any():
            return
        offered = {**rows, name: np.where(found, donors.codes[name][drawn], rows[name])}
        good = ~self.rule.violations(offered)
        take(rows, name, good, offered[name][good])

    def _raise(self, rows: Rows) -> None:
        broken = np.flatnonzero(self.rule.violations(rows))
        least = _sum_of(self._parts, subset(rows, broken)) + self.rule.least
        codes, found = self._column.above(least)
        highest = self._column.nearest(np.full(len(codes), self._column.ends[1]))
        codes = np.where(found, codes, highest)
        take(rows, self.rule.column.name, broken, codes)

    def _lower(self, rows: Rows) -> None:
        broken = self.rule.violations(rows)
        few = subset(rows, broken)
        room = self._column.places(few[self.rule.column.name]) - self.rule.least
        _fit(self._parts, few, room, Points.below)
        for part in self.rule.sum_of:
            take(rows, part.name, broken, few[part.name])


@dataclass(frozen=True)
class OrderMender:
    """Values that stand the wrong way round are swapped, then moved as far as bounds ask."""

    rule: Order

    @cached_property
    def _points(self) -> tuple[Points, ...]:
        return _points(self.rule.ordered)

    def mend(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        del donors, rng
        names, null = self.rule.columns, self._null(rows)
        places = [
            points.places(rows[name]) for points, name in zip(self._points, names, strict=True)
        ]
        if turn == 0:
            places = _sorted(places, null)
            self._store(rows, places, null)
        upward = range(1, len(names)) if turn % 2 == 0 else range(0)
        for right in upward:
            self._push(rows, right, right - 1, null)
        for left in reversed(range(len(names) - 1)):
            self._push(rows, left, left + 1, null)
        for right in range(1, len(names)) if turn % 2 else range(0):
            self._push(rows, right, right - 1, null)

    def _null(self, rows: Rows) -> list[Mask]:
        return [column.places(rows[column.name])[1] for column in self.rule.ordered]

    def _store(self, rows: Rows, places: Sequence[Floats], null: Sequence[Mask]) -> None:
        for points, column, wanted, missing in zip(
            self._points, self.rule.ordered, places, null, strict=True
        ):
            here = np.flatnonzero(~missing)
            if here.size:
                take(rows, column.name, here, points.nearest(wanted[here]))

    def _push(self, rows: Rows, moved: int, fixed: int, null: Sequence[Mask]) -> None:
        """Move one column beyond its neighbour, as far as its values reach."""
        mine, other = self._points[moved], self._points[fixed]
        name = mine.column.name
        bound = other.places(rows[other.column.name])
        own = mine.places(rows[name])
        up = moved > fixed
        wrong = (own < bound if up else own > bound) | ((own == bound) & self.rule.strict)
        here = np.flatnonzero(wrong & ~null[moved] & ~null[fixed])
        reach = mine.above if up else mine.below
        wanted = bound[here]
        if self.rule.strict:
            wanted = wanted + (1 if up else -1) * (mine.column.step / 2 or 1e-9)
        codes, found = reach(wanted)
        take(rows, name, here[found], codes[found])


def _points(columns: Sequence[Column]) -> tuple[Points, ...]:
    return tuple(Points(column) for column in columns)


def _sum_of(parts: Sequence[Points], rows: Rows) -> Floats:
    places = [points.places(rows[points.column.name]) for points in parts]
    return np.asarray(np.sum(places, axis=0), np.float64)


def _nearest(points: Points, places: Floats) -> tuple[Codes, Mask]:
    return points.nearest(places), np.ones(len(places), bool)


def _fit(parts: Sequence[Points], rows: Rows, wanted: Floats, rounded: Rounding) -> None:
    """Bring the sum of the parts to `wanted`: each gives in proportion to its room, and what
    rounding leaves is moved from part to part."""
    places = [points.places(rows[points.column.name]) for points in parts]
    gap = wanted - np.sum(places, axis=0)
    rooms = [_room(points, own, gap < 0) for points, own in zip(parts, places, strict=True)]
    room = np.abs(np.sum(rooms, axis=0))
    share = np.minimum(np.divide(np.abs(gap), room, out=np.zeros_like(gap), where=room > 0), 1)
    for points, own, most in zip(parts, places, rooms, strict=True):
        _move(points, rows, own + share * most, (share * most) != 0, rounded)
    for points in parts:
        own = points.places(rows[points.column.name])
        gap = wanted - _sum_of(parts, rows)
        _move(points, rows, own + gap, np.abs(gap) > 1e-9 * (points.column.step or 1), rounded)


def _room(points: Points, places: Floats, falls: Mask) -> Floats:
    """How far each value can move, signed; those outside the range do not move away from it."""
    low, high = points.ends
    return np.where(falls, np.minimum(low - places, 0), np.maximum(high - places, 0))


def _move(points: Points, rows: Rows, wanted: Floats, where: Mask, rounded: Rounding) -> None:
    codes, found = rounded(points, wanted)
    moved = where & found
    take(rows, points.column.name, moved, codes[moved])


def _sorted(places: Sequence[Floats], null: Sequence[Mask]) -> list[Floats]:
    """Places in rising order where no value is missing."""
    table = np.stack(places)
    full = ~np.any(null, axis=0)
    table[:, full] = np.sort(table[:, full], axis=0)
    return list(table)
