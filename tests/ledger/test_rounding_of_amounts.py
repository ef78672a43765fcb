"""Which way amounts of requests are rounded to units: costs up, caps down."""

from __future__ import annotations

from decimal import Decimal

import pytest

from app.engine.privacy.accounting import delta_of
from app.engine.privacy.loss import Accountant, Charge
from app.ledger.accounts import Budget
from app.ledger.as_epsilon import EpsilonAtDelta
from app.ledger.schemas import AllowanceIn, GuaranteeIn
from app.ledger.terms import Allowance, Terms

# Just above a whole number of units: of 1e-12 of epsilon or rho, of 1e-18 of delta.
EPSILON = "0.1000000000001"
DELTA = "0.0000001000000000001"


@pytest.mark.parametrize("primary", ["epsilon", "rho"])
@pytest.mark.parametrize("delta", [None, DELTA])
def test_a_guarantee_costs_at_least_what_was_asked(primary: str, delta: str | None) -> None:
    asked = GuaranteeIn.model_validate({primary: EPSILON, "delta": delta}).to_guarantee()
    assert getattr(asked, primary) == 10**11 + 1
    assert asked.delta == (None if delta is None else 10**11 + 1)


def test_an_account_is_charged_what_was_rounded_up() -> None:
    asked = GuaranteeIn.model_validate({"epsilon": EPSILON, "delta": DELTA}).to_guarantee()
    assert Terms.of(asked, Accountant.BASIC).charge == Charge(10**11 + 1, 10**11 + 1)


@pytest.mark.parametrize("accountant", list(Accountant))
def test_an_allowance_is_no_more_than_what_was_granted(accountant: Accountant) -> None:
    primary = "epsilon" if accountant is Accountant.BASIC else "rho"
    granted = AllowanceIn.model_validate({primary: EPSILON, "delta": DELTA})
    assert granted.to_allowance(accountant) == Allowance(Charge(10**11, 10**11))


def test_an_allowance_in_epsilon_is_the_rho_that_it_covers_at_its_delta() -> None:
    granted = AllowanceIn.model_validate(
        {"epsilon": EPSILON, "delta": "1e-6", "delta_for_approximate": DELTA}
    )
    allowance = granted.to_allowance(Accountant.ZCDP)
    assert allowance.stated == EpsilonAtDelta(10**11, 10**12)
    assert allowance.cap.delta == 10**11
    assert delta_of(allowance.cap.primary, 10**11) <= 10**12 - 10**11
    assert delta_of(allowance.cap.primary + 1, 10**11) > 10**12 - 10**11


def test_a_budget_is_no_more_than_what_was_declared() -> None:
    declared = Budget.declared(
        Decimal(EPSILON), 2 * Decimal(DELTA), Decimal(DELTA), Accountant.ZCDP
    )
    assert (declared.epsilon, declared.delta) == (10**11, 2 * 10**11)
    assert declared.delta_for_approximate == 10**11
