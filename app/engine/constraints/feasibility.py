"""Whether any row can meet all rules at once, decided from the dictionary alone.

The answer is exact where the columns that rules join have few combinations. Of larger ones a
contradiction is found only where bounds show it: the range of each number is narrowed by every
sum, inequality and order that it is in, until nothing changes or nothing is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.constraints.points import Points
from app.engine.constraints.repair import Component, components, every_row
from app.engine.schema import Column, Schema
from app.engine.schema.constraints import AtLeast, Constraint, Order, Sum
from app.engine.schema.problems import ProblemLog

# Combinations times rules that are checked one by one.
_MOST_CHECKED = 2**22
# Bounds may approach each other for ever in smaller and smaller steps; after this many rounds
# nothing is concluded.
_ROUNDS = 100


def check_feasible(schema: Schema) -> None:
    """Raises `SchemaError`, at the first rule that leaves no row with those before it."""
    log = ProblemLog()
    for component in components(schema, {column.name for column in schema.columns}):
        number = _first_unmet(schema, component)
        if number is not None:
            log.add(
                "no row can meet this constraint together with those before it",
                "correct it, or widen the columns that it names",
                *("constraints", number),
            )
    log.raise_if_any()


def _first_unmet(schema: Schema, component: Component) -> int | None:
    columns = [schema.column(name) for name in component.columns]
    if math.prod(column.codes for column in columns) * len(component.rules) <= _MOST_CHECKED:
        return _exhausted(columns, component)
    return _out_of_bounds(component)


def _exhausted(columns: list[Column], component: Component) -> int | None:
    rows = every_row(columns)
    for number, rule in component.rules.items():
        kept = ~rule.violations(rows)
        rows = {name: own[kept] for name, own in rows.items()}
        if not kept.any():
            return number
    return None


@dataclass
class _Bounds:
    """The range that each required number still has; others may be null, which breaks nothing."""

    low: dict[str, float]
    high: dict[str, float]

    def narrow(self, column: Column, low: float, high: float) -> bool:
        """Whether a value is left."""
        name = column.name
        lost = 1e-9 * max(1.0, abs(self.low[name]), abs(self.high[name]))
        if low > self.low[name] + lost:
            self.low[name] = low
        if high < self.high[name] - lost:
            self.high[name] = high
        return self.low[name] <= self.high[name] + lost


def _out_of_bounds(component: Component) -> int | None:
    """The first rule that leaves an empty range with those before it, None if none does."""
    linear = [
        (number, rule)
        for number, rule in component.rules.items()
        if _numbers(rule) and not any(column.nullable for column in _numbers(rule))
    ]
    if _bounded([rule for _, rule in linear]):
        return None
    # Adding rules only narrows bounds further, so bisection finds the first that is too many.
    few, enough = 0, len(linear)
    while few + 1 < enough:
        middle = (few + enough) // 2
        if _bounded([rule for _, rule in linear[:middle]]):
            few = middle
        else:
            enough = middle
    return linear[enough - 1][0]


def _bounded(rules: Sequence[Constraint]) -> bool:
    """Whether narrowing by all rules in turn leaves every column a value."""
    bounds = _Bounds({}, {})
    for rule in rules:
        for column in _numbers(rule):
            bounds.low[column.name], bounds.high[column.name] = _span(column)
    for _ in range(_ROUNDS):
        before = (dict(bounds.low), dict(bounds.high))
        if not all(_narrowed(rule, bounds) for rule in rules):
            return False
        if before == (bounds.low, bounds.high):
            break
    return True


def _numbers(rule: Constraint) -> tuple[Column, ...]:
    match rule:
        case Sum():
            return (rule.total, *rule.parts)
        case AtLeast():
            return (rule.column, *rule.sum_of)
        case Order():
            return rule.ordered
    return ()


def _span(column: Column) -> tuple[float, float]:
    """The lowest and the highest value, special ones and `other` among them."""
    codes = np.arange(column.regular, column.codes)
    places, null = column.places(codes)
    found = [*Points(column).ends, *places[~null].tolist()]
    return float(min(found)), float(max(found))


def _narrowed(rule: Constraint, bounds: _Bounds) -> bool:
    match rule:
        case Sum():
            most = _at_least(rule.total, rule.parts, -rule.allowed, bounds)
            return most and _at_most(rule.total, rule.parts, rule.allowed, bounds)
        case AtLeast():
            return _at_least(rule.column, rule.sum_of, rule.least, bounds)
        case Order():
            pairs = zip(rule.ordered, rule.ordered[1:], strict=False)
            return all(_ordered(rule, left, right, bounds) for left, right in pairs)
    return True


def _ordered(rule: Order, left: Column, right: Column, bounds: _Bounds) -> bool:
    """Narrow by `left <= right`; with `strict`, whether some values rise as well."""
    lowest = np.stack(rule.span(left, np.array([bounds.low[left.name]])))
    highest = np.stack(rule.span(right, np.array([bounds.high[right.name]])))
    is_left = bounds.narrow(right, float(rule.place(right, lowest[0])[0]), math.inf)
    is_left &= bounds.narrow(left, -math.inf, float(rule.place(left, highest[1])[0]))
    return is_left and not (rule.strict and rule.falls(lowest, highest).any())


def _at_least(column: Column, parts: tuple[Column, ...], least: float, bounds: _Bounds) -> bool:
    """Narrow by `column >= sum(parts) + least`."""
    sum_low = sum(bounds.low[part.name] for part in parts)
    if not bounds.narrow(column, sum_low + least, math.inf):
        return False
    room = bounds.high[column.name] - least
    return all(
        bounds.narrow(part, -math.inf, room - (sum_low - bounds.low[part.name])) for part in parts
    )


def _at_most(column: Column, parts: tuple[Column, ...], most: float, bounds: _Bounds) -> bool:
    """Narrow by `column <= sum(parts) + most`."""
    sum_high = sum(bounds.high[part.name] for part in parts)
    if not bounds.narrow(column, -math.inf, sum_high + most):
        return False
    need = bounds.low[column.name] - most
    return all(
        bounds.narrow(part, need - (sum_high - bounds.high[part.name]), math.inf) for part in parts
    )
