"""Public rows as private ones are, as far as that is known.

They keep the dictionary's rules; values that only the private table has are put in, and
combinations that it may have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.queries import Noise
from app.engine.public.contributions import Features
from app.engine.public.rows import PublicDataUnfit, PublicRows
from app.engine.schema import Schema


def rows_keeping_rules(rows: PublicRows, schema: Schema) -> PublicRows:
    """The rows that keep every rule between their columns; an entity without any is left out.

    Raises `PublicDataUnfit` if no row does.
    """
    kept = ~rule_violations(rows, schema)
    if kept.all():
        return rows
    if not kept.any():
        raise PublicDataUnfit("no row of the public dataset keeps the rules of the dictionary")
    found, entity = np.unique(rows.entity[kept], return_inverse=True)
    codes = {name: column[kept] for name, column in rows.codes.items()}
    return PublicRows(codes, entity.reshape(-1).astype(np.int64), len(found))


def changes_keeping_rules(changed: PublicRows, before: PublicRows, schema: Schema) -> PublicRows:
    """The changed rows, but for those that would break a rule now: they stay as they were."""
    stays = rule_violations(changed, schema)
    if not stays.any():
        return changed
    codes = {
        name: np.where(stays, before.codes[name], column) for name, column in changed.codes.items()
    }
    return replace(changed, codes=codes)


def rule_violations(rows: PublicRows, schema: Schema) -> NDArray[np.bool_]:
    """Which rows break a rule all of whose columns they have, shape (rows,)."""
    found = np.zeros(rows.rows, dtype=np.bool_)
    for rule in schema.constraints:
        if set(rule.columns) <= set(rows.codes):
            found |= rule.violations(rows.codes)
    return found


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OneWay:
    """A column's noisy counts, flat, with the standard deviation of their noise."""

    column: str
    grouping: Grouping
    features: Features
    values: Floats
    noise: Noise
    deviation: float

    def beyond_noise(self, cells: int) -> NDArray[np.bool_]:
        """Counts that noise alone reaches in any of `cells` cells with a chance of an eighth."""
        gaussian = math.sqrt(2 * math.log(cells))
        most = gaussian if self.noise == "gaussian" else math.log(4 * cells) / math.sqrt(2)
        return self.values > most * self.deviation


def with_missing_values(
    rows: PublicRows, base: Floats, answers: Sequence[OneWay], rng: np.random.Generator
) -> PublicRows:
    """The rows, some of them moved to values that the private table has and the public one lacks.

    A value is missing if no public row has it and its noisy count is beyond noise. Rows leave the
    values that are too frequent; all rows of an entity with one value go together.
    `base`: the weight of each row.
    """
    cells = max(2, sum(answer.values.size for answer in answers))
    codes = dict(rows.codes)
    for answer in answers:
        expected = answer.features.counts(base)
        is_missing = (expected == 0) & answer.beyond_noise(cells)
        missing = np.where(is_missing, answer.values, 0.0)
        excess = np.where(expected > 0, np.maximum(expected - answer.values, 0.0), 0.0)
        if missing.any() and excess.any():
            part = min(1.0, float(missing.sum() / excess.sum()))
            leaving = part * excess / np.where(expected > 0, expected, 1.0)
            codes[answer.column] = _moved(rows, answer, leaving, missing, rng)
    return replace(rows, codes=codes)


def _moved(
    rows: PublicRows, answer: OneWay, leaving: Floats, missing: Floats, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The column's codes, where a cell is left with the chance `leaving` for one in proportion to
    `missing`; the rows of an entity in one cell go together."""
    cells = answer.features.cells
    key = rows.entity * answer.values.size + cells
    entity_cell = np.unique(key, return_inverse=True)[1].reshape(-1)
    groups = int(entity_cell.max()) + 1
    goes = rng.random(groups)[entity_cell] < leaving[cells]
    reached = np.searchsorted(np.cumsum(missing), rng.random(groups) * missing.sum(), "right")
    to = np.minimum(reached, np.flatnonzero(missing)[-1])[entity_cell][goes]
    moved = rows.codes[answer.column].copy()
    moved[goes] = answer.grouping.expand(to.astype(np.int64), rng)
    return moved


def mixed(rows: PublicRows, columns: Sequence[str], rng: np.random.Generator) -> PublicRows:
    """The same rows, each with the value that another one has in one of `columns`, both drawn
    uniformly."""
    changed = rng.integers(0, max(1, len(columns)), rows.rows)
    codes = dict(rows.codes)
    for place, name in enumerate(columns):
        drawn = rows.codes[name][rng.permutation(rows.rows)]
        codes[name] = np.where(changed == place, drawn, rows.codes[name])
    return replace(rows, codes=codes)


def joined(one: Features, other: Features) -> Features:
    """Both sets of atoms, one after the other."""
    return Features(
        one.shape,
        np.concatenate([one.cells, other.cells]),
        np.concatenate([one.amounts, other.amounts]),
    )
