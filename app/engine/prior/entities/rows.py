"""Public rows within the rules of the private dictionary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

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
