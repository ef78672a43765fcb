"""Repairing forbidden and implied combinations, and lookups: one column takes another value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.constraints.donors import Codes, Donors, Mask, Rows, some_codes, subset, take
from app.engine.schema.column import Column
from app.engine.schema.constraints import Condition, Forbidden, Implied, Lookup


@dataclass(frozen=True)
class ForbiddenRepairer:
    """The last column takes a value outside its condition; in later turns another column."""

    rule: Forbidden

    def repair(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        _avoid(self.rule.when, rows, donors, turn, rng)


@dataclass(frozen=True)
class ImpliedRepairer:
    """The conditions in `then` are made to hold; in every other turn, one in `when` to fail."""

    rule: Implied

    def repair(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        if turn % 2 == 0:
            self._fulfil(rows, donors, rng)
        left = np.flatnonzero(self.rule.violations(rows))
        if left.size:
            few = subset(rows, left)
            _avoid(self.rule.when, few, donors, turn // 2, rng)
            for condition in self.rule.when:
                take(rows, condition.column.name, left, few[condition.column.name])

    def _fulfil(self, rows: Rows, donors: Donors, rng: np.random.Generator) -> None:
        causes = [condition.column for condition in self.rule.when]
        agreeing = donors.where(_hold(self.rule.when, donors))
        for condition in self.rule.then:
            broken = np.flatnonzero(~condition.holds(rows) & ~condition.unknown(rows))
            few = subset(rows, broken)
            _redraw(condition.column, _within(condition), few, causes, (agreeing, donors), rng)
            take(rows, condition.column.name, broken, few[condition.column.name])


@dataclass(frozen=True)
class LookupRepairer:
    """Keeps as many leading columns as some listed combination begins with, and draws the others
    by how often valid rows have each combination. Every other turn keeps trailing columns."""

    rule: Lookup

    def repair(self, rows: Rows, donors: Donors, turn: int, rng: np.random.Generator) -> None:
        names, listed = list(self.rule.columns), list(self.rule.listed)
        weights = self._weights(donors)
        if turn % 2:
            names, listed = names[::-1], listed[::-1]
        left = np.arange(len(rows[names[0]]))
        for kept in reversed(range(len(names))):
            asked = [rows[name][left] for name in names[:kept]]
            drawn, found = _drawn(listed[:kept], asked, left.size, weights, rng)
            for name, column in zip(names[kept:], listed[kept:], strict=True):
                take(rows, name, left[found], column[drawn[found]])
            left = left[~found]

    def _weights(self, donors: Donors) -> NDArray[np.float64]:
        """How many donors have each listed combination."""
        listed = self.rule.listed
        combinations = listed.shape[1]
        known, numbers = np.unique(
            _numbered([
                np.concatenate([column, donors.codes[name]])
                for column, name in zip(listed, self.rule.columns, strict=True)
            ]),
            return_inverse=True,
        )  # fmt: skip
        counts = np.bincount(numbers[combinations:], minlength=known.size)
        return counts[numbers[:combinations]].astype(np.float64)


def _drawn(
    listed: Sequence[Codes],
    asked: Sequence[Codes],
    rows: int,
    weights: NDArray[np.float64],
    rng: np.random.Generator,
) -> tuple[Codes, Mask]:
    """A listed combination that begins as each row does, drawn by weight, and a mask of where
    there is one."""
    combinations = weights.size
    keys = _numbered([np.concatenate(pair) for pair in zip(listed, asked, strict=True)])
    if not len(listed):
        keys = np.zeros(combinations + rows, np.int64)
    order = np.argsort(keys[:combinations], kind="stable")
    own, wanted = keys[:combinations][order], keys[combinations:]
    low = np.searchsorted(own, wanted, side="left")
    high = np.searchsorted(own, wanted, side="right")
    reach = np.concatenate([[0.0], np.cumsum(weights[order])])
    part, uniform = reach[high] - reach[low], rng.random(rows)
    weighted = np.searchsorted(reach, reach[low] + uniform * part, side="right") - 1
    even = low + (uniform * (high - low)).astype(np.int64)
    places = np.where(part > 0, np.clip(weighted, low, high - 1), even)
    return order[np.clip(places, 0, combinations - 1)], high > low


def _numbered(columns: Sequence[Codes]) -> Codes:
    """A number for each combination of codes; equal ones have the same."""
    if not columns:
        return np.zeros(0, np.int64)
    _, numbers = np.unique(columns[0], return_inverse=True)
    for column in columns[1:]:
        known, own = np.unique(column, return_inverse=True)
        _, numbers = np.unique(numbers * known.size + own, return_inverse=True)
    return numbers.astype(np.int64)


def _avoid(
    when: Sequence[Condition], rows: Rows, donors: Donors, turn: int, rng: np.random.Generator
) -> None:
    """Makes one condition fail: the last at first, another one each turn."""
    for step in range(len(when)):
        place = (len(when) - 1 - turn - step) % len(when)
        others = [condition for i, condition in enumerate(when) if i != place]
        agreeing = donors.where(_hold(others, donors)) if others else donors
        column = when[place].column
        beside = [condition.column for condition in others]
        if _redraw(column, _outside(when[place]), rows, beside, (agreeing, donors), rng):
            return


def _redraw(
    column: Column,
    keeps: Callable[[Codes], Mask],
    rows: Rows,
    beside: Sequence[Column],
    pools: Sequence[Donors],
    rng: np.random.Generator,
) -> bool:
    """Gives every row a value that `keeps` is true of: from a donor in the same cells of `beside`,
    else from any donor, else any such value. False where the column has none."""
    left = np.arange(len(rows[column.name]))
    for pool, agreeing in ((pools[0], beside), *((pool, ()) for pool in pools)):
        fit = pool.where(keeps(pool.codes[column.name]))
        drawn, found = fit.like(agreeing, subset(rows, left), rng)
        take(rows, column.name, left[found], fit.codes[column.name][drawn[found]])
        left = left[~found]
        if not left.size:
            return True
    values = some_codes(column, keeps, rng)
    if not values.size:
        return False
    take(rows, column.name, left, values[rng.integers(0, values.size, left.size)])
    return True


def _within(condition: Condition) -> Callable[[Codes], Mask]:
    return lambda codes: condition.holds({condition.column.name: codes})


def _outside(condition: Condition) -> Callable[[Codes], Mask]:
    """Outside the condition. Null is taken only where nothing else is outside."""
    column = condition.column

    def keeps(codes: Codes) -> Mask:
        fails = ~condition.holds({column.name: codes})
        return fails if only_null else fails & (codes != column.null_code)

    only_null = False
    only_null = not some_codes(column, keeps, np.random.default_rng(0)).size
    return keeps


def _hold(conditions: Sequence[Condition], donors: Donors) -> Mask:
    held = np.ones(donors.rows, bool)
    for condition in conditions:
        held &= condition.holds(donors.codes)
    return held
