"""Rows of each entity are counted, however they arrive."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from app.datasets.bounding import EntityTally
from app.engine.encoding import occurrences


def test_entities_are_counted_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrences, "_HELD_ROWS", 50)
    ids = np.random.default_rng(0).zipf(1.5, 3000).clip(max=300)
    counted = Counter(ids.tolist())
    tally = EntityTally(max_rows=4)
    for part in np.array_split(ids, 37):
        tally.add(np.column_stack([part, part]).astype(np.uint64))
    found = tally.bounding()
    assert (found.entities, found.most_rows) == (len(counted), max(counted.values()))
    assert found.bounded_entities == sum(rows > 4 for rows in counted.values())
    assert found.rows_beyond == sum(max(rows - 4, 0) for rows in counted.values())


def test_no_rows_are_no_entities() -> None:
    assert EntityTally(3).bounding().entities == 0
