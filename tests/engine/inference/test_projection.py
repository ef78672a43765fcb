from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from app.engine.inference.projection import onto_simplex

noisy = arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e6, 1e6))


def test_a_hand_computed_projection() -> None:
    # 5 + 3 - 1 must become 6: a shift of 1 leaves 4, 2 and nothing.
    assert onto_simplex(np.array([5.0, 3.0, -1.0]), 6.0).tolist() == [4.0, 2.0, 0.0]


def test_counts_that_could_be_real_stay_as_they_are() -> None:
    counts = np.array([[2.0, 0.0], [1.0, 4.0]])
    assert np.allclose(onto_simplex(counts, 7.0), counts)


@pytest.mark.parametrize("total", [0.0, -3.0])
def test_a_total_of_zero_gives_zeros(total: float) -> None:
    assert not onto_simplex(np.array([4.0, 1.0]), total).any()


@given(noisy, st.floats(1e-3, 1e7))
def test_projections_are_not_negative_and_add_up(values: np.ndarray, total: float) -> None:
    projected = onto_simplex(values, total)
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(total, rel=1e-9)


@given(noisy, st.floats(1.0, 1e6), st.integers(0, 2**32))
def test_no_other_point_of_the_simplex_is_nearer(
    values: np.ndarray, total: float, seed: int
) -> None:
    projected = onto_simplex(values, total)
    other = np.random.default_rng(seed).dirichlet(np.ones(values.size)) * total
    nearest = np.square(projected - values).sum()
    assert nearest <= np.square(other - values).sum() * (1 + 1e-9) + 1e-6


def test_uncertain_counts_move_most() -> None:
    # 6 + 3 + 1 must become 8: a shift of 1/2 takes 1/2, 1/2 and 1 of the last, of variance 2.
    counts = onto_simplex(np.array([6.0, 3.0, 1.0]), 8.0, np.array([1.0, 1.0, 2.0]))
    assert counts.tolist() == [5.5, 2.5, 0.0]


@given(noisy, st.floats(1.0, 1e6), st.integers(0, 2**32))
def test_no_other_point_of_the_simplex_is_nearer_in_standard_deviations(
    values: np.ndarray, total: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    variance = rng.uniform(0.1, 10, values.size)
    projected = onto_simplex(values, total, variance)
    assert projected.sum() == pytest.approx(total, rel=1e-9)
    other = rng.dirichlet(np.ones(values.size)) * total
    nearest = (np.square(projected - values) / variance).sum()
    assert nearest <= (np.square(other - values) / variance).sum() * (1 + 1e-9) + 1e-6
