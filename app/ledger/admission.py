"""Admission: a release is charged to every scope or to none, and given back at most once.

One conditional UPDATE for each scope (account, then grant) in the caller's write
transaction, which also writes the ledger's entry. No decision depends on a value that was
read earlier; the reason for a refusal is read after the statement that failed, in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.engine.privacy.accounting import largest_epsilon
from app.engine.privacy.loss import EPSILON_UNIT, Charge, from_units
from app.ledger import as_epsilon, repository
from app.ledger.entries import AccountSuspended, append, forget_amounts
from app.ledger.models import AccountRow, GrantRow
from app.ledger.repository import Head, Position
from app.ledger.terms import Terms
from app.ledger.words import told
from app.problems import BudgetExceeded, Conflict, HalftoneError, NotFound


@dataclass(frozen=True, slots=True)
class Admission:
    """A release that was charged: what it cost, and the ledger's entry for it."""

    charge: Charge
    ledger_sequence: int
    ledger_hash: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What `admit` would do now, as far as the caller may know it.

    `remaining_after` is what the caller could still spend afterwards, in the scopes that they
    may see; None if the release does not fit, or if they may see no scope. `refusal` is what
    `admit` would raise for those scopes, None if they cover the charge. Epsilon is told at the
    request's own delta, on `zcdp` accounts alone.
    """

    remaining_after: dict[str, str] | None
    remaining_after_as_epsilon: dict[str, str] | None
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
    terms: Terms,
    dataset_id: str,
    release_id: str,
    principal_id: str,
    detail: Mapping[str, Any],
) -> Admission:
    """Charge a release to its account and grant, or change nothing.

    Raises `BudgetExceeded` if a scope cannot cover it, `NotFound` if the grant was revoked,
    `AccountSuspended` if the ledger does not add up (the transaction is then not to be
    committed). Without `reveal_account` a refusal states no total of the account.
    """
    request = _Request(account, grant, reveal_account, terms)
    head = request.spend(session)
    if head is None:
        # Inside one write transaction nothing can change between the failed statement and this
        # read. If no reason is found, the tables contradict themselves: then nothing may be
        # charged.
        raise request.refusal(session) or AccountSuspended()
    booked = append(
        session,
        account.id,
        head,
        kind="charge",
        amount=terms.charge,
        dataset_id=dataset_id,
        release_id=release_id,
        grant_id=None if grant is None else grant.id,
        principal_id=principal_id,
        detail={**detail, "guarantee": terms.guarantee.as_wire()},
    )
    forget_amounts(session, account, grant)
    return Admission(terms.charge, booked.entry.sequence, booked.hash)


def preview(
    session: Session,
    *,
    account: AccountRow,
    grant: GrantRow | None,
    reveal_account: bool,
    terms: Terms,
) -> Preview:
    """What the scopes that the caller may see would answer now; nothing is changed.

    Without `reveal_account` no part of it depends on what the account has left: a preview is free,
    and a few dozen of them would find any amount that decides between two answers.
    """
    request = _Request(account, grant, reveal_account, terms)
    refusal = request.foreseen(session)
    left = request.visible_remaining(session)
    after = after_as_epsilon = None
    if refusal is None and left is not None:
        rest = Charge(left.primary - terms.charge.primary, left.delta - terms.charge.delta)
        after = rest.as_wire(terms.accountant)
        delta = as_epsilon.delta_of(terms.guarantee)
        after_as_epsilon = as_epsilon.left(rest, terms.accountant, delta)
    return Preview(after, after_as_epsilon, refusal)


class _Request:
    """The terms of a request, on an account and, where there is one, on a grant."""

    def __init__(
        self, account: AccountRow, grant: GrantRow | None, reveal_account: bool, terms: Terms
    ) -> None:
        # An account's accountant never changes, and amounts mean nothing in another's units.
        assert account.accountant == terms.accountant
        self._account_id = account.id
        self._grant_id = None if grant is None else grant.id
        self._reveal_account = reveal_account
        self._terms = terms

    def spend(self, session: Session) -> Head | None:
        """Charge every scope, or none of them if one cannot cover it: then None."""
        if self._grant_id is None:
            return repository.spend(session, self._account_id, self._terms.charge)
        # The account is charged first: its row decides who is next in the chain. If the grant
        # cannot cover the charge, the savepoint takes the account's charge back too.
        with session.begin_nested() as both:
            head = repository.spend(session, self._account_id, self._terms.charge)
            if head and repository.spend_allowance(session, self._grant_id, self._terms.charge):
                return head
            both.rollback()
        return None

    def refusal(self, session: Session) -> HalftoneError | None:
        """Why admission is refused now: the first scope that cannot cover the charge.

        The grant comes first: it is the caller's own limit, and where the account's totals are
        hidden nothing is said about the account that the grant explains.
        """
        account = repository.account_position(session, self._account_id)
        if not account.is_open:
            return AccountSuspended()
        return self._grant_refusal(session) or self._uncovered(
            session, account, "account", is_shown=self._reveal_account
        )

    def foreseen(self, session: Session) -> HalftoneError | None:
        """The part of `refusal` that the caller may know before the request."""
        if self._reveal_account:
            return self.refusal(session)
        if not repository.account_position(session, self._account_id).is_open:
            return AccountSuspended()
        return self._grant_refusal(session)

    def _grant_refusal(self, session: Session) -> HalftoneError | None:
        if self._grant_id is None:
            return None
        grant = repository.grant_position(session, self._grant_id)
        if not grant.is_open:
            # As if the grant had never existed: a revoked analyst learns nothing about the dataset.
            return NotFound()
        return self._uncovered(session, grant, "grant", is_shown=True)

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

    def _uncovered(
        self, session: Session, position: Position, scope: str, *, is_shown: bool
    ) -> BudgetExceeded | None:
        """Why a scope refuses; None if it covers the charge. A hidden scope states no amount."""
        if position.covers(self._terms.charge):
            return None
        remaining = position.remaining
        assert remaining is not None
        terms = self._terms
        accountant, delta = terms.accountant, as_epsilon.delta_of(terms.guarantee)
        requested = terms.charge.as_wire(accountant)
        requested_as_epsilon = terms.charge_as_epsilon
        whose = "The dataset's budget" if scope == "account" else "Your allowance"
        cost = f"The release costs {told(requested, requested_as_epsilon)}."
        if not is_shown:
            return BudgetExceeded(
                f"{cost} {whose} has less left; your grant does not show how much.",
                requested=requested,
                requested_as_epsilon=requested_as_epsilon,
                spent=None,
                remaining=None,
                scope=scope,
                limited_by=None,
                largest_epsilon=None,
            )
        left = remaining.as_wire(accountant)
        left_as_epsilon = as_epsilon.left(remaining, accountant, delta)
        # Only one amount is named; the primary one comes first where both are exceeded.
        exceeded = terms.charge.primary > remaining.primary
        return BudgetExceeded(
            f"{cost} {whose} has {told(left, left_as_epsilon)} left.",
            requested=requested,
            requested_as_epsilon=requested_as_epsilon,
            spent=position.spent.as_wire(accountant),
            spent_as_epsilon=as_epsilon.spent(position.spent, accountant, delta),
            remaining=left,
            remaining_as_epsilon=left_as_epsilon,
            scope=scope,
            limited_by=terms.primary if exceeded else "delta",
            largest_epsilon=self._largest_epsilon(session),
        )

    def _largest_epsilon(self, session: Session) -> str | None:
        left = self.visible_remaining(session)
        if left is None:
            return None
        terms = self._terms
        units = largest_epsilon(left, terms.guarantee, terms.accountant, terms.approximate_delta)
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
    # The caller states the amount from the release's row. The ledger must agree with it, so a row
    # that was changed cannot increase a refund.
    if (
        booked is None
        or (booked.primary, booked.delta) != (charge.primary, charge.delta)
        or booked.grant_id != grant_id
        or repository.is_refunded(session, release_id)
    ):
        raise Conflict("There is no such charge to give back.")
    # All or nothing: callers go on after `AccountSuspended`, in the same transaction.
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
