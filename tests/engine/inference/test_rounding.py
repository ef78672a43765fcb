from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from app.engine.inference.rounding import apportion, shuffled_cells

weights = arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1e9)).filter(
    lambda array: array.sum() > 0
)


@given(weights, st.integers(0, 10**7), st.integers(0, 2**32))
def test_counts_add_up_and_stay_within_one_of_what_is_expected(
    weight: np.ndarray, total: int, seed: int
) -> None:
    counts = apportion(weight, total, np.random.default_rng(seed))
    assert counts.sum() == total
    assert np.abs(counts - weight / weight.sum() * total).max() < 1 + 1e-6 * total
    assert (counts >= 0).all()


def test_whole_expectations_are_met_exactly() -> None:
    counts = apportion(np.array([[1.0, 2.0], [3.0, 4.0]]), 20, np.random.default_rng(1))
    assert counts.tolist() == [[2, 4], [6, 8]]


def test_fractions_are_rounded_without_bias() -> None:
    rng = np.random.default_rng(2)
    drawn = sum(apportion(np.array([0.2, 0.5, 1.3]), 2, rng) for _ in range(4000))
    # Standard deviation of each mean below 0.008: a deviation of 0.05 is beyond 6 of them.
    assert np.abs(drawn / 4000 - [0.2, 0.5, 1.3]).max() < 0.05


def test_cells_of_no_weight_stay_empty() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        assert apportion(np.array([0.0, 0.3, 0.0, 0.3, 0.0]), 1, rng)[[0, 2, 4]].sum() == 0


def test_shuffled_cells_hold_each_cell_as_often_as_it_counts() -> None:
    cells = shuffled_cells(np.array([[3, 0], [1, 2]]), np.random.default_rng(4))
    assert sorted(cells.tolist()) == [0, 0, 0, 2, 3, 3]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_counts(seed: int) -> None:
    weight = np.arange(1.0, 9.0)
    first, second = (apportion(weight, 11, np.random.default_rng(seed)) for _ in range(2))
    assert first.tolist() == second.tolist()
