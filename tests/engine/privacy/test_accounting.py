from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.privacy.accounting import (
    BudgetNotAccepted,
    Caps,
    GuaranteeNotAccepted,
    account_caps,
    delta_of,
    epsilon_for,
    largest_epsilon,
    open_guarantee,
    pure_as_rho,
    rho_for,
)
from app.engine.privacy.loss import Accountant, AmountError, Charge, Guarantee, PrivacyLoss

ONE = 10**12
MICRO_DELTA = 10**12  # 1e-6
BASIC, ZCDP = Accountant.BASIC, Accountant.ZCDP

epsilons = st.integers(10**6, 10**14)
deltas = st.integers(1, 10**17)
rhos = st.integers(10**6, 10**14)


def conversion_by_grid(rho: float, epsilon: float) -> float:
    """The same minimum, found the slow way and with floats."""
    excesses = (math.exp(step / 500) for step in range(-8000, 12000))
    return min(
        math.exp(
            min(
                excess * ((1 + excess) * rho - epsilon)
                - math.log(excess)
                - (1 + excess) * math.log1p(1 / excess),
                0.0,
            )
        )
        for excess in excesses
    )


def test_the_worked_example_of_the_design() -> None:
    cap = rho_for(10 * ONE, MICRO_DELTA)
    release = rho_for(ONE, MICRO_DELTA)
    assert round(cap / ONE, 5) == 1.53928
    assert round(release / ONE, 7) == 0.0243560
    assert round(cap / release, 1) == 63.2
    assert cap // release == 63


def test_with_a_tenth_of_delta_set_aside_62_releases_fit() -> None:
    caps = account_caps(10 * ONE, MICRO_DELTA, ZCDP, MICRO_DELTA // 10)
    charge, _ = open_guarantee(Guarantee(epsilon=ONE, delta=MICRO_DELTA), ZCDP)
    assert caps.delta == MICRO_DELTA // 10
    assert caps.primary // charge.primary == 62


def test_on_basic_one_release_takes_all_of_delta() -> None:
    caps = account_caps(10 * ONE, MICRO_DELTA, BASIC)
    charge, _ = open_guarantee(Guarantee(epsilon=ONE, delta=MICRO_DELTA), BASIC)
    smaller, _ = open_guarantee(Guarantee(epsilon=ONE, delta=MICRO_DELTA // 10), BASIC)
    assert caps.delta // charge.delta == 1
    assert min(caps.delta // smaller.delta, caps.primary // smaller.primary) == 10


@pytest.mark.parametrize("rho", [1e-4, 0.0243560, 0.5, 1.53928, 20.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 60.0])
def test_delta_is_the_minimum_over_alpha(rho: float, epsilon: float) -> None:
    units = delta_of(round(rho * ONE), round(epsilon * ONE))
    expected = conversion_by_grid(rho, epsilon)
    assert units / 1e18 == pytest.approx(expected, rel=1e-4, abs=2e-18)


def test_a_delta_below_one_unit_is_one_unit() -> None:
    assert delta_of(ONE // 100, 60 * ONE) == 1


def test_a_loss_of_zero_has_no_delta() -> None:
    assert delta_of(0, ONE) == 0
    assert epsilon_for(0, MICRO_DELTA) == 0
    assert rho_for(ONE, 0) == 0


@settings(max_examples=60, deadline=None)
@given(epsilons, deltas)
def test_rho_is_the_largest_that_keeps_the_guarantee(epsilon: int, delta: int) -> None:
    rho = rho_for(epsilon, delta)
    assert delta_of(rho, epsilon) <= delta < delta_of(rho + 1, epsilon)


@settings(max_examples=60, deadline=None)
@given(rhos, deltas)
def test_epsilon_is_the_smallest_that_covers_rho(rho: int, delta: int) -> None:
    epsilon = epsilon_for(rho, delta)
    assert delta_of(rho, epsilon) <= delta
    assert epsilon == 0 or delta_of(rho, epsilon - 1) > delta


@settings(max_examples=60, deadline=None)
@given(epsilons)
def test_a_pure_loss_is_rounded_up_into_rho(epsilon: int) -> None:
    rho = pure_as_rho(epsilon)
    assert 2 * ONE * (rho - 1) < epsilon * epsilon <= 2 * ONE * rho


@pytest.mark.parametrize(
    ("guarantee", "accountant", "aside", "charge", "loss"),
    [
        (Guarantee(epsilon=ONE), BASIC, 0, Charge(ONE), PrivacyLoss.pure(ONE)),
        (Guarantee(epsilon=ONE, delta=0), BASIC, 0, Charge(ONE), PrivacyLoss.pure(ONE)),
        (Guarantee(epsilon=ONE), ZCDP, 0, Charge(ONE // 2), PrivacyLoss.pure(ONE)),
        (
            Guarantee(epsilon=ONE, delta=MICRO_DELTA),
            BASIC,
            0,
            Charge(ONE, MICRO_DELTA),
            PrivacyLoss.zcdp(24355970359),
        ),
        (
            Guarantee(epsilon=ONE, delta=MICRO_DELTA + 5),
            BASIC,
            5,
            Charge(ONE, MICRO_DELTA + 5),
            PrivacyLoss.zcdp(24355970359, 5),
        ),
        (
            Guarantee(epsilon=ONE, delta=MICRO_DELTA + 5),
            ZCDP,
            5,
            Charge(24355970359, 5),
            PrivacyLoss.zcdp(24355970359, 5),
        ),
        (Guarantee(rho=ONE), ZCDP, 0, Charge(ONE), PrivacyLoss.zcdp(ONE)),
    ],
)
def test_what_is_booked_and_what_the_session_opens_with(
    guarantee: Guarantee, accountant: Accountant, aside: int, charge: Charge, loss: PrivacyLoss
) -> None:
    assert open_guarantee(guarantee, accountant, aside) == (charge, loss)


def test_rho_is_booked_at_the_delta_that_approximate_steps_leave() -> None:
    aside = MICRO_DELTA // 10
    asked = Guarantee(rho=ONE // 10, delta=MICRO_DELTA)
    charge, loss = open_guarantee(asked, BASIC, aside)
    assert charge == Charge(epsilon_for(ONE // 10, MICRO_DELTA - aside), MICRO_DELTA)
    assert loss == PrivacyLoss.zcdp(ONE // 10, aside)


def test_rho_with_delta_is_booked_in_epsilon_on_basic() -> None:
    charge, loss = open_guarantee(Guarantee(rho=24355970359, delta=MICRO_DELTA), BASIC)
    assert charge.delta == MICRO_DELTA
    assert 0 <= ONE - charge.primary < 100
    assert loss == PrivacyLoss.zcdp(24355970359)


@pytest.mark.parametrize(
    ("guarantee", "accountant", "aside", "pointer"),
    [
        (Guarantee(rho=ONE, delta=MICRO_DELTA), ZCDP, 0, "/guarantee/delta"),
        (Guarantee(rho=ONE), BASIC, 0, "/guarantee"),
        (Guarantee(rho=ONE), ZCDP, 5, "/guarantee"),
        (Guarantee(epsilon=ONE), BASIC, 5, "/guarantee/delta"),
        (Guarantee(epsilon=ONE, delta=5), ZCDP, 5, "/guarantee/delta"),
        (Guarantee(epsilon=2**61), ZCDP, 0, "/guarantee"),
        (Guarantee(epsilon=10**6, delta=1), BASIC, 0, "/guarantee"),
    ],
)
def test_a_guarantee_the_account_cannot_book_says_where_and_what_to_do(
    guarantee: Guarantee, accountant: Accountant, aside: int, pointer: str
) -> None:
    with pytest.raises(GuaranteeNotAccepted) as refusal:
        open_guarantee(guarantee, accountant, aside)
    assert refusal.value.pointer == pointer
    assert refusal.value.remedy


@pytest.mark.parametrize(
    ("epsilon", "delta", "accountant", "aside", "pointer"),
    [
        (ONE, 0, ZCDP, 0, "/budget/delta"),
        (ONE, MICRO_DELTA, ZCDP, MICRO_DELTA, "/delta_for_approximate"),
        (ONE, MICRO_DELTA, BASIC, 1, "/delta_for_approximate"),
        (0, MICRO_DELTA, BASIC, 0, "/budget/epsilon"),
        (ONE, 10**18, BASIC, 0, "/budget/delta"),
        (1, 1, ZCDP, 0, "/budget"),
    ],
)
def test_a_budget_without_a_cap_is_refused(
    epsilon: int, delta: int, accountant: Accountant, aside: int, pointer: str
) -> None:
    with pytest.raises(BudgetNotAccepted) as refusal:
        account_caps(epsilon, delta, accountant, aside)
    assert refusal.value.pointer == pointer


def test_a_pure_budget_is_a_basic_account_without_delta() -> None:
    assert account_caps(ONE, 0, BASIC) == Caps(ONE, 0)


@settings(max_examples=150, deadline=None)
@given(
    remaining=st.builds(Charge, st.integers(0, 10**14), st.integers(0, 10**14)),
    delta=st.none() | st.just(0) | st.integers(1, 10**14),
    aside=st.just(0) | st.integers(1, 10**12),
    accountant=st.sampled_from(Accountant),
)
def test_the_largest_epsilon_is_admitted_and_one_more_is_not(
    remaining: Charge, delta: int | None, aside: int, accountant: Accountant
) -> None:
    def fits(epsilon: int) -> bool:
        try:
            charge, _ = open_guarantee(Guarantee(epsilon=epsilon, delta=delta), accountant, aside)
        except GuaranteeNotAccepted:
            return False
        return charge.primary <= remaining.primary and charge.delta <= remaining.delta

    largest = largest_epsilon(remaining, Guarantee(epsilon=ONE, delta=delta), accountant, aside)
    if largest is None:
        assert not fits(10**6)
    else:
        assert fits(largest)
        assert not fits(largest + 1)


def test_the_largest_epsilon_of_a_rho_request() -> None:
    assert largest_epsilon(Charge(ONE // 2), Guarantee(rho=ONE), ZCDP) == ONE
    assert largest_epsilon(Charge(ONE, 3), Guarantee(rho=ONE, delta=3), BASIC) == ONE
    assert largest_epsilon(Charge(ONE, 2), Guarantee(rho=ONE, delta=3), BASIC) is None


def test_the_largest_epsilon_stays_accountable() -> None:
    everything = Charge(2**61, 2**60)
    request = Guarantee(epsilon=ONE, delta=10**17)
    assert largest_epsilon(everything, request, ZCDP) == 2**61


def test_amounts_out_of_range_are_refused() -> None:
    with pytest.raises(AmountError):
        delta_of(-1, ONE)
    with pytest.raises(AmountError):
        rho_for(ONE, 10**18)
    with pytest.raises(AmountError):
        epsilon_for(ONE, 0)
