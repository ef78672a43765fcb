from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from app.engine.inference.smoothing import smooth_counts

BREAKS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 0.95)
LEVELS = (0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


def over_all_segmentations(
    noisy: np.ndarray, variance: float, total: float
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means and variances by adding up every way to cut the cells into runs."""
    cells = len(noisy)
    spreads = [(level * total / cells) ** 2 for level in LEVELS]
    evidence, mean, square = 0.0, np.zeros(cells), np.zeros(cells)
    for cuts in product((False, True), repeat=cells - 1):
        runs = np.split(np.arange(cells), [i + 1 for i, cut in enumerate(cuts) if cut])
        prior = sum(
            p ** sum(cuts) * (1 - p) ** (cells - 1 - sum(cuts)) / len(BREAKS) for p in BREAKS
        )
        likelihood, first, second = prior, np.zeros(cells), np.zeros(cells)
        for run in runs:
            makes = [_run(noisy[run], variance, spread) for spread in spreads]
            whole = sum(density for density, _, _ in makes)
            likelihood *= whole / len(makes)
            first[run] = sum(density * level for density, level, _ in makes) / whole
            second[run] = sum(density * (v + level**2) for density, level, v in makes) / whole
        evidence += likelihood
        mean, square = mean + likelihood * first, square + likelihood * second
    return mean / evidence, square / evidence - (mean / evidence) ** 2


def _run(noisy: np.ndarray, variance: float, spread: float) -> tuple[float, float, float]:
    """Density of a run's noisy counts; mean and variance of its level."""
    covariance = variance * np.eye(len(noisy)) + spread
    exponent = noisy @ np.linalg.solve(covariance, noisy) / 2
    density = math.exp(-exponent) / math.sqrt(np.linalg.det(2 * math.pi * covariance))
    known = 1 / (len(noisy) / variance + 1 / spread)
    return density, known * noisy.sum() / variance, known


@settings(max_examples=15, deadline=None)
@given(
    arrays(np.float64, st.integers(1, 5), elements=st.floats(-20, 60)),
    st.floats(8, 30),
    st.floats(8, 200),
)
def test_the_mean_over_all_ways_to_cut_the_cells_is_exact(
    noisy: np.ndarray, error: float, total: float
) -> None:
    means, variances = over_all_segmentations(noisy, error**2, total)
    smooth = smooth_counts(noisy, error**2, total)
    assert smooth.means == pytest.approx(means, rel=1e-7, abs=1e-7)
    floor = error**2 / len(noisy)
    assert smooth.variances == pytest.approx(np.maximum(variances, floor), rel=1e-6, abs=1e-6)


def test_constant_counts_are_recovered_from_noise() -> None:
    rng = np.random.default_rng(1)
    counts = np.repeat([900.0, 100.0, 400.0], [20, 30, 25])
    noisy = counts + rng.normal(0, 100, counts.size)
    smooth = smooth_counts(noisy, 100.0**2, counts.sum())
    assert np.mean((smooth.means - counts) ** 2) < 0.25 * np.mean((noisy - counts) ** 2)
    assert smooth.variances.mean() < 0.25 * 100**2


@pytest.mark.parametrize("mean", [20.0, 200.0, 5000.0])
def test_counts_in_no_order_come_out_no_worse_than_they_were(mean: float) -> None:
    """Over 30 columns of unordered counts, the squared error is at most that of the noise."""
    rng = np.random.default_rng(2)
    raw = smooth = 0.0
    for _ in range(30):
        counts = rng.gamma(0.3, mean / 0.3, 60)
        noisy = counts + rng.normal(0, 200, 60)
        raw += np.sum((noisy - counts) ** 2)
        smooth += np.sum((smooth_counts(noisy, 200.0**2, counts.sum()).means - counts) ** 2)
    assert smooth < raw


def test_counts_without_noise_are_kept() -> None:
    counts = np.array([0.0, 39_074.0, 12.0, 12.0, 7.0, 1e7, 3.0])
    smooth = smooth_counts(counts, 1e-3, counts.sum())
    assert smooth.means == pytest.approx(counts, abs=0.1)
    assert (smooth.variances > 0).all()


@pytest.mark.parametrize("cells", [0, 1, 2, 3000])
def test_columns_of_any_length_are_smoothed(cells: int) -> None:
    rng = np.random.default_rng(3)
    smooth = smooth_counts(100 + rng.normal(0, 50, cells), 50.0**2, 100.0 * cells)
    assert smooth.means.shape == smooth.variances.shape == (cells,)
    assert np.isfinite(smooth.means).all()
    if cells > 100:
        assert np.abs(smooth.means - 100).mean() < 10


def test_pure_noise_is_smoothed_too() -> None:
    smooth = smooth_counts(np.array([3.0, -4.0, 1.0]), 25.0, -7.0)
    assert np.isfinite(smooth.means).all()
    assert (smooth.variances > 0).all()
