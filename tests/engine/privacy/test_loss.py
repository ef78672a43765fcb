from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.privacy.loss import (
    DELTA_UNIT,
    EPSILON_UNIT,
    LARGEST_AMOUNT,
    Accountant,
    AmountError,
    Charge,
    Guarantee,
    PrivacyLoss,
    from_units,
    parse_amount,
    to_units,
)

ONE = 10**12


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", "1"),
        ("0.10", "0.1"),
        ("1e-6", "0.000001"),
        ("2.5E+1", "25"),
        ("00.5", "0.5"),
        (3, "3"),
        (Decimal("0.25"), "0.25"),
    ],
)
def test_amounts_are_read_exactly(text: Any, value: str) -> None:
    assert parse_amount(text) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        ".5",
        "5.",
        "1e",
        " 1",
        "1\n",
        "٣",
        "NaN",
        "Infinity",
        "1" * 41,
        "1e400",
        "1e-400",
        "1e999999999999999999999",
        "0e-999999999999999999999",
        True,
        0.1,
        None,
        Decimal("NaN"),
    ],
)
def test_what_is_no_amount_is_refused(text: Any) -> None:
    with pytest.raises(AmountError):
        parse_amount(text)


@given(st.decimals(0, 10**5, allow_nan=False, places=15))
def test_costs_round_up_and_caps_round_down(value: Decimal) -> None:
    exact = Fraction(value) / Fraction(EPSILON_UNIT)
    cost = to_units(value, EPSILON_UNIT, rounding="up")
    cap = to_units(value, EPSILON_UNIT, rounding="down")
    assert cap <= exact <= cost <= cap + 1


@given(st.integers(0, LARGEST_AMOUNT), st.sampled_from([EPSILON_UNIT, DELTA_UNIT]))
def test_units_survive_their_text(units: int, unit: Decimal) -> None:
    text = from_units(units, unit)
    assert "e" not in text.lower()
    assert to_units(Decimal(text), unit, rounding="down") == units


def test_ten_tenths_are_one() -> None:
    tenth = to_units(parse_amount("0.1"), EPSILON_UNIT, rounding="up")
    assert 10 * tenth == to_units(parse_amount("1.0"), EPSILON_UNIT, rounding="down")


def test_amounts_end_where_the_store_can_add_them() -> None:
    with pytest.raises(AmountError):
        to_units(Decimal("1e10"), EPSILON_UNIT, rounding="up")
    with pytest.raises(AmountError):
        Charge(LARGEST_AMOUNT + 1)
    with pytest.raises(AmountError):
        PrivacyLoss.zcdp(LARGEST_AMOUNT) + PrivacyLoss.zcdp(1)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"epsilon": ONE, "rho": ONE},
        {"epsilon": 10**6 - 1},
        {"rho": 0},
        {"epsilon": LARGEST_AMOUNT + 1},
        {"epsilon": ONE, "delta": 10**18},
        {"epsilon": ONE, "delta": -1},
    ],
)
def test_a_malformed_guarantee_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(AmountError):
        Guarantee(**fields)


def test_amounts_are_written_in_the_accounts_terms() -> None:
    assert Charge(ONE // 2, 10**12).as_wire(Accountant.BASIC) == {
        "epsilon": "0.5",
        "delta": "0.000001",
    }
    assert Charge(ONE // 2).as_wire(Accountant.ZCDP) == {"rho": "0.5", "delta": "0"}
    assert Guarantee(epsilon=ONE, delta=0).as_wire() == {"epsilon": "1", "delta": "0"}
    assert Guarantee(rho=ONE).as_wire() == {"rho": "1"}
    assert PrivacyLoss.zcdp(ONE, 5).as_wire() == {"rho": "1", "delta": "0.000000000000000005"}
    assert PrivacyLoss.pure(ONE).as_wire() == {"epsilon": "1"}


def test_losses_of_two_kinds_do_not_mix() -> None:
    with pytest.raises(AmountError):
        PrivacyLoss.pure(ONE) + PrivacyLoss.zcdp(ONE)
    with pytest.raises(AmountError):
        PrivacyLoss.pure(ONE).covers(PrivacyLoss.zcdp(0))
    with pytest.raises(AmountError):
        PrivacyLoss("pure", ONE, 1)


@given(
    st.integers(0, LARGEST_AMOUNT),
    st.integers(0, 10**18),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=6).filter(any),
)
def test_parts_never_exceed_the_whole(amount: int, delta: int, weights: list[float]) -> None:
    whole = PrivacyLoss.zcdp(amount, delta)
    total = PrivacyLoss.zcdp(0)
    for part in whole.split(weights):
        total = total + part
    assert whole.covers(total)
    assert amount - total.amount < len(weights)


def test_shares_are_not_all_zero_and_not_negative() -> None:
    for weights in ([0.0, 0.0], [1.0, -0.5]):
        with pytest.raises(AmountError):
            PrivacyLoss.pure(ONE).split(weights)
