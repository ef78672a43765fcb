"""Which contribution rule promises the least error, by what was measured of entities.

An entity whose rows weigh more than a rule lets it is scaled down. The rows that are lost so
would not matter if all entities were alike; `unlike` is how far those of the entities that lose
are from the others, as found on tables of the bench. The more rows a rule keeps, the more it lets
one entity change, and the larger the noise: its error was found to rise with the square root of
the noise in a count over all that is counted, since rare cells are merged. So the error of a rule
with sensitivity c is taken as

    unlike * (1 - kept / rows) + noise * sqrt(c * error of a count of 1 / kept)

where `kept` are the rows that still count: of an entity with n rows, whose counts in a column
have norm v, n * min(1, c / v) under `clipped` to norm c; of one with d distinct values min(d, m)
under `distinct` with limit m; all under `rows`; in the mean of the columns that were looked at. All
of it is post-processing of noisy histograms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.contribution import expected_error
from app.engine.entities.assignment import Target
from app.engine.entities.model import Entities
from app.engine.entities.tuning import TUNING
from app.engine.privacy.queries import Contribution
from app.engine.privacy.sensitivity import LARGEST_CLIPPED
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.table import generator

Floats = NDArray[np.float64]

_STEPS = (1, 1.5, 2, 3, 4, 5, 7)


def chosen_rule(
    entities: Entities, number: float, columns: int, budget: UnitBudget
) -> Contribution:
    """The rule for histograms of `columns` columns and pairs, of about `number` entities."""
    sizes, targets = entities.drawn(TUNING.drawn, generator(0))
    rows = sizes.astype(np.float64)
    scale = max(number, 1.0) / TUNING.drawn
    part = budget.of_each(max(TUNING.marginals_per_column * columns, 1))

    def error(rule: Contribution) -> float:
        kept = float(_kept(rule, rows, targets).sum())
        noise = expected_error(rule, 2**62, part) / (scale * kept)
        # On a grid, so that no order of adding decides between two rules.
        lost = 1 - kept / float(rows.sum())
        return round(TUNING.unlike * lost + TUNING.noise * math.sqrt(noise), 6)

    return min(_rules(budget), key=error)


def _rules(budget: UnitBudget) -> Iterator[Contribution]:
    yield Contribution()
    unit, loss = budget.unit, budget.loss
    if loss.kind == "zcdp" and unit.max_rows >= LARGEST_CLIPPED:
        return
    for step in _steps(unit.max_rows):
        if loss.kind == "zcdp":
            yield Contribution("clipped", norm=step)
        elif step == int(step):
            yield Contribution("distinct", limit=int(step))


def _steps(end: int) -> Iterator[float]:
    factor = 1
    while True:
        for step in _STEPS:
            if step * factor >= end:
                return
            yield float(step * factor)
        factor *= 10


def _kept(rule: Contribution, rows: Floats, targets: Sequence[Target]) -> Floats:
    """How many rows of each entity count, in the mean of the columns."""
    match rule.rule:
        case "clipped":
            assert rule.norm is not None
            shares = [np.minimum(1, rule.norm / each) for each in _norms(rows, targets)]
            return np.asarray(rows * np.mean(shares, axis=0))
        case "distinct":
            assert rule.limit is not None
            found = [np.minimum(each, rule.limit) for each in _distinct(rows, targets)]
            return np.asarray(np.mean(found, axis=0))
    return rows


def _norms(rows: Floats, targets: Sequence[Target]) -> list[Floats]:
    """Between the square root of the rows, all apart, and the rows, all in one cell."""
    found = [np.sqrt(each.squares) for each in targets if each.squares is not None]
    return found or [rows**0.75]


def _distinct(rows: Floats, targets: Sequence[Target]) -> list[Floats]:
    return [each.distinct.astype(np.float64) for each in targets] or [np.sqrt(rows)]
