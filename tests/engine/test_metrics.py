from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.metrics import (
    SPRINT3_EDGES,
    SPRINT3_GROUP,
    conjunction_score,
    pair_score,
    share_score,
    sprint1,
    sprint3,
)

Table = dict[str, np.ndarray]


def table(**columns: list[int]) -> Table:
    return {name: np.array(values, dtype=np.int64) for name, values in columns.items()}


def trips(rows: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    names = (*SPRINT3_GROUP, *SPRINT3_EDGES)
    return {name: rng.integers(-1, 5, rows) for name in names} | {
        "taxi_id": rng.integers(0, 4, rows)
    }


def test_pairs_in_a_group_are_compared_by_their_shares() -> None:
    real = table(g=[0, 0, 0, 0], a=[0, 0, 1, 1], b=[0, 0, 1, 1])
    synthetic = table(g=[0, 0], a=[0, 1], b=[0, 0])
    # (0, 0): 1/2 and 1/2; (1, 1): 1/2 and 0; (1, 0): 0 and 1/2. The distance is 1.
    assert pair_score(real, synthetic, ["g"], ["a", "b"]) == pytest.approx(0.5)


def test_a_group_that_one_side_lacks_is_as_far_as_can_be_and_weighs_as_any() -> None:
    real = table(g=[0, 0, 1], h=[5, 5, 5], a=[0, 1, 0], b=[0, 1, 0])
    synthetic = table(g=[0, 0], h=[5, 5], a=[0, 1], b=[0, 1])
    assert pair_score(real, synthetic, ["g", "h"], ["a", "b"]) == pytest.approx(1 - (0 + 2) / 2 / 2)
    assert pair_score(synthetic, real, ["g", "h"], ["a", "b"]) == pytest.approx(0.5)


def test_every_pair_of_columns_weighs_the_same() -> None:
    real = table(g=[0, 0], a=[0, 1], b=[0, 1], c=[0, 0])
    synthetic = table(g=[0, 0], a=[0, 1], b=[1, 0], c=[0, 0])
    # (a, b) shares no cell (2); (a, c) and (b, c) are equal (0).
    assert pair_score(real, synthetic, ["g"], ["a", "b", "c"]) == pytest.approx(1 - 2 / 3 / 2)


def test_the_map_is_compared_by_shares() -> None:
    real = table(x=[0, 0, 1, 1], y=[0, 0, 1, 1])
    assert share_score(real, table(x=[0, 0, 0, 1], y=[0, 0, 0, 1]), ["x", "y"]) == 0.75
    assert share_score(real, table(x=[0], y=[1]), ["x", "y"]) == 0
    assert share_score(real, table(x=[], y=[]), ["x", "y"]) == 0


def test_entities_are_alike_within_a_tolerance_of_5_to_50() -> None:
    busy = table(id=[7] * 60, s=[0] * 60)
    near = table(id=[1] * 55, s=[0] * 55)
    far = table(id=[1] * 9, s=[0] * 9)
    rng = np.random.default_rng
    assert conjunction_score(busy, near, "id", ["s"], rng(0)) == 1
    assert conjunction_score(busy, far, "id", ["s"], rng(0)) == 0


def test_shares_of_entities_within_tolerance_are_compared() -> None:
    real = table(id=[0, 1], s=[0, 0])
    synthetic = table(id=[0] + [1] * 60 + [2] * 60 + [3], s=[0] * 122)
    assert conjunction_score(real, synthetic, "id", ["s"], np.random.default_rng(0)) == 0.5


def test_a_count_out_of_tolerance_in_one_column_is_enough() -> None:
    real = table(id=[0] * 60, s=[0] * 60, p=[3] * 60)
    synthetic = table(id=[0] * 60, s=[0] * 60, p=[4] * 60)
    assert conjunction_score(real, synthetic, "id", ["s", "p"], np.random.default_rng(0)) == 0


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 100))
def test_scores_lie_between_0_and_1000_and_a_table_is_nearest_to_itself(
    rows: int, other_rows: int, seed: int
) -> None:
    real, synthetic = trips(rows, seed), trips(other_rows, seed + 1)
    perfect = sprint3(real, real, np.random.default_rng(seed))
    assert perfect.mean == pytest.approx(1000)
    score = sprint3(real, synthetic, np.random.default_rng(seed))
    assert all(-1e-9 <= part <= 1000 + 1e-9 for part in (score.pairs, score.places, score.taxis))


@pytest.mark.parametrize(("fare", "score"), [(9, 1000), (10, 750), (0, 1000), (-1, 750)])
def test_bins_of_sprint_3_are_closed_on_the_left(fare: int, score: float) -> None:
    real = trips(1, 0) | table(fare=[5])
    # 7 of the 28 pairs hold the fare.
    found = sprint3(real, real | table(fare=[fare]), np.random.default_rng(0))
    assert found.pairs == pytest.approx(score)


def test_an_empty_table_scores_nothing_but_does_not_fail() -> None:
    nothing = {name: values[:0] for name, values in trips(1, 0).items()}
    found = sprint3(trips(5, 0), nothing, np.random.default_rng(0))
    assert (found.pairs, found.places) == (0, 0)


def score_of(real: list[int], synthetic: list[int]) -> float:
    return sprint1(np.array([real]), np.array([synthetic]))


def test_equal_shares_score_1_whatever_the_size() -> None:
    assert score_of([10, 30], [20, 60]) == 1
    assert score_of([0, 0], [0, 0]) == 1


def test_divergence_is_that_of_jensen_and_shannon_in_bits() -> None:
    # Shares (1, 0) and (1/2, 1/2) less the misleading type: JSD = 0.311278...
    assert score_of([10, 0], [5, 5]) == pytest.approx(1 - 0.3112781 - 0.2)
    assert score_of([10, 10], [20, 0]) == pytest.approx(1 - 0.3112781)


def test_shares_under_5_percent_do_not_count() -> None:
    assert score_of([100, 0], [96, 4]) == 1
    assert score_of([100, 0], [94, 6]) < 0.8


def test_a_total_off_by_more_than_500_costs_a_quarter() -> None:
    assert score_of([100], [600]) == 1
    assert score_of([100], [601]) == 0.75


def test_one_empty_side_scores_0_and_no_month_scores_less() -> None:
    assert score_of([10, 0], [0, 0]) == 0
    assert score_of([0] * 5 + [10], [3] * 5 + [0]) == 0


def test_months_add_up() -> None:
    real = np.array([[[10, 30], [1, 0]], [[5, 5], [10, 0]]])
    synthetic = np.array([[[1, 3], [0, 1]], [[5, 5], [5, 5]]])
    assert sprint1(real, synthetic) == pytest.approx(2 + 0 + (1 - 0.3112781 - 0.2))
