from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.privacy.loss import PrivacyLoss
from app.engine.synthesizers.aim.budget import Schedule, expected_winners

RHO = PrivacyLoss.zcdp(12_000)
EPSILON = PrivacyLoss.pure(12_000)


def test_a_run_starts_as_if_for_three_winners_a_column() -> None:
    schedule = Schedule.start(RHO, 0.1, 4)
    assert schedule.cost == 1000
    assert schedule.select.amount == pytest.approx(100, abs=1)


def test_wide_tables_expect_a_winner_for_each_column() -> None:
    assert [expected_winners(columns) for columns in (1, 20, 35, 100)] == [3, 60, 60, 100]


@pytest.mark.parametrize(("loss", "times"), [(RHO, 4), (EPSILON, 2)])
def test_half_the_noise_costs_four_times_the_rho_or_twice_the_epsilon(
    loss: PrivacyLoss, times: int
) -> None:
    schedule = Schedule.start(loss, 0.1, 4)
    assert schedule.annealed().select.amount == times * schedule.select.amount
    assert schedule.annealed().measure.amount == times * schedule.measure.amount


def test_rounds_cost_what_the_schedule_says_until_the_last() -> None:
    schedule = Schedule.start(RHO, 0.1, 4)
    assert schedule.next_round(PrivacyLoss.zcdp(12_000), 3) == (schedule, 3)
    assert schedule.next_round(PrivacyLoss.zcdp(4000), 3) == (schedule, 3)


@pytest.mark.parametrize(("left", "winners"), [(3999, 3), (2500, 2), (1000, 1), (300, 1)])
def test_the_last_round_divides_all_that_is_left(left: int, winners: int) -> None:
    last, number = Schedule.start(RHO, 0.1, 4).next_round(PrivacyLoss.zcdp(left), 3)
    assert number == winners
    assert last.cost == left // number
    assert last.select.amount == pytest.approx(left / number / 10, abs=1)


@given(st.integers(1, 10**15), st.integers(1, 40), st.integers(1, 20), st.lists(st.booleans()))
def test_no_sequence_of_rounds_overspends_or_pays_a_winner_less_than_before(
    amount: int, columns: int, most: int, stills: list[bool]
) -> None:
    schedule = Schedule.start(PrivacyLoss.zcdp(amount), 0.1, columns)
    left = amount
    for still in stills:
        used, winners = schedule.next_round(PrivacyLoss.zcdp(left), most)
        assert used.cost >= min(schedule.cost, left // winners)
        left -= winners * used.cost
        assert left >= 0
        if used is not schedule:
            break
        schedule = schedule.annealed() if still else schedule
