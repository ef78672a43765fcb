"""Admission: a release is charged to every scope or to none, and given back at most once.

One conditional UPDATE for each scope (account, then grant) in the caller's write
transaction, with the ledger's entry beside it. Nothing is decided from a value that was
read before; the cause of a refusal is read after the statement that failed, in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.engine.privacy.accounting import GuaranteeNotAccepted, largest_epsilon, open_guarantee
from app.engine.privacy.loss import (
    EPSILON_UNIT,
    Accountant,
    Charge,
    Guarantee,
    PrivacyLoss,
    from_units,
)
from app.ledger import repository
from app.ledger.entries import AccountSuspended, append, forget_amounts
from app.ledger.models import AccountRow, GrantRow
from app.ledger.repository import Head, Position
from app.problems import BudgetExceeded, Conflict, HalftoneError, Invalid, NotFound


@dataclass(frozen=True, slots=True)
class Admission:
    """A release that was charged: what it cost, and the loss that its session opens with."""

    charge: Charge
    loss: PrivacyLoss
    ledger_sequence: int
    ledger_hash: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What `admit` would do now. `remaining_after` is what the caller could still spend
    then, out of the scopes they may see; None where nothing fits or nothing may be told.
    `refusal` is what `admit` would raise, None where it would charge."""

    charge: Charge
    loss: PrivacyLoss
    remaining_after: dict[str, str] | None
    refusal: HalftoneError | None

    @property
    def fits(self) -> bool:
        return self.refusal is None


def admit(
    session: Session,
    *,
    account: AccountRow,
    grant: GrantRow | None,
    reveal_account: bool,
    guarantee: Guarantee,
    approximate_delta: int,
    dataset_id: str,
    release_id: str,
    principal_id: str,
    detail: Mapping[str, Any],
) -> Admission:
    """Charge a release to its account and grant, or change nothing.

    Raises `Invalid` for a guarantee that the accountant does not take, `BudgetExceeded` if
    a scope cannot cover it, `NotFound` if the grant was revoked, `AccountSuspended` if the
    ledger does not add up (the transaction is then not to be committed). Without
    `reveal_account` a refusal tells no total of the account.
    """
    request = _Request(account, grant, reveal_account, guarantee, approximate_delta)
    head = request.spend(session)
    if head is None:
        raise request.refusal(session) or AccountSuspended()
    booked = append(
        session,
        account.id,
        head,
        kind="charge",
        amount=request.charge,
        dataset_id=dataset_id,
        release_id=release_id,
        grant_id=None if grant is None else grant.id,
        principal_id=principal_id,
        detail={**detail, "guarantee": guarantee.as_wire()},
    )
    forget_amounts(session, account, grant)
    return Admission(request.charge, request.loss, booked.entry.sequence, booked.hash)


def preview(
    session: Session,
    *,
    account: AccountRow,
    grant: GrantRow | None,
    reveal_account: bool,
    guarantee: Guarantee,
    approximate_delta: int,
) -> Preview:
    """What admission would say now; nothing is changed. Raises `Invalid` as `admit` does."""
    request = _Request(account, grant, reveal_account, guarantee, approximate_delta)
    refusal = request.refusal(session)
    left = request.visible_remaining(session)
    after = None
    if refusal is None and left is not None:
        rest = Charge(left.primary - request.charge.primary, left.delta - request.charge.delta)
        after = rest.as_wire(request.accountant)
    return Preview(request.charge, request.loss, after, refusal)


class _Request:
    """A guarantee asked for on an account, turned into its charge from public facts."""

    def __init__(
        self,
        account: AccountRow,
        grant: GrantRow | None,
        reveal_account: bool,
        guarantee: Guarantee,
        approximate_delta: int,
    ) -> None:
        self._account_id = account.id
        self._grant_id = None if grant is None else grant.id
        self._reveal_account = reveal_account
        self._guarantee = guarantee
        self._approximate_delta = approximate_delta
        self.accountant = Accountant(account.accountant)
        try:
            self.charge, self.loss = open_guarantee(guarantee, self.accountant, approximate_delta)
        except GuaranteeNotAccepted as error:
            raise Invalid.at(error.pointer, error.message, error.remedy) from None

    def spend(self, session: Session) -> Head | None:
        """Charge every scope, or none of them if one cannot cover it: then None."""
        if self._grant_id is None:
            return repository.spend(session, self._account_id, self.charge)
        with session.begin_nested() as both:
            head = repository.spend(session, self._account_id, self.charge)
            if head and repository.spend_allowance(session, self._grant_id, self.charge):
                return head
            both.rollback()
        return None

    def refusal(self, session: Session) -> HalftoneError | None:
        """Why admission is refused now, the account's reasons before the grant's."""
        account = repository.account_position(session, self._account_id)
        if not account.is_open:
            return AccountSuspended()
        if not account.covers(self.charge):
            return self._exceeded(session, account, "account", told=self._reveal_account)
        if self._grant_id is None:
            return None
        grant = repository.grant_position(session, self._grant_id)
        if not grant.is_open:
            return NotFound()
        if not grant.covers(self.charge):
            return self._exceeded(session, grant, "grant", told=True)
        return None

    def visible_remaining(self, session: Session) -> Charge | None:
        """The least of what is left in the scopes whose totals the caller may see."""
        left: list[Charge | None] = []
        if self._reveal_account:
            left.append(repository.account_position(session, self._account_id).remaining)
        if self._grant_id is not None:
            left.append(repository.grant_position(session, self._grant_id).remaining)
        amounts = [amount for amount in left if amount is not None]
        if not amounts:
            return None
        return Charge(
            min(amount.primary for amount in amounts), min(amount.delta for amount in amounts)
        )

    def _exceeded(
        self, session: Session, position: Position, scope: str, *, told: bool
    ) -> BudgetExceeded:
        remaining = position.remaining
        assert remaining is not None
        primary = "epsilon" if self.accountant is Accountant.BASIC else "rho"
        whose = "budget" if scope == "account" else "allowance"
        return BudgetExceeded(
            f"The release costs more than the {whose} has left.",
            requested=self.charge.as_wire(self.accountant),
            spent=position.spent.as_wire(self.accountant) if told else None,
            remaining=remaining.as_wire(self.accountant) if told else None,
            scope=scope,
            limited_by=primary if self.charge.primary > remaining.primary else "delta",
            largest_epsilon=self._largest_epsilon(session) if told else None,
        )

    def _largest_epsilon(self, session: Session) -> str | None:
        left = self.visible_remaining(session)
        if left is None:
            return None
        units = largest_epsilon(left, self._guarantee, self.accountant, self._approximate_delta)
        return None if units is None else from_units(units, EPSILON_UNIT)


def refund(
    session: Session,
    *,
    account_id: str,
    grant_id: str | None,
    dataset_id: str,
    release_id: str,
    principal_id: str,
    charge: Charge,
) -> None:
    """Give a release's charge back, once, for a job that no worker ever claimed.

    Raises `Conflict` unless exactly this was charged for the release and not given back yet.
    """
    booked = repository.charge_of(session, account_id, release_id)
    if (
        booked is None
        or (booked.primary, booked.delta) != (charge.primary, charge.delta)
        or booked.grant_id != grant_id
        or repository.is_refunded(session, release_id)
    ):
        raise Conflict("There is no such charge to give back.")
    with session.begin_nested():
        head = repository.give_back(session, account_id, charge)
        if head is None:
            raise AccountSuspended
        if grant_id is not None and not repository.give_back_allowance(session, grant_id, charge):
            raise AccountSuspended
        append(
            session,
            account_id,
            head,
            kind="refund",
            amount=charge,
            dataset_id=dataset_id,
            release_id=release_id,
            grant_id=grant_id,
            principal_id=principal_id,
            detail={},
        )
    forget_amounts(
        session, session.get(AccountRow, account_id), session.get(GrantRow, grant_id or "")
    )
