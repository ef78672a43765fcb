"""Public rows, entity after entity, as the private ones are bounded."""

from __future__ import annotations

import numpy as np

from app.engine.public.rows import PublicRows
from app.engine.schema import PrivacyUnit
from app.engine.table import generator


def in_order(rows: PublicRows, unit: PrivacyUnit, seed: int) -> PublicRows:
    """At most `max_rows` rows of each entity, drawn uniformly, and entity after entity."""
    order = np.lexsort((generator(seed).random(rows.rows), rows.entity))
    entity = rows.entity[order]
    kept = np.arange(rows.rows) - np.searchsorted(entity, entity) < unit.max_rows
    codes = {name: column[order][kept] for name, column in rows.codes.items()}
    return PublicRows(codes, entity[kept], rows.entities)
