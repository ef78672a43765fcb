"""Means, quantiles and correlations: values of a sample, intervals of what was counted."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from small_tables import colours, digits

from app.engine.privacy.queries import Contribution
from app.engine.schema import Column
from app.engine.statements.noisy import NoisyTable
from app.engine.statements.numbers import (
    CellRanges,
    SampleNumbers,
    correlation_interval,
    correlations,
    mean_interval,
    quantile_interval,
)

FALSE_ALARM = 1e-6
FARE = colours().column("fare")
PAIR = digits({"x": 10, "y": 8})


def table(columns: list[Column], values: np.ndarray, deviation: float) -> NoisyTable:
    return NoisyTable(
        tuple(column.name for column in columns),
        tuple(column.grouping for column in columns),
        Contribution(),
        values.astype(np.float64),
        np.full((1,) * len(columns), deviation**2),
        "gaussian",
    )


def ranges(column: Column) -> CellRanges:
    found = CellRanges.of(column, column.grouping)
    assert found is not None
    return found


def test_cells_have_the_range_of_their_bin_points_have_none_and_null_has_no_number() -> None:
    found = ranges(FARE)
    # Five bins of 0 to 100, the special 0, null.
    assert found.low[:5] == pytest.approx([0, 20, 40, 60, 80])
    assert found.high[:5] == pytest.approx([20, 40, 60, 80, 100], abs=1e-3)
    assert (found.low[5], found.high[5]) == (0, 0)
    assert found.known.tolist() == [True] * 6 + [False]


def test_numbers_and_nulls_in_one_cell_have_no_range() -> None:
    assert CellRanges.of(FARE, FARE.grouping.merged([0, 1, 2, 3, 4, 5, 5])) is None
    kept = CellRanges.of(FARE, FARE.grouping.merged([0, 0, 1, 1, 1, 0, 2]))
    assert kept is not None
    assert kept.low[:2] == pytest.approx([0, 40])
    assert kept.high[:2] == pytest.approx([40, 100], abs=1e-3)


def test_without_noise_a_mean_lies_within_the_ranges_of_bins() -> None:
    counts = table([FARE], np.array([10, 20, 0, 0, 10, 10, 99]), 0.01)
    low, high = (20 * 20 + 10 * 80) / 50, (10 * 20 + 20 * 40 + 10 * 100) / 50
    assert mean_interval(counts, ranges(FARE)) == pytest.approx((low, high), 0.01)


def test_without_noise_a_quantile_lies_in_its_cell() -> None:
    size = PAIR.column("x")
    counts = table([size], np.array([10, 10, 30, 50, 0, 0, 0, 0, 0, 100]), 0.01)
    assert quantile_interval(counts, ranges(size), 0.11) == (2.0, 2.0)
    assert quantile_interval(counts, ranges(size), 0.45) == (3.0, 3.0)
    # Exactly half of the rows are at 3 or below, so noise decides between 3 and 9.
    assert quantile_interval(counts, ranges(size), 0.5) == (3.0, 9.0)


def test_noise_beyond_the_counts_states_no_number() -> None:
    size = PAIR.column("x")
    counts = table([size], np.full(10, 5), 50)
    assert mean_interval(counts, ranges(size)) is None
    assert quantile_interval(counts, ranges(size), 0.5) is None
    both = table([size, PAIR.column("y")], np.full((10, 8), 1), 50)
    assert correlation_interval(both, (ranges(size), ranges(PAIR.column("y")))) is None


def test_at_least_nine_in_ten_intervals_of_numbers_hold() -> None:
    rng = np.random.default_rng(3)
    x = rng.binomial(9, 0.3, 2000)
    y = np.minimum(x // 2 + rng.integers(0, 4, 2000), 7)
    exact = np.zeros((10, 8))
    np.add.at(exact, (x, y), 1)
    columns = [PAIR.column("x"), PAIR.column("y")]
    bounds = ranges(columns[0]), ranges(columns[1])
    true = float(np.corrcoef(x, y)[0, 1])
    median = float(np.quantile(x, 0.5, method="inverted_cdf"))
    misses, runs = np.zeros(3), 200
    for _ in range(runs):
        both = table(columns, exact + rng.normal(0, 4, exact.shape), 4)
        one = table(columns[:1], exact.sum(axis=1) + rng.normal(0, 30, 10), 30)
        found = (
            (x.mean(), mean_interval(one, bounds[0])),
            (median, quantile_interval(one, bounds[0], 0.5)),
            (true, correlation_interval(both, bounds)),
        )
        for place, (value, interval) in enumerate(found):
            assert interval is not None
            misses[place] += not interval[0] <= value <= interval[1]
    for missed in misses:
        assert (
            scipy.stats.binomtest(int(missed), runs, 0.1, alternative="greater").pvalue
            >= FALSE_ALARM
        )


def test_a_correlation_leaves_room_for_the_width_of_bins() -> None:
    wide = colours().column("fare")
    size = colours().column("size")
    counts = np.zeros((7, 10))
    for cell in range(5):
        counts[cell, 2 * cell] = 100
    interval = correlation_interval(table([wide, size], counts, 0.01), (ranges(wide), ranges(size)))
    assert interval is not None
    low, high = interval
    assert low < 0.96 < high


def test_figures_of_a_sample_leave_nulls_out() -> None:
    codes = np.array([FARE.regular, FARE.regular, 0, FARE.regular - 1, FARE.null_code])
    numbers = SampleNumbers.of(FARE, codes)
    assert numbers.mean == 25
    assert [numbers.quantile(q) for q in (0.5, 0.75, 0.9)] == [0, 0, 100]
    assert SampleNumbers.of(FARE, codes[-1:]).mean is None
    assert SampleNumbers.of(FARE, codes[-1:]).quantile(0.5) is None


def test_correlations_are_of_rows_where_both_have_a_number() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(1e6, 1, 500)
    y = x + rng.normal(0, 1, 500)
    constant = np.full(500, 3.0)
    y[::7] = np.nan
    kept = ~np.isnan(y)
    parts = slice(0, 200), slice(200, None)
    halves = [[each[part] for each in (x, y, constant)] for part in parts]
    found = correlations(halves)
    assert found[0, 1] == pytest.approx(np.corrcoef(x[kept], y[kept])[0, 1])
    assert np.isnan(found[0, 2])
    assert np.isnan(found[2, 2])
