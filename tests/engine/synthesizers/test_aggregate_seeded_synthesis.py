"""Records made from combinations: weights, what may follow, what is used up."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.engine.synthesizers.aggregate_seeded.aggregates import Aggregates, Level
from app.engine.synthesizers.aggregate_seeded.completion import affinities, complete
from app.engine.synthesizers.aggregate_seeded.synthesis import Rules, synthesised
from app.reports.combinations import counted

PLENTY = 10**9
AS_PUBLISHED = Rules(use_synthetic_counts=False, weight_selection_percentile=95)


def aggregates(most_items: int, *levels: dict[tuple[int, ...], int]) -> Aggregates:
    kept = Aggregates(most_items, ())
    for level in levels:
        rows = sorted(level)
        items = np.array(rows, dtype=np.int32)
        counts = np.array([level[row] for row in rows], dtype=np.int64)
        kept = Aggregates(most_items, (*kept.levels, Level(items, counts)))
    return kept


def made(
    kept: Aggregates,
    axis: list[int],
    rows: int,
    rules: Rules = AS_PUBLISHED,
    available: list[int] | None = None,
) -> NDArray[np.int32]:
    stock = np.array(available or [PLENTY] * len(axis), dtype=np.int64)
    return synthesised(kept, np.array(axis), stock, rows, rules, seed=7)


def is_share(number: int, rows: int, share: float) -> bool:
    """Within 5.5 standard deviations of a binomial: false alarm below 1e-7."""
    return abs(number - rows * share) <= 5.5 * np.sqrt(rows * share * (1 - share))


def test_up_to_the_reporting_length_weights_are_the_counts_of_the_whole() -> None:
    """The document's example: (a1, b1) with c1 counts 1, with c2 counts 5, with d1 nothing."""
    a1, b1, c1, c2, d1 = range(5)
    kept = aggregates(
        5,
        {(a1,): PLENTY, (b1,): PLENTY, (c1,): 1, (c2,): 5, (d1,): 1},
        {(a1, b1): PLENTY, (a1, c1): 1, (a1, c2): 5, (b1, c1): 1, (b1, c2): 5, (a1, d1): 1},
        {(a1, b1, c1): 1, (a1, b1, c2): 5},
    )
    rows = 3000
    records = made(kept, [0, 1, 2, 2, 3], rows)
    assert (records[:, 3] == -1).all()
    assert is_share(int((records[:, 2] == c2).sum()), rows, 5 / 6)


@pytest.mark.parametrize(("percentile", "share"), [(95, 1 / 2), (50, 10 / 60), (1, 3 / 4)])
def test_beyond_it_the_weight_is_the_percentile_of_the_counts_an_item_adds(
    percentile: float, share: float
) -> None:
    """R = 2: after (a, b), c1 adds counts 100, 10, 3 and c2 adds 100, 50, 1."""
    a, b, c1, c2 = range(4)
    kept = aggregates(
        4,
        {(a,): PLENTY, (b,): PLENTY, (c1,): 100, (c2,): 100},
        {(a, b): PLENTY, (a, c1): 10, (b, c1): 3, (a, c2): 50, (b, c2): 1},
    )
    rows = 3000
    records = made(kept, [0, 1, 2, 2], rows, Rules(False, percentile))
    assert is_share(int((records[:, 2] == c1).sum()), rows, share)


def test_an_item_with_a_missing_combination_is_no_candidate() -> None:
    a, b, c = range(3)
    kept = aggregates(3, {(a,): PLENTY, (b,): PLENTY, (c,): 1}, {(a, b): PLENTY, (a, c): 1})
    records = made(kept, [0, 1, 2], 500)
    assert not ((records[:, 1] == b) & (records[:, 2] == c)).any()


def test_no_item_is_used_more_often_than_it_is_available() -> None:
    kept = aggregates(3, {(0,): 50, (1,): 50, (2,): 100})
    records = made(kept, [0, 0, 1], 200, available=[30, 40, 100])
    assert [(records == item).sum() for item in range(3)] == [30, 40, 100]


def test_synthesised_counts_balance_what_is_drawn() -> None:
    kept = aggregates(2, {(0,): 300, (1,): 700})
    balanced = made(kept, [0, 0], 1000, Rules(True, 95))
    assert (balanced == 0).sum() == 300
    plain = made(kept, [0, 0], 1000)
    assert is_share(int((plain == 0).sum()), 1000, 0.3)
    assert (plain == 0).sum() != 300  # 1 in 36 by chance; the seed is fixed


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.booleans(), st.sampled_from([1.0, 50.0, 95.0]))
def test_no_combination_is_made_that_is_not_in_the_aggregates(
    seed: int, length: int, net: bool, percentile: float
) -> None:
    rng = np.random.default_rng(seed)
    axis = np.repeat(np.arange(5), 3)
    table = (rng.integers(0, 3, (12, 5)) + 3 * np.arange(5)).astype(np.int32)
    kept = counted(table, 15, length)
    records = made(kept, axis.tolist(), 40, Rules(net, percentile))
    for size in range(1, length + 1):
        for columns in combinations(range(5), size):
            part = records[:, columns]
            assert kept.holds(part[(part >= 0).all(axis=1)]).all()
    if length > 1:
        assert ((records >= 0) <= (records // 3 == np.arange(5))).all()


def test_the_same_seed_makes_the_same_records() -> None:
    table = (np.random.default_rng(0).integers(0, 3, (50, 4)) + 3 * np.arange(4)).astype(np.int32)
    kept = counted(table, 12, 2)
    axis = np.repeat(np.arange(4), 3).tolist()
    assert made(kept, axis, 50).tolist() == made(kept, axis, 50).tolist()


def test_open_places_are_filled_from_what_is_left_and_what_goes_together() -> None:
    kept = aggregates(4, {(0,): 50, (1,): 50, (2,): 50, (3,): 50}, {(0, 2): 50, (1, 3): 50})
    axis = np.array([0, 0, 1, 1])
    records = np.array([[0, -1]] * 50 + [[1, -1]] * 50, dtype=np.int32)
    available = np.array([0, 0, 50, 50])
    table = affinities(kept, axis, 100, unseen=1.0)
    complete(records, np.array([1]), axis, available, np.ones(4, np.int64), table, seed=3)
    assert available.tolist() == [0, 0, 0, 0]
    # observed over expected is 2 for (0, 2) and 1/25 for the pair that was not kept
    assert (records[:50, 1] == 2).sum() > 40


def test_without_anything_left_the_fallback_weighs_and_nothing_leaves_the_place_open() -> None:
    axis = np.array([0, 0, 1])
    table = np.zeros((3, 3), dtype=np.float32)
    records = np.full((5, 2), -1, dtype=np.int32)
    complete(
        records, np.array([0, 1]), axis, np.zeros(3, np.int64), np.array([0, 1, 0]), table, seed=0
    )
    assert records.tolist() == [[1, -1]] * 5
