"""Use-cases of accounts: declaring a budget, opening one, joining it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy.orm import Session

from app.database import new_id, now
from app.engine.privacy.accounting import Caps, GuaranteeNotAccepted, account_caps
from app.engine.privacy.loss import (
    DELTA_UNIT,
    EPSILON_UNIT,
    Accountant,
    AmountError,
    Charge,
    from_units,
    to_units,
)
from app.ledger import repository
from app.ledger.entries import AccountSuspended, append, forget_amounts
from app.ledger.models import AccountRow
from app.ledger.repository import Head
from app.problems import Invalid


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget as declared, rounded down to units, and the caps that it gives."""

    epsilon: int
    delta: int
    delta_for_approximate: int
    caps: Caps

    @classmethod
    def declared(
        cls,
        epsilon: Decimal,
        delta: Decimal,
        delta_for_approximate: Decimal,
        accountant: Accountant,
        *,
        within: str = "/budget",
    ) -> Budget:
        """Raises `Invalid` that points at the field, `within` being where the budget stands."""
        units = (
            _cap_units(epsilon, EPSILON_UNIT, f"{within}/epsilon"),
            _cap_units(delta, DELTA_UNIT, f"{within}/delta"),
        )
        for_approximate = _cap_units(delta_for_approximate, DELTA_UNIT, "/delta_for_approximate")
        try:
            return cls(*units, for_approximate, account_caps(*units, accountant, for_approximate))
        except GuaranteeNotAccepted as error:
            raise Invalid.at(
                error.pointer.replace("/budget", within, 1), error.message, error.remedy
            ) from None

    @classmethod
    def of(cls, account: AccountRow) -> Budget:
        """The budget in force."""
        return cls(
            account.budget_epsilon,
            account.budget_delta,
            account.delta_for_approximate,
            Caps(account.cap_primary, account.cap_delta),
        )

    def as_detail(self) -> dict[str, Any]:
        """How the ledger's entries state it, in exact decimal text."""
        return {
            "budget": {
                "epsilon": from_units(self.epsilon, EPSILON_UNIT),
                "delta": from_units(self.delta, DELTA_UNIT),
            },
            "delta_for_approximate": from_units(self.delta_for_approximate, DELTA_UNIT),
        }


def _cap_units(value: Decimal, unit: Decimal, pointer: str) -> int:
    try:
        # Budgets round down and costs round up, so that rounding never lets more be spent than was
        # declared.
        return to_units(value, unit, rounding="down")
    except AmountError as error:
        raise Invalid.at(pointer, str(error), "State a smaller amount.") from None


def open_account(
    session: Session,
    *,
    owner_id: str,
    dataset_id: str,
    unit_kind: str,
    budget_epsilon: Decimal,
    budget_delta: Decimal,
    accountant: Accountant,
    delta_for_approximate: Decimal,
) -> AccountRow:
    """A new account with this budget, and the first entry of its chain. Raises `Invalid`."""
    budget = Budget.declared(budget_epsilon, budget_delta, delta_for_approximate, accountant)
    account = AccountRow(
        id=new_id("ac"),
        accountant=accountant.value,
        unit_kind=unit_kind,
        budget_epsilon=budget.epsilon,
        budget_delta=budget.delta,
        delta_for_approximate=budget.delta_for_approximate,
        cap_primary=budget.caps.primary,
        cap_delta=budget.caps.delta,
        spent_primary=0,
        spent_delta=0,
        highest_primary=budget.caps.primary,
        highest_delta=budget.caps.delta,
        entries=1,
        suspended=False,
        created_at=now(),
    )
    session.add(account)
    # The account's row must exist before an entry can refer to it.
    session.flush()
    append(
        session,
        account.id,
        Head(1, 0, 0),
        kind="opened",
        amount=Charge(budget.caps.primary, budget.caps.delta),
        dataset_id=dataset_id,
        principal_id=owner_id,
        detail={**budget.as_detail(), "accountant": accountant.value, "unit": unit_kind},
    )
    return account


def join_account(
    session: Session, *, account: AccountRow, dataset_id: str, principal_id: str
) -> None:
    """Record that another dataset draws on this account from now on."""
    head = repository.lengthen(session, account.id)
    if head is None:
        raise AccountSuspended
    append(
        session,
        account.id,
        head,
        kind="joined",
        amount=Charge(0),
        dataset_id=dataset_id,
        principal_id=principal_id,
        detail={},
    )
    forget_amounts(session, account)


def has_charges(session: Session, account_id: str) -> bool:
    """Whether anything was charged and not given back."""
    spent = repository.account_position(session, account_id).spent
    return spent.primary > 0 or spent.delta > 0
