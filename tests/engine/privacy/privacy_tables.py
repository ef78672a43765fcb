"""Builders of small tables for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema

LOUD = PrivacyLoss.pure(10**15)
"""A loss so large that its Laplace noise is 0 but for a chance of exp(-1000 / k)."""


def schema(**sizes: int) -> Schema:
    """Required integer columns with so many values each."""
    return Schema.parse(
        {
            "fields": [
                {
                    "name": name,
                    "type": "integer",
                    "constraints": {"minimum": 0, "maximum": size - 1, "required": True},
                }
                for name, size in sizes.items()
            ]
        }
    )


def table(
    sizes: dict[str, int],
    rows: Sequence[Sequence[int]],
    entities: Sequence[int] | None = None,
    max_rows: int = 3,
    chunk_size: int = 3,
) -> ArraySource:
    """A table of these rows, in small chunks; of entities if ids are given."""
    array = np.asarray(rows, dtype=np.int64).reshape(len(rows), len(sizes))
    codes = {name: array[:, place] for place, name in enumerate(sizes)}
    if entities is None:
        return ArraySource(schema(**sizes), PrivacyUnit("row"), codes, chunk_size=chunk_size)
    unit = PrivacyUnit("entity", "id", max_rows)
    ids = np.asarray(entities, dtype=np.int64)
    return ArraySource(schema(**sizes), unit, codes, ids, chunk_size)


def session(source: Any, allowance: PrivacyLoss, *, trusted: bool = False) -> LocalSession:
    return LocalSession(Kernel(source, allowance, trusted=trusted))
