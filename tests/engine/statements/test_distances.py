"""Intervals of distances hold for samples that follow the noise, and for those that do not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from app.engine.inference.projection import onto_simplex
from app.engine.statements.distances import EstimatedDistance, estimated_distance

FALSE_ALARM = 1e-6
RUNS = 120
ROWS = 1500

Floats = NDArray[np.float64]


def exact_counts(shape: tuple[int, ...]) -> Floats:
    """Uneven, dependent where there are two columns, with empty cells."""
    rng = np.random.default_rng(4)
    weights = rng.gamma(0.4, size=shape)
    return rng.multinomial(ROWS, weights.ravel() / weights.sum()).reshape(shape).astype(float)


def noise_of(law: str, scale: float, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    if law == "gaussian":
        return np.rint(rng.normal(0, scale, shape))
    return np.rint(rng.laplace(0, scale / np.sqrt(2), shape))


def follows(noisy: Floats, exact: Floats, rng: np.random.Generator) -> Floats:
    del exact, rng
    return onto_simplex(noisy.ravel(), float(ROWS)).reshape(noisy.shape)


def denoises(noisy: Floats, exact: Floats, rng: np.random.Generator) -> Floats:
    return rng.multinomial(ROWS, (exact / exact.sum()).ravel()).reshape(noisy.shape).astype(float)


def half_way(noisy: Floats, exact: Floats, rng: np.random.Generator) -> Floats:
    return (follows(noisy, exact, rng) + exact) / 2


def is_off(noisy: Floats, exact: Floats, rng: np.random.Generator) -> Floats:
    del noisy, rng
    return np.roll(exact, 1, axis=0)


TWO, FORTY, PAIR = ((2,), "gaussian", 30.0), ((40,), "laplace", 15.0), ((6, 8), "gaussian", 12.0)


@pytest.mark.parametrize(
    ("sample", "table"),
    [
        *((follows, table) for table in (TWO, FORTY, PAIR)),
        *((denoises, table) for table in (TWO, FORTY, PAIR)),
        (half_way, PAIR),
        (is_off, FORTY),
    ],
)
def test_at_least_nine_in_ten_intervals_hold(sample, table) -> None:
    """Misses are a binomial of at most a tenth, up to a false alarm in a million."""
    shape, law, scale = table
    exact = exact_counts(shape)
    rng = np.random.default_rng(9)
    misses = 0
    for _ in range(RUNS):
        noisy = exact + noise_of(law, scale, shape, rng)
        synthetic = sample(noisy, exact, rng)
        found = estimated_distance(
            noisy, np.full(shape, scale**2), law, synthetic, (float(ROWS), scale**2)
        )
        distance = np.abs(exact / exact.sum() - synthetic / synthetic.sum()).sum() / 2
        misses += not found.low <= distance <= found.high
    test = scipy.stats.binomtest(misses, RUNS, 0.1, alternative="greater")
    assert test.pvalue >= FALSE_ALARM, misses


def estimated(scale: float, synthetic: Floats, exact: Floats) -> EstimatedDistance:
    noisy = exact + noise_of("gaussian", scale, exact.shape, np.random.default_rng(1))
    variance = np.full(exact.shape, max(scale, 0.05) ** 2)
    return estimated_distance(noisy, variance, "gaussian", synthetic, (float(ROWS), scale**2))


def test_without_noise_the_distance_is_exact() -> None:
    exact = exact_counts((6, 5))
    synthetic = np.roll(exact, 1)
    distance = np.abs(exact - synthetic).sum() / 2 / ROWS
    found = estimated(0.0, synthetic, exact)
    assert found.low == pytest.approx(distance, abs=1e-3)
    assert found.high == pytest.approx(distance, abs=1e-3)


def test_more_noise_says_less() -> None:
    exact = exact_counts((40,))
    widths = [
        found.high - found.low
        for found in (estimated(scale, exact, exact) for scale in (1.0, 5.0, 25.0))
    ]
    assert widths == sorted(widths)
    assert widths[-1] > 5 * widths[0]


def test_what_noise_covers_is_not_stated() -> None:
    exact = exact_counts((40,))
    found = estimated_distance(exact, np.full(40, 1e6), "gaussian", exact, (ROWS, 1e6))
    assert (found.low, found.high) == (0.0, 1.0)


def test_a_large_table_is_estimated_from_some_of_its_cells() -> None:
    exact = exact_counts((150, 200))
    found = estimated(0.5, np.roll(exact, 1), exact)
    distance = np.abs(exact - np.roll(exact, 1)).sum() / 2 / ROWS
    assert found.low <= distance <= found.high
