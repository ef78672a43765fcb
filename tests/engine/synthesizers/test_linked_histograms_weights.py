from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.synthesizers.linked_histograms.expected import means
from app.engine.synthesizers.linked_histograms.weights import (
    Weights,
    clipped,
    independent,
    pooled_with_prior,
    projected,
    smoothed,
)
from app.engine.table import generator


def test_clipping_keeps_what_is_positive() -> None:
    assert list(clipped(np.array([-2.0, 0.0, 3.0]))) == [0, 0, 3]


def test_a_total_within_its_bounds_is_the_cells_sum() -> None:
    assert list(projected(np.array([5.0, 4.0, 0.0]), 0.1, 3, 20)) == [5, 4, 0]


@pytest.mark.parametrize(("least", "most", "total"), [(0, 5, 5), (12, 20, 12)])
def test_a_sum_out_of_bounds_is_held_within(least: float, most: float, total: float) -> None:
    assert projected(np.array([5.0, 4.0, 0.0]), 0.1, least, most).sum() == pytest.approx(total)


def test_a_sum_noisier_than_its_bounds_is_not_asked() -> None:
    assert projected(np.array([9.0, 4.0]), 10.0, 2, 12).sum() == pytest.approx(7)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=40))
def test_numbers_of_rows_without_noise_stay_as_they_are(counts: list[int]) -> None:
    values = np.array(counts, dtype=np.float64)
    found = smoothed(values, 0.0, values.sum())
    assert found == pytest.approx(values)


def test_a_tail_of_noise_is_emptied_where_projection_alone_would_fill_it() -> None:
    rng = np.random.default_rng(0)
    truth = np.zeros(200)
    truth[:64] = 20.0
    noisy = truth + rng.normal(0, 10, 200)
    found = smoothed(noisy, 10.0, truth.sum())
    assert found[64:].sum() < 0.05 * truth.sum()
    assert projected(noisy, 0.0, truth.sum(), truth.sum())[64:].sum() > 0.05 * truth.sum()


def test_where_the_noise_explains_the_difference_the_public_numbers_stay() -> None:
    public = np.array([40.0, 30.0, 20.0, 10.0])
    noisy = public + np.array([3.0, -4.0, 2.0, -1.0])
    assert smoothed(noisy, 10.0, 100, public) == pytest.approx(public)
    far = np.array([0.0, 0.0, 0.0, 100.0])
    assert smoothed(far, 1.0, 100, public) == pytest.approx(far)


def test_independent_columns_have_the_products_of_their_shares() -> None:
    found = independent(np.array([[30.0, 10.0], [45.0, 15.0]]), 100.0)
    assert found == pytest.approx(np.array([[30, 10], [45, 15]]))
    assert not independent(np.array([[1.0, 2.0]]), 0.0).any()


def test_shares_of_independent_columns_are_never_negative() -> None:
    found = independent(np.array([[30.0, -20.0], [10.0, -20.0]]), 10.0)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(10)


def test_a_prior_weighs_as_its_variance_says() -> None:
    # The differences are what noise of 2 and the variance of counts explain: no more spread.
    found = pooled_with_prior(np.array([8.0, 12.0]), 2.0, np.array([12.0, 12.0]))
    assert found == pytest.approx([12 - 12 / 16 * 4, 12])


def test_a_prior_that_is_far_off_gives_way_to_the_counts() -> None:
    found = pooled_with_prior(np.array([1000.0, 0.0]), 2.0, np.array([10.0, 500.0]))
    assert found == pytest.approx([1000, 0], rel=0.05, abs=5)


def test_a_cell_that_public_rows_lack_is_empty_unless_noise_cannot_explain_it() -> None:
    noisy = np.array([10.0, 2.0, -3.0, 90.0])
    found = pooled_with_prior(noisy, 2.0, np.array([10.0, 0.0, 0.0, 0.0]))
    assert list(found) == [10, 0, 0, 90]


def test_cells_are_drawn_as_often_as_their_weights_say() -> None:
    weights = Weights.of(np.array([[0.0, 1.0], [0.0, 3.0]]))
    assert list(weights.cells) == [1, 3]
    assert list(np.bincount(weights.draw(8, generator(0)))) == [0, 2, 0, 6]
    assert len(weights.draw(0, generator(0))) == 0


def test_without_any_weight_all_cells_are_alike() -> None:
    weights = Weights.of(np.zeros((2, 2)))
    assert list(weights.cells) == [0, 1, 2, 3]
    assert list(weights.values) == [1, 1, 1, 1]


def test_means_are_pooled_with_those_of_their_coordinates() -> None:
    sums = np.array([[10.0, 0.0], [0.0, 90.0]])
    counts = np.array([[1.0, 0.0], [0.0, 3.0]])
    assert list(means(sums, counts, 0.0)) == [10, 20, 20, 30]
    assert means(sums, counts, 1.0) == pytest.approx([10, 20, 20, 30])
    assert list(means(np.zeros((2, 2)), np.zeros((2, 2)), 0.0)) == [0, 0, 0, 0]
