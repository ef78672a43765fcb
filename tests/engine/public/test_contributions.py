"""What public entities add to a histogram that counts each of them once in some cells."""

from __future__ import annotations

import numpy as np
import pytest

from app.engine.public.contributions import DistinctCells
from app.engine.public.rows import PublicRows

ENTITY = np.array([0, 0, 0, 1, 2, 2])
CELLS = np.array([3, 3, 1, 0, 1, 2])
ROWS = PublicRows({"x": CELLS}, ENTITY, 3)


def distinct(limit: int) -> DistinctCells:
    return DistinctCells.of(ROWS, CELLS, 4, limit)


def test_each_entity_counts_in_no_more_cells_than_the_limit() -> None:
    for limit, counts in ((1, [1, 1, 1]), (2, [2, 1, 2]), (9, [2, 1, 2])):
        found = distinct(limit)
        assert np.bincount(found.entity, found.amounts).tolist() == pytest.approx(counts)


def test_counts_are_the_expectation_of_uniform_draws() -> None:
    assert distinct(1).counts(4).tolist() == pytest.approx([1, 1, 0.5, 0.5])
    rng = np.random.default_rng(0)
    drawn = np.zeros(4)
    for _ in range(4000):
        for entity in range(3):
            own = np.unique(CELLS[entity == ENTITY])
            drawn[rng.choice(own)] += 1 / 4000
    assert drawn.tolist() == pytest.approx([1, 1, 0.5, 0.5], abs=0.05)


def test_each_row_has_its_pair_and_how_many_share_it() -> None:
    found = distinct(2)
    assert found.entity[found.of_row].tolist() == ENTITY.tolist()
    assert found.cell[found.of_row].tolist() == CELLS.tolist()
    assert found.rows[found.of_row].tolist() == [2, 2, 1, 1, 1, 1]
