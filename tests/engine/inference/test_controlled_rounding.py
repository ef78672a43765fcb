from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from app.engine.inference.rounding import round_keeping_margins

shares = arrays(
    np.float64, array_shapes(min_dims=1, max_dims=4, max_side=6), elements=st.floats(0, 1)
).filter(lambda array: array.sum() > 1e-3)


@given(shares, st.integers(0, 10**6), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_counts_add_up_and_are_a_floor_or_a_ceiling(
    share: np.ndarray, total: int, seed: int
) -> None:
    counts = share * (total / share.sum())
    whole = round_keeping_margins(counts, total, np.random.default_rng(seed))
    assert whole.sum() == total
    assert (whole >= np.floor(counts)).all()
    assert (whole <= np.ceil(counts + 1e-9)).all()


def test_the_largest_fractions_are_rounded_up() -> None:
    assert round_keeping_margins(
        np.array([0.2, 1.7, 0.6, 0.5]), 3, np.random.default_rng(0)
    ).tolist() == [
        0,
        2,
        1,
        0,
    ]


def test_whole_counts_are_kept() -> None:
    counts = np.array([[1.0, 0.0], [5.0, 2.0]])
    assert round_keeping_margins(counts, 8, np.random.default_rng(0)).tolist() == counts.tolist()


def test_equal_fractions_are_rounded_up_in_random_order() -> None:
    made = [
        tuple(round_keeping_margins(np.full(3, 1 / 3), 1, np.random.default_rng(s)))
        for s in range(40)
    ]
    assert len(set(made)) == 3  # one of three is missed by all 40 with a chance below 3e-7


def test_no_value_of_a_column_is_emptied_for_slightly_larger_counts_elsewhere() -> None:
    """By the largest fractions alone, all 100 units would lie in the first two rows."""
    counts = np.full((8, 50), 0.25) + np.linspace(0.01, -0.01, 8)[:, None]
    made = round_keeping_margins(counts, 100, np.random.default_rng(1))
    assert np.abs(made.sum(axis=1) - counts.sum(axis=1)).max() <= 7
    assert np.abs(made.sum(axis=0) - 2).max() <= 1


def test_a_value_gets_no_more_than_its_sum_rounded_up_where_the_rest_fits() -> None:
    counts = np.array([[0.5, 0.5], [0.5, 0.5]])
    for seed in range(20):
        made = round_keeping_margins(counts, 2, np.random.default_rng(seed))
        assert made.sum(axis=0).tolist() == made.sum(axis=1).tolist() == [1, 1]
