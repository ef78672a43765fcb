from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from app.engine.inference.projection import onto_simplex
from app.engine.inference.shrinkage import (
    CountNoise,
    Estimates,
    independent_counts,
    shrink_counts,
    spread,
)

noisy_counts = arrays(
    np.int64, array_shapes(min_dims=1, max_dims=3, max_side=5), elements=st.integers(-50, 500)
)
noises = st.builds(
    lambda law, scale: CountNoise(law, scale, scale**2 * (2 if law == "laplace" else 1)),
    st.sampled_from(["laplace", "gaussian"]),
    st.floats(0, 1e3),
)


def laplace(scale: float, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    stop = 1 - math.exp(-1 / scale)
    return (rng.geometric(stop, shape) - rng.geometric(stop, shape)).astype(np.int64)


def laplace_noise(scale: float) -> CountNoise:
    ratio = math.exp(-1 / scale)
    return CountNoise("laplace", scale, 2 * ratio / (1 - ratio) ** 2)


def by_months(rng: np.random.Generator) -> np.ndarray:
    """Sparse counts, shape (60, 12, 20), of which the last five months are empty."""
    rates = np.multiply.outer(rng.gamma(0.7, 1, 60), np.arange(12) < 7)
    return rng.poisson(np.multiply.outer(rates, 3 * rng.dirichlet(np.full(20, 0.3))))


def test_independent_columns_without_noise_are_the_product_of_their_frequencies() -> None:
    counts = np.array([[6, 2], [3, 1], [0, 0]])
    assert np.allclose(independent_counts(counts, 0.0, 12.0), counts)


def test_one_column_is_expected_to_be_constant() -> None:
    assert independent_counts(np.array([9, 0, 3]), 1.0, 12.0).tolist() == [4.0, 4.0, 4.0]


def test_sums_that_noise_explains_become_equal() -> None:
    # Sums 12 and 8 differ from 10 by a variance of 8; noise of 4 a cell makes it 8 by itself.
    counts = np.array([[6, 6], [4, 4]])
    assert np.allclose(independent_counts(counts, 4.0, 20.0), 5.0)


def test_the_spread_is_what_remains_beyond_chance_and_noise() -> None:
    counts = np.array([[20, 0], [0, 20]])
    expected = np.full((2, 2), 10.0)
    # Squares 400, of which noise 5 on the one free degree, and chance 40; over 4 * 100.
    assert spread(counts, expected, 5.0) == pytest.approx((400 - 5 - 40) / 400)


def test_a_hand_computed_posterior() -> None:
    """A noisy count of 2, expected 1: negative binomial odds times 2^-|noise|, within reach."""
    noise = CountNoise("laplace", 1 / math.log(2), 4.0)
    found = shrink_counts(np.array([2, 0]), noise, 2.0)
    size = 1 / spread(np.array([2, 0]), np.ones(2), 4.0)
    prior = [
        math.exp(math.lgamma(c + size) - math.lgamma(size) - math.lgamma(c + 1))
        * (1 / (size + 1)) ** c
        for c in range(2 + noise.reach(2) + 1)
    ]
    likelihood = [2.0 ** -abs(2 - c) for c in range(2 + noise.reach(2) + 1)]
    joint = np.multiply(prior, likelihood)
    mean = (joint * np.arange(len(joint))).sum() / joint.sum()
    assert found.means[0] == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_without_noise_the_counts_are_kept(law: str) -> None:
    counts = np.array([[3, 0, 11], [0, 7, 1]])
    noise = CountNoise(law, 1e-3, 0.0)  # type: ignore[arg-type]
    assert np.allclose(shrink_counts(counts, noise, 22.0).with_total(22.0), counts)


def test_a_large_count_among_empty_ones_keeps_most_of_what_it_is() -> None:
    rng = np.random.default_rng(1)
    counts = np.zeros((50, 50), dtype=np.int64)
    counts[3, 4] = 500
    noise = laplace_noise(2.0)
    made = shrink_counts(counts + laplace(2.0, counts.shape, rng), noise, 500.0).with_total(500.0)
    assert made[3, 4] > 500 - 2 * noise.reach(2500)


def test_no_mean_is_further_from_the_noisy_count_than_noise_reaches() -> None:
    rng = np.random.default_rng(2)
    counts = np.zeros((40, 40), dtype=np.int64)
    counts[np.arange(40), np.arange(40)] = 90
    noise = laplace_noise(1.0)
    noisy = counts + laplace(1.0, counts.shape, rng)
    means = shrink_counts(noisy, noise, 3600.0).means
    assert np.abs(means - np.maximum(noisy, 0)).max() <= noise.reach(1600)


def test_empty_months_stay_empty_where_the_plain_projection_fills_them() -> None:
    rng = np.random.default_rng(3)
    counts = by_months(rng)
    noise = laplace_noise(0.5)
    noisy, total = counts + laplace(0.5, counts.shape, rng), float(counts.sum())
    shrunken = shrink_counts(noisy, noise, total).with_total(total)
    plain = onto_simplex(noisy.astype(np.float64), total)
    assert shrunken[:, 7:].sum() < 0.3 * plain[:, 7:].sum()


@pytest.mark.parametrize(("scale", "most"), [(0.3, 0.8), (1.0, 0.8), (4.0, 1.0)])
def test_sparse_counts_come_nearer_than_by_the_plain_projection(scale: float, most: float) -> None:
    rng = np.random.default_rng(4)
    counts = by_months(rng)
    noisy, total = counts + laplace(scale, counts.shape, rng), float(counts.sum())
    nearer = shrink_counts(noisy, laplace_noise(scale), total).with_total(total)
    plain = onto_simplex(noisy.astype(np.float64), total)
    assert np.abs(nearer - counts).sum() < most * np.abs(plain - counts).sum()


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_counts_far_from_independent_are_not_worse_off(scale: float) -> None:
    rng = np.random.default_rng(5)
    counts = np.diag(rng.poisson(30, 100))
    noisy, total = counts + laplace(scale, counts.shape, rng), float(counts.sum())
    made = shrink_counts(noisy, laplace_noise(scale), total).with_total(total)
    plain = onto_simplex(noisy.astype(np.float64), total)
    assert np.abs(made - counts).sum() < np.abs(plain - counts).sum()


def test_a_total_is_met_where_it_is_least_certain() -> None:
    estimates = Estimates(np.array([10.0, 10.0, 1.0]), np.array([0.0, 1.0, 3.0]))
    assert np.allclose(estimates.with_total(25.0), [10.0, 11.0, 4.0])
    assert np.allclose(estimates.with_total(17.0), [10.0, 7.0, 0.0])


@pytest.mark.parametrize("total", [0.0, -2.0])
def test_no_total_leaves_no_count(total: float) -> None:
    noise = CountNoise("gaussian", 1.0, 1.0)
    assert not shrink_counts(np.array([[3, -1]]), noise, total).with_total(total).any()


@given(noisy_counts, noises, st.floats(0.5, 5000))
@settings(max_examples=60, deadline=None)
def test_what_is_made_is_not_negative_and_adds_up(
    noisy: np.ndarray, noise: CountNoise, total: float
) -> None:
    made = shrink_counts(noisy, noise, total).with_total(total)
    assert np.isfinite(made).all()
    assert (made >= 0).all()
    assert made.sum() == pytest.approx(total, rel=1e-9)
