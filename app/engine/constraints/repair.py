"""Making blocks of synthetic rows meet all declared rules at once.

Rules that share columns, directly or through others, are repaired together. Rows that break
a rule are repaired rule by rule, each with the smallest change for that rule, until all rules
hold. A row for which that does not succeed takes the columns of a row that meets them. All of
it is post-processing: it reads synthetic rows and the dictionary alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.constraints.combinations import ForbiddenRepairer, ImpliedRepairer, LookupRepairer
from app.engine.constraints.donors import Codes, Donors, Mask, Rows, subset, take
from app.engine.constraints.numbers import AtLeastRepairer, OrderRepairer, SumRepairer
from app.engine.schema import Column, Schema
from app.engine.schema.constraints import (
    AtLeast,
    Constraint,
    Forbidden,
    Implied,
    Lookup,
    Order,
    Sum,
)

_ORDER = (
    LookupRepairer,
    ForbiddenRepairer,
    ImpliedRepairer,
    OrderRepairer,
    AtLeastRepairer,
    SumRepairer,
)
# The repair of one rule may break another. A row that is not settled after these turns takes the
# columns of another row.
_TURNS = 8
# Combinations that are listed in full where no row at hand meets the rules.
MOST_COUNTED_OUT = 2**20
# Rows that are drawn at random and repaired where there are more combinations than that.
_SEARCHED = 2**13


class UnmetRulesError(Exception):
    """No row was found that meets these rules; `numbers` are their places in the dictionary."""

    def __init__(self, numbers: Sequence[int]) -> None:
        named = ", ".join(f"/constraints/{number}" for number in numbers)
        super().__init__(f"no row was found that meets all of {named}")
        self.numbers = tuple(numbers)


class Repairer(Protocol):
    """Repairs rows that break one rule."""

    @property
    def rule(self) -> Constraint: ...

    def repair(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        """Changes `rows`, all of which break the rule, in place. Each turn may try another way."""
        ...


@dataclass(frozen=True)
class Repaired:
    """Rows of a block after repair.

    broken: by rule number, how many rows broke it before. changed: which rows have other
    values now. redrawn: how many of them took the columns of another row.
    """

    codes: Mapping[str, Codes]
    broken: Mapping[int, int]
    changed: Mask
    redrawn: int


@dataclass(frozen=True)
class Component:
    """Rules that share columns, by their numbers in the dictionary."""

    rules: Mapping[int, Constraint]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        names = (name for rule in self.rules.values() for name in rule.columns)
        return tuple(dict.fromkeys(names))

    @cached_property
    def repairers(self) -> tuple[Repairer, ...]:
        """Combinations first, since they may move a number far; then orders and inequalities;
        sums last, since any later change of a part would break them."""
        return tuple(sorted(map(_repairer, self.rules.values()), key=_rank))

    def broken(self, rows: Mapping[str, Codes]) -> Mask:
        broken = np.zeros(len(rows[self.columns[0]]), bool)
        for rule in self.rules.values():
            broken |= rule.violations(rows)
        return broken

    def repair(self, rows: Rows, donors: Donors, rng: np.random.Generator) -> Mask:
        """Repairs in place; which rows still break a rule."""
        left = np.flatnonzero(self.broken(rows))
        for turn in range(_TURNS):
            if not left.size:
                break
            few = subset({name: rows[name] for name in self.columns}, left)
            self._repair_once(few, donors, turn, rng)
            for name, codes in few.items():
                take(rows, name, left, codes)
            left = left[self.broken(few)]
        still = np.zeros(len(rows[self.columns[0]]), bool)
        still[left] = True
        return still

    def _repair_once(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        for repairer in self.repairers:
            broken = np.flatnonzero(repairer.rule.violations(rows))
            if broken.size:
                few = subset({name: rows[name] for name in repairer.rule.columns}, broken)
                repairer.repair(few, donors, turn, rng)
                for name, codes in few.items():
                    take(rows, name, broken, codes)


def components(schema: Schema, columns: Collection[str]) -> tuple[Component, ...]:
    """The rules whose columns are all among `columns`; others cannot be checked."""
    found: list[dict[int, Constraint]] = []
    for number, rule in enumerate(schema.constraints):
        if not set(rule.columns) <= set(columns):
            continue
        joined = [group for group in found if _columns(group) & set(rule.columns)]
        found = [group for group in found if group not in joined]
        found.append({k: r for group in (*joined, {number: rule}) for k, r in group.items()})
    return tuple(Component(dict(sorted(group.items()))) for group in found)


class Repair:
    """Repairs blocks in turn. Later blocks may take values from the first one's rows."""

    def __init__(self, schema: Schema, columns: Collection[str]) -> None:
        self._schema = schema
        self.components = components(schema, columns)
        self._first: dict[int, Donors] = {}

    def repaired(self, codes: Mapping[str, Codes], rng: np.random.Generator) -> Repaired:
        """All rules hold afterwards. Raises `UnmetRulesError` where no repair is found."""
        rows = len(next(iter(codes.values())))
        repaired, broken = dict(codes), dict[int, int]()
        changed, redrawn = np.zeros(rows, bool), 0
        for place, component in enumerate(self.components):
            own = {name: codes[name] for name in component.columns}
            masks = {number: rule.violations(own) for number, rule in component.rules.items()}
            broken |= {number: int(mask.sum()) for number, mask in masks.items()}
            bad = np.any(list(masks.values()), axis=0)
            valid = Donors.of(own, ~bad)
            if bad.any():
                few, replaced = self._repaired(place, component, subset(own, bad), valid, rng)
                for name, values in few.items():
                    take(repaired, name, bad, values)
                redrawn += replaced
            changed |= bad
            self._first.setdefault(place, _pool(component, repaired))
        return Repaired(repaired, broken, changed, redrawn)

    def _repaired(
        self,
        place: int,
        component: Component,
        rows: Rows,
        valid: Donors,
        rng: np.random.Generator,
    ) -> tuple[Rows, int]:
        donors = valid if valid.rows else self._first.get(place, valid)
        still = component.repair(rows, donors, rng)
        if still.any():
            lenders = donors if donors.rows else Donors.of(rows, ~still)
            if not lenders.rows:
                lenders = found_rows(self._schema, component, rng)
            drawn, _ = lenders.like((), subset(rows, still), rng)
            for name in component.columns:
                take(rows, name, still, lenders.codes[name][drawn])
        if component.broken(rows).any():
            raise UnmetRulesError(tuple(component.rules))
        return rows, int(still.sum())


def found_rows(schema: Schema, component: Component, rng: np.random.Generator) -> Donors:
    """Rows that meet the rules, found from the dictionary alone: all of them where they can be
    listed, otherwise rows drawn at random and then repaired.

    Raises `UnmetRulesError` where none is found; after a random search there may still be some.
    """
    columns = [schema.column(name) for name in component.columns]
    if math.prod(column.codes for column in columns) <= MOST_COUNTED_OUT:
        rows = every_row(columns)
        still = component.broken(rows)
    else:
        rows = {column.name: _random_codes(column, rng) for column in columns}
        nothing = Donors({name: np.zeros(0, np.int64) for name in rows}, 0)
        still = component.repair(rows, nothing, rng)
    if still.all():
        raise UnmetRulesError(tuple(component.rules))
    valid = subset(rows, rng.permutation(np.flatnonzero(~still)))
    return Donors.of(valid, np.ones(int((~still).sum()), bool))


def every_row(columns: Sequence[Column]) -> Rows:
    """All combinations of the columns' codes."""
    shape = tuple(column.codes for column in columns)
    codes = np.unravel_index(np.arange(math.prod(shape)), shape)
    return {column.name: own for column, own in zip(columns, codes, strict=True)}


def _random_codes(column: Column, rng: np.random.Generator) -> NDArray[np.int64]:
    """Codes over the whole column, one in eight from its tail."""
    codes = rng.integers(0, column.regular, _SEARCHED)
    if column.tail:
        places = np.flatnonzero(rng.random(_SEARCHED) < 0.125)
        codes[places] = rng.integers(column.regular, column.codes, places.size)
    return codes.astype(np.int64)


def _pool(component: Component, repaired: Mapping[str, Codes]) -> Donors:
    own = {name: repaired[name] for name in component.columns}
    return Donors.of(own, np.ones(len(own[component.columns[0]]), bool))


def _columns(rules: Mapping[int, Constraint]) -> set[str]:
    return {name for rule in rules.values() for name in rule.columns}


def _repairer(rule: Constraint) -> Repairer:
    match rule:
        case Sum():
            return SumRepairer(rule)
        case AtLeast():
            return AtLeastRepairer(rule)
        case Order():
            return OrderRepairer(rule)
        case Forbidden():
            return ForbiddenRepairer(rule)
        case Implied():
            return ImpliedRepairer(rule)
        case Lookup():
            return LookupRepairer(rule)
    raise TypeError(f"no repair is known for {type(rule).__name__}")


def _rank(repairer: Repairer) -> int:
    return _ORDER.index(type(repairer))
