"""The published formulas of `aggregate_seeded`, on cases worked by hand."""

from __future__ import annotations

from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from aggregate_formulas import quantile_epsilon, sigmas
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.engine.privacy.loss import PrivacyLoss
from app.engine.synthesizers.aggregate_seeded.aggregates import Aggregates, Level, candidates
from app.engine.synthesizers.aggregate_seeded.budget import (
    BudgetWeights,
    adaptive_threshold,
    first_threshold,
)
from app.engine.synthesizers.aggregate_seeded.params import AggregateSeededParams
from app.reports.combinations import combination_errors, counted


def items(*rows: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(rows, dtype=np.int32)


def counts(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_sigmas_spend_what_the_percentiles_leave() -> None:
    scales = sigmas(0.02, 0.01, (1, 1 / 2, 1 / 3))  # 1 + 4 + 9 = 14; sqrt(14 / 0.0396)
    assert scales == pytest.approx((18.80253, 9.40127, 6.26751), rel=1e-5)
    assert sum(1 / (2 * scale**2) for scale in scales) == pytest.approx(0.02 * 0.99)


def test_the_split_of_a_budget_has_these_sigmas_and_exceeds_nothing() -> None:
    loss = PrivacyLoss.zcdp(20 * 10**9)  # rho 0.02
    budget = BudgetWeights(0.005, 0.01, (1, 1 / 2, 1 / 3)).split(loss)
    expected = sigmas(0.02 * 0.995, 0.01, (1, 1 / 2, 1 / 3))
    assert [budget.sigma(length) for length in (1, 2, 3)] == pytest.approx(expected, rel=1e-6)
    assert budget.size.value == pytest.approx(0.005 * 0.02)
    epsilon = quantile_epsilon(0.02 * 0.995, 0.01, 3)
    assert [part.value for part in budget.percentiles] == pytest.approx([epsilon**2 / 8] * 3)
    spent = budget.size.amount
    spent += sum(part.amount for part in budget.percentiles + budget.counts)
    assert loss.amount - 7 <= spent <= loss.amount


def test_the_first_threshold() -> None:
    assert first_threshold(10, 1, 0.05) == pytest.approx(1 + 10 * 1.959964, rel=1e-6)
    quantile = NormalDist().inv_cdf(0.975 ** (1 / 4))
    assert first_threshold(10, 4, 0.05) == pytest.approx(1 + 10 * 2 * quantile, rel=1e-6)


def test_an_adaptive_threshold_grows_with_the_limit_of_its_own_length() -> None:
    assert adaptive_threshold(2, 9, 0.1) == pytest.approx(2 * 3 * 1.644854, rel=1e-6)
    assert adaptive_threshold(2, 9, 1.0) == 0


@pytest.mark.parametrize(
    ("mode", "etas"),
    [
        ("uncontrolled", (1, 1, 1)),
        ("progressive", (0.1, 0.55, 1)),
        ("balanced", (0.55, 1, 1)),
        ("minimise", (0.01, 0.01, 0.01)),
        ("graded", (0.01, 0.1, 1)),
        ({"type": "adaptive", "values": [0.3, 0.2, 0.1]}, (0.3, 0.2, 0.1)),
    ],
)
def test_the_modes_of_fabrication(mode: Any, etas: tuple[float, ...]) -> None:
    params = AggregateSeededParams.model_validate({"reporting_length": 4, "fabrication_mode": mode})
    assert params.etas == pytest.approx(etas)


@pytest.mark.parametrize(
    ("choice", "proportions"),
    [
        ("long", (1, 1 / 2, 1 / 3)),
        ("short", (1 / 3, 1 / 2, 1)),
        ("balanced", (1, 1, 1)),
        ([3, 2, 1], (3, 2, 1)),
    ],
)
def test_the_proportions_of_sigma(choice: Any, proportions: tuple[float, ...]) -> None:
    params = AggregateSeededParams.model_validate({"sigma_proportions": choice})
    assert params.proportions == pytest.approx(proportions)


@pytest.mark.parametrize(
    "form",
    [
        {"sigma_proportions": [1, 1]},
        {"sigma_proportions": [1, 1, 0]},
        {"fabrication_mode": {"type": "fixed", "values": [10]}},
        {"fabrication_mode": {"type": "adaptive", "values": [0.5, 1.5]}},
        {"reporting_length": 0},
        {"percentile_epsilon_proportion": 1},
    ],
    ids=str,
)
def test_forms_that_do_not_fit_are_refused(form: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AggregateSeededParams.model_validate(form)


def test_counts_are_capped_at_the_smallest_part() -> None:
    """The document's example: 25 for (a1, b1), 30 and 40 for it with c1 and c2."""
    singles = Level(items((0,), (1,), (2,), (3,)), counts(90, 90, 90, 90))
    pairs = Level(items((0, 1), (0, 2), (0, 3), (1, 2), (1, 3)), counts(25, 60, 60, 60, 60))
    kept = Aggregates(4, (singles, pairs)).with_level(
        items((0, 1, 2), (0, 1, 3)), counts(30, 40), 0.0
    )
    assert kept.levels[2].counts.tolist() == [25, 25]


def test_only_counts_above_the_threshold_are_kept() -> None:
    kept = Aggregates(4, ()).with_level(items((0,), (1,), (2,), (3,)), counts(-3, 0, 20, 21), 20)
    assert kept.levels[0].items.tolist() == [[3]]
    assert Aggregates(2, ()).with_level(items((0,), (1,)), counts(0, 1), 0).levels[0].counts == [1]


def test_candidates_are_all_combinations_whose_every_part_survived() -> None:
    axis = np.array([0, 0, 1, 1, 2])
    singles = Level(items((0,), (1,), (3,), (4,)), counts(5, 5, 5, 5))  # item 2 did not survive
    assert candidates(singles, axis, 100).tolist() == [[0, 3], [0, 4], [1, 3], [1, 4], [3, 4]]
    pairs = Level(items((0, 3), (0, 4), (1, 3), (3, 4)), counts(5, 5, 5, 5))
    assert candidates(pairs, axis, 100).tolist() == [[0, 3, 4]]  # (1, 4) did not survive
    assert candidates(Level(items((0, 3, 4)), counts(5)), axis, 100).shape == (0, 4)


def test_too_many_candidates_leave_out_the_parts_of_the_smallest_counts() -> None:
    axis = np.array([0, 0, 1, 1])
    singles = Level(items((0,), (1,), (2,), (3,)), counts(9, 1, 2, 8))
    assert candidates(singles, axis, 3).tolist() == [[0, 3]]


def test_suppressed_fabricated_and_combination_errors_by_length() -> None:
    original = counted(items((0, 2), (0, 2), (0, 3), (1, -1)), 4, 2)
    assert original.levels[0].counts.tolist() == [3, 1, 2, 1]
    reported = counted(items((0, 2), (0, 3), (1, 3), (0, -1)), 4, 2)
    one, two = combination_errors(original, reported)
    assert (one.suppressed, one.fabricated) == (0, 0)
    # items 0 to 3: 3, 1, 2, 1 against 3, 1, 1, 2
    assert (one.mean_error, one.mean_count) == (0.5, 1.75)
    # pairs (0, 2) 2 and (0, 3) 1 against (0, 2) 1, (0, 3) 1, (1, 3) 1
    assert two.suppressed == 0
    assert two.fabricated == pytest.approx(1 / 3)
    assert two.combination_error == pytest.approx(0.5 / 1.5)
    backwards = combination_errors(reported, original)[1]
    assert backwards.suppressed == pytest.approx(1 / 3)


@given(
    st.lists(
        st.tuples(st.integers(-1, 2), st.sampled_from([-1, 3, 4]), st.integers(5, 6)), max_size=9
    ),
    st.booleans(),
    st.sampled_from([7, 2**31 - 1]),  # with as many items a combination is no number of 63 bits
)
def test_combinations_are_counted_of_rows_or_of_the_units_that_have_them(
    rows: list[tuple[int, ...]], of_units: bool, most_items: int
) -> None:
    owners = np.arange(len(rows)) % 3
    table = np.array(rows, dtype=np.int32).reshape(len(rows), 3)
    found = counted(table, most_items, 3, owners if of_units else None)
    for length, level in enumerate(found.levels, 1):
        having: dict[tuple[int, ...], list[int]] = {}
        for number, row in enumerate(rows):
            for combination in combinations(row, length):
                if min(combination) >= 0:
                    having.setdefault(combination, []).append(number % 3 if of_units else number)
        plain = {each: len(set(numbers)) for each, numbers in having.items()}
        assert level.items.tolist() == sorted(list(each) for each in plain)
        assert level.counts.tolist() == [plain[each] for each in sorted(plain)]
