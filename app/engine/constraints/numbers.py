"""Repairing sums, inequalities and orders: numbers are moved as little as possible.

First they move within their cells (the dictionary's bins): a model knows nothing of their
places there, and no count changes. Where that is not enough they move across cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.constraints.donors import Codes, Donors, Mask, Rows, subset, take
from app.engine.constraints.points import Points
from app.engine.schema.column import Column
from app.engine.schema.constraints import DAY_SECONDS, AtLeast, Order, Sum

Floats = NDArray[np.float64]
Bounds = tuple[Floats, Floats]
Rounding = Callable[[Points, Floats], tuple[Codes, Mask]]


@dataclass(frozen=True)
class SumRepairer:
    """The parts move within their cells until their sum lies in the cell of the total. If they
    cannot, the total becomes the sum of its parts; if it cannot, the parts change."""

    rule: Sum

    @cached_property
    def _total(self) -> Points:
        return Points(self.rule.total)

    @cached_property
    def _parts(self) -> tuple[Points, ...]:
        return _points(self.rule.parts)

    def repair(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        del donors
        if turn == 0:
            self._stay_in_cells(rows, rng)
        steps = (self._set_total, self._fit_parts)
        steps[turn % 2](rows)
        steps[1 - turn % 2](rows)

    def _stay_in_cells(self, rows: Rows, rng: np.random.Generator) -> None:
        bounds = [_cell(points, rows[points.column.name]) for points in self._parts]
        low, high = _cell(self._total, rows[self.rule.total.name])
        low = np.maximum(low, np.sum([own for own, _ in bounds], axis=0))
        high = np.minimum(high, np.sum([own for _, own in bounds], axis=0))
        able = np.flatnonzero(low <= high)
        if not able.size:
            return
        few = subset(rows, able)
        wanted = low[able] + rng.random(able.size) * (high - low)[able]
        _fit(self._parts, few, wanted, _nearest, [(a[able], b[able]) for a, b in bounds])
        for part in self.rule.parts:
            take(rows, part.name, able, few[part.name])

    def _set_total(self, rows: Rows) -> None:
        broken = self.rule.violations(rows)
        target = _sum_of(self._parts, subset(rows, broken))
        take(rows, self.rule.total.name, broken, self._total.nearest(target))

    def _fit_parts(self, rows: Rows) -> None:
        broken = self.rule.violations(rows)
        few = subset(rows, broken)
        wanted = self._total.places(few[self.rule.total.name])
        _fit(self._parts, few, wanted, _nearest, _ranges(self._parts, wanted))
        for part in self.rule.parts:
            take(rows, part.name, broken, few[part.name])


@dataclass(frozen=True)
class AtLeastRepairer:
    """All columns take the values of a valid row in the same cells, or move within their cells.
    If they cannot, the column takes a value that valid rows have beside numbers in the same
    cells, or else the smallest that is large enough. If there is none, and in every other turn,
    the summed numbers are lowered."""

    rule: AtLeast

    @cached_property
    def _column(self) -> Points:
        return Points(self.rule.column)

    @cached_property
    def _parts(self) -> tuple[Points, ...]:
        return _points(self.rule.sum_of)

    def repair(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        if turn == 0:
            _take_from_donors((self.rule.column, *self.rule.sum_of), rows, donors, rng)
            self._stay_in_cells(rows, rng)
        if turn % 2 == 0:
            self._redraw(rows, donors, rng)
            self._raise(rows)
        self._lower(rows)

    def _stay_in_cells(self, rows: Rows, rng: np.random.Generator) -> None:
        """Moves all by the same fraction of their room in the cell: at least what is necessary,
        and a random amount more."""
        broken = np.flatnonzero(self.rule.violations(rows))
        few = subset(rows, broken)
        all_points, signs = (self._column, *self._parts), (1, *[-1] * len(self._parts))
        places = [points.places(few[points.column.name]) for points in all_points]
        rooms = []
        for points, own, sign in zip(all_points, places, signs, strict=True):
            low, high = _cell(points, few[points.column.name])
            rooms.append(high - own if sign > 0 else own - low)
        room = np.sum(rooms, axis=0)
        gap = self.rule.least - places[0] + np.sum(places[1:], axis=0)
        able = np.flatnonzero((room > 0) & (gap <= room * (1 + 1e-9)))
        least = gap[able] / room[able]
        fraction = np.minimum(least + rng.random(able.size) * (1 - least), 1)
        offered = subset(few, able)
        for points, own, most, sign in zip(all_points, places, rooms, signs, strict=True):
            rounded = Points.above if sign > 0 else Points.below
            moved = own[able] + sign * fraction * most[able]
            _move(points, offered, moved, fraction * most[able] > 0, rounded)
        good = ~self.rule.violations(offered)
        for name in self.rule.columns:
            take(rows, name, broken[able[good]], offered[name][good])

    def _redraw(self, rows: Rows, donors: Donors, rng: np.random.Generator) -> None:
        name, broken = self.rule.column.name, np.flatnonzero(self.rule.violations(rows))
        few = subset(rows, broken)
        drawn, found = donors.like(self.rule.sum_of, few, rng)
        if not found.any():
            return
        offered = {**few, name: np.where(found, donors.codes[name][drawn], few[name])}
        good = ~self.rule.violations(offered)
        take(rows, name, broken[good], offered[name][good])

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
        _fit(self._parts, few, room, Points.below, _ranges(self._parts, room))
        for part in self.rule.sum_of:
            take(rows, part.name, broken, few[part.name])


@dataclass(frozen=True)
class OrderRepairer:
    """All columns take the values of a valid row in the same cells. Otherwise values that stand
    in the wrong order are sorted, then moved as far as the bounds require. Missing values stay
    missing, and the others are compared past them."""

    rule: Order

    @cached_property
    def _points(self) -> tuple[Points, ...]:
        return _points(self.rule.ordered)

    def repair(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        if turn == 0:
            _take_from_donors(self.rule.ordered, rows, donors, rng)
            self._swap(rows)
        for up in (turn % 2 == 0, turn % 2 == 1):
            self._push(rows, up=up)

    def _swap(self, rows: Rows) -> None:
        """Sorts the values that there are where they stand in the wrong order."""
        broken = np.flatnonzero(self.rule.violations(rows))
        pairs = [points.column.places(rows[points.column.name][broken]) for points in self._points]
        missing = np.array([null for _, null in pairs])
        columns = [points.column for points in self._points]
        starts = [
            self.rule.span(column, places)[0]
            for column, (places, _) in zip(columns, pairs, strict=True)
        ]
        # Beside dates the days are sorted, and each datetime keeps its time of day.
        length = DAY_SECONDS if self.rule.has_days else 1
        clocks = np.mod(starts, length) if self.rule.has_days else np.zeros_like(starts)
        values = np.where(missing, np.inf, (starts - clocks) / length)
        # Missing ones sort last, so the values that there are stand in the first places.
        values = np.sort(values, axis=0)
        rank = np.maximum(np.cumsum(~missing, axis=0) - 1, 0)
        wanted = np.take_along_axis(values, rank, axis=0) * length + clocks
        for points, sorted_values, null in zip(self._points, wanted, missing, strict=True):
            places = self.rule.place(points.column, sorted_values[~null])
            take(rows, points.column.name, broken[~null], points.nearest(places))

    def _push(self, rows: Rows, *, up: bool) -> None:
        """Moves each column beyond the last value before it, as far as its values reach; down: from
        the last column on, below the one after it."""
        first, *others = self._points if up else self._points[::-1]
        bound, none_yet = self._spans(first, rows)
        for points in others:
            name = points.column.name
            own, null = self._spans(points, rows)
            wrong = self.rule.falls(bound, own) if up else self.rule.falls(own, bound)
            here = np.flatnonzero(wrong & ~null & ~none_yet)
            # The end of a day on the side from which the column moves away, if it must leave it.
            end = bound[int(up == self.rule.strict)][here].astype(np.float64)
            wanted = self.rule.place(points.column, end)
            if self.rule.strict:
                wanted = wanted + (1 if up else -1) * self._half_step(points.column)
            codes, found = (points.above if up else points.below)(wanted)
            take(rows, name, here[found], codes[found])
            bound = np.where(null, bound, self._spans(points, rows)[0])
            none_yet = none_yet & null

    def _spans(self, points: Points, rows: Rows) -> tuple[NDArray[Any], Mask]:
        """What each value stands for, shape (2, rows), and where it is missing."""
        places, null = points.column.places(rows[points.column.name])
        return np.stack(self.rule.span(points.column, places)), null

    def _half_step(self, column: Column) -> float:
        # Days and seconds are whole, whatever the step of their column's grid.
        return 0.5 if self.rule.has_days else column.step / 2 or 1e-9


def _points(columns: Sequence[Column]) -> tuple[Points, ...]:
    return tuple(Points(column) for column in columns)


def _take_from_donors(
    columns: Sequence[Column], rows: Rows, donors: Donors, rng: np.random.Generator
) -> None:
    """Gives rows the values of a valid row that lies in the same cells, where there is one."""
    drawn, found = donors.like(columns, rows, rng)
    for column in columns if found.any() else ():
        take(rows, column.name, found, donors.codes[column.name][drawn[found]])


def _sum_of(parts: Sequence[Points], rows: Rows) -> Floats:
    places = [points.places(rows[points.column.name]) for points in parts]
    return np.asarray(np.sum(places, axis=0), np.float64)


def _nearest(points: Points, places: Floats) -> tuple[Codes, Mask]:
    return points.nearest(places), np.ones(len(places), bool)


def _cell(points: Points, codes: Codes) -> Bounds:
    """The lowest and highest place in the cell of each code; of a tail code, its own."""
    own = points.places(codes)
    if not points.column.ranged:
        return own, own
    edges = np.asarray(points.column.grouping.edges, np.int64)
    regular = codes < points.column.regular
    inside = np.minimum(np.searchsorted(edges, codes, side="right") - 1, len(edges) - 2)
    low, high = points.places(edges[:-1])[inside], points.places(edges[1:] - 1)[inside]
    return np.where(regular, low, own), np.where(regular, high, own)


def _ranges(parts: Sequence[Points], like: Floats) -> list[Bounds]:
    """The whole range of each part, for as many rows."""
    return [(np.full(len(like), p.ends[0]), np.full(len(like), p.ends[1])) for p in parts]


def _fit(
    parts: Sequence[Points],
    rows: Rows,
    wanted: Floats,
    rounded: Rounding,
    bounds: Sequence[Bounds],
) -> None:
    """Brings the sum of the parts to `wanted`: each moves in proportion to its room within its
    bounds, then one part after another takes up what rounding to the grid left over. Values
    outside their bounds only move towards them."""
    places = [points.places(rows[points.column.name]) for points in parts]
    limits = [
        (np.minimum(low, own), np.maximum(high, own))
        for (low, high), own in zip(bounds, places, strict=True)
    ]
    gap = wanted - np.sum(places, axis=0)
    rooms = [
        np.where(gap < 0, low, high) - own for (low, high), own in zip(limits, places, strict=True)
    ]
    room = np.abs(np.sum(rooms, axis=0))
    fraction = np.minimum(np.divide(np.abs(gap), room, out=np.zeros_like(gap), where=room > 0), 1)
    for points, own, most in zip(parts, places, rooms, strict=True):
        _move(points, rows, own + fraction * most, fraction * most != 0, rounded)
    for points, (low, high) in zip(parts, limits, strict=True):
        own = points.places(rows[points.column.name])
        moved = np.clip(own + wanted - _sum_of(parts, rows), low, high)
        _move(points, rows, moved, np.abs(moved - own) > 1e-9 * (points.column.step or 1), rounded)


def _move(points: Points, rows: Rows, wanted: Floats, where: Mask, rounded: Rounding) -> None:
    codes, found = rounded(points, wanted)
    moved = where & found
    take(rows, points.column.name, moved, codes[moved])
