"""A library is told no more than was charged, and on entity units a part in max_rows squared."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.adapters.budget import library_guarantee, rho_of_rows
from app.engine.privacy.accounting import rho_for
from app.engine.privacy.loss import AmountError, PrivacyLoss
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit

ROW = PrivacyUnit("row")
RHOS = st.integers(10**6, 10**14)


def entity(most: int) -> PrivacyUnit:
    return PrivacyUnit("entity", "id", most)


@given(RHOS)
def test_on_a_row_unit_the_library_gets_the_whole_rho(rho: int) -> None:
    assert rho_of_rows(UnitBudget(ROW, PrivacyLoss.zcdp(rho))) == rho


@given(RHOS, st.integers(1, 500))
def test_k_rows_of_one_entity_lose_no_more_than_was_charged(rho: int, most: int) -> None:
    row_rho = rho_of_rows(UnitBudget(entity(most), PrivacyLoss.zcdp(rho)))
    assert row_rho * most**2 <= rho
    assert row_rho == 0 or (row_rho + 1) * most**2 > rho


@settings(max_examples=25, deadline=None)
@given(st.integers(10**6, 10**13))
def test_the_pair_that_is_told_converts_to_no_more_than_the_rho(rho: int) -> None:
    pair = library_guarantee(UnitBudget(ROW, PrivacyLoss.zcdp(rho)))
    back = rho_for(int(pair.epsilon * 10**12), int(pair.delta * 10**18))
    assert back <= rho
    assert back >= rho * 0.999 - 2
    assert pair.rho == rho / 10**12


def test_a_pure_loss_and_one_too_small_to_divide_are_refused() -> None:
    for loss, unit in (
        (PrivacyLoss.pure(10**12), ROW),
        (PrivacyLoss.zcdp(10**10), entity(200)),
    ):
        assert rho_of_rows(UnitBudget(unit, loss)) == 0
        with pytest.raises(AmountError):
            library_guarantee(UnitBudget(unit, loss))
