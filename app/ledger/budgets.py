"""Use-cases of budgets: what a caller may see of one, and setting another."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy.orm import Session

from app.engine.privacy.accounting import epsilon_for
from app.engine.privacy.loss import Accountant, Charge
from app.ledger import repository
from app.ledger.accounts import Budget
from app.ledger.as_epsilon import EpsilonAtDelta
from app.ledger.entries import AccountSuspended, append
from app.ledger.models import AccountRow
from app.ledger.repository import Position
from app.problems import Conflict, FieldError
from app.security import audit


@dataclass(frozen=True, slots=True)
class Totals:
    """What an account shows to those who may see its totals."""

    # As it was declared.
    budget: EpsilonAtDelta
    delta_for_approximate: int
    cap: Charge
    spent: Charge
    remaining: Charge
    epsilon_at_delta: EpsilonAtDelta
    releases: int
    highest_cap: Charge
    changes: int


@dataclass(frozen=True, slots=True)
class BudgetView:
    """A budget as one caller may see it: the totals, their own allowance, or both."""

    accountant: Accountant
    is_open: bool
    totals: Totals | None
    allowance: Position | None


def view(
    session: Session, account: AccountRow, *, shows_totals: bool, grant_id: str | None
) -> BudgetView:
    """The budget as it stands: its totals, what a grant leaves of it, or both."""
    return BudgetView(
        Accountant(account.accountant),
        not account.suspended,
        _totals(session, account) if shows_totals else None,
        None if grant_id is None else repository.grant_position(session, grant_id),
    )


def _totals(session: Session, account: AccountRow) -> Totals:
    charges = repository.count_of_kind(session, account.id, "charge")
    refunds = repository.count_of_kind(session, account.id, "refund")
    spent = Charge(account.spent_primary, account.spent_delta)
    return Totals(
        budget=EpsilonAtDelta(account.budget_epsilon, account.budget_delta),
        delta_for_approximate=account.delta_for_approximate,
        cap=Charge(account.cap_primary, account.cap_delta),
        spent=spent,
        remaining=Charge(
            account.cap_primary - spent.primary,
            account.cap_delta - spent.delta,
        ),
        epsilon_at_delta=EpsilonAtDelta(_epsilon_spent(account), account.budget_delta),
        releases=charges - refunds,
        highest_cap=Charge(account.highest_primary, account.highest_delta),
        changes=repository.count_of_kind(session, account.id, "budget"),
    )


def _epsilon_spent(account: AccountRow) -> int:
    """The epsilon that corresponds to the spending so far, at the budget's delta.

    On `basic` that is the sum of epsilons. On `zcdp` it is the conversion of the spent rho
    at the part of delta that the cap was converted at (what is not set aside), so that an
    exhausted account shows the budget's own epsilon, up to rounding.
    """
    if Accountant(account.accountant) is Accountant.BASIC:
        return account.spent_primary
    # Composition: rho adds up over releases (Bun and Steinke 2016, Lemma 1.7), and only the sum is
    # converted to epsilon. Converting each release alone would state far too much.
    return epsilon_for(account.spent_primary, account.budget_delta - account.delta_for_approximate)


def change(
    session: Session,
    account: AccountRow,
    *,
    dataset_id: str,
    principal_id: str,
    epsilon: Decimal,
    delta: Decimal | None,
    delta_for_approximate: Decimal | None,
    reason: str,
) -> None:
    """Put another budget in force, as an entry of the ledger and of the audit log.

    What is None stays as it is. Raises `Invalid` for a budget that gives no cap, `Conflict`
    if it would not cover what is spent.
    """
    budget = Budget.declared(
        epsilon,
        Decimal(account.budget_delta).scaleb(-18) if delta is None else delta,
        Decimal(account.delta_for_approximate).scaleb(-18)
        if delta_for_approximate is None
        else delta_for_approximate,
        Accountant(account.accountant),
        within="",
    )
    before = Budget.of(account).as_detail()
    cap = Charge(budget.caps.primary, budget.caps.delta)
    head = repository.set_budget(
        session,
        account.id,
        budget_epsilon=budget.epsilon,
        budget_delta=budget.delta,
        delta_for_approximate=budget.delta_for_approximate,
        cap=cap,
    )
    # The statement changes nothing if the new cap is below what was spent: spending cannot be
    # undone.
    if head is None:
        raise _refusal(repository.account_position(session, account.id), cap)
    detail = {**budget.as_detail(), "before": before, "reason": reason}
    append(
        session,
        account.id,
        head,
        kind="budget",
        amount=cap,
        dataset_id=dataset_id,
        principal_id=principal_id,
        detail=detail,
    )
    # In the same transaction, so that no budget changes without an entry of the audit log.
    audit.record(
        session,
        principal_id=principal_id,
        action="budget.changed",
        subject=dataset_id,
        detail=detail,
    )
    session.expire(account)


def _refusal(position: Position, cap: Charge) -> Exception:
    if not position.is_open:
        return AccountSuspended()
    field = "epsilon" if position.spent_primary > cap.primary else "delta"
    return Conflict(
        "More has already been spent than this budget would cover.",
        errors=[
            FieldError(f"/{field}", "This is below what was spent.", "Set a budget that covers it.")
        ],
    )
