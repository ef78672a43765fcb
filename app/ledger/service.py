"""Use-cases of accounts and their ledger: open, join, admit, give back.

Admission is one conditional UPDATE for each scope (account, then grant) in the caller's
write transaction, with the ledger's entry beside it. Nothing is decided from a value that
was read before; the cause of a refusal is read after the statement that failed, in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy.orm import Session

from app.database import format_time, new_id, now
from app.engine.privacy.accounting import (
    Caps,
    GuaranteeNotAccepted,
    account_caps,
    largest_epsilon,
    open_guarantee,
)
from app.engine.privacy.loss import (
    DELTA_UNIT,
    EPSILON_UNIT,
    Accountant,
    AmountError,
    Charge,
    Guarantee,
    PrivacyLoss,
    from_units,
    to_units,
)
from app.ledger import repository
from app.ledger.chain import GENESIS, Entry, Kind
from app.ledger.models import AccountRow, LedgerRow
from app.ledger.repository import Head, Position
from app.ledger.verification import Verification, verify, verify_all
from app.problems import (
    BudgetExceeded,
    Conflict,
    HalftoneError,
    Invalid,
    NotFound,
    Unavailable,
)
from app.security.models import GrantRow

__all__ = [
    "AccountSuspended",
    "Admission",
    "Preview",
    "Verification",
    "admit",
    "has_charges",
    "join_account",
    "ledger_hash",
    "open_account",
    "preview",
    "refund",
    "verify",
    "verify_all",
]


class AccountSuspended(Unavailable):
    """The account's ledger does not add up, so nothing is booked until it was looked at."""

    def __init__(self) -> None:
        super().__init__(
            "The ledger of this budget does not add up, so nothing more is admitted. The"
            " service's operator must run `halftone verify`.",
            retry_after_s=300,
        )


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
    then, out of the scopes they may see; None where nothing fits or nothing may be told."""

    fits: bool
    charge: Charge
    loss: PrivacyLoss
    remaining_after: dict[str, str] | None


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
        aside = _cap_units(delta_for_approximate, DELTA_UNIT, "/delta_for_approximate")
        try:
            return cls(*units, aside, account_caps(*units, accountant, aside))
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
        """How the ledger's entries tell it, in exact decimal text."""
        return {
            "budget": {
                "epsilon": from_units(self.epsilon, EPSILON_UNIT),
                "delta": from_units(self.delta, DELTA_UNIT),
            },
            "delta_for_approximate": from_units(self.delta_for_approximate, DELTA_UNIT),
        }


def _cap_units(value: Decimal, unit: Decimal, pointer: str) -> int:
    try:
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
    _forget_amounts(session, account)


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
    ledger does not add up. Without `reveal_account` a refusal tells no total of the account.
    """
    request = _Request(account, grant, reveal_account, guarantee, approximate_delta)
    with session.begin_nested() as savepoint:
        head = request.spend(session)
        if head is None:
            savepoint.rollback()
        else:
            entry = append(
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
    if head is None:
        raise request.refusal(session) or AccountSuspended()
    _forget_amounts(session, account, grant)
    return Admission(request.charge, request.loss, entry.sequence, entry.hash)


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
    fits = request.refusal(session) is None
    left = request.visible_remaining(session)
    after = None
    if fits and left is not None:
        rest = Charge(left.primary - request.charge.primary, left.delta - request.charge.delta)
        after = rest.as_wire(request.accountant)
    return Preview(fits, request.charge, request.loss, after)


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
        """Charge every scope; None if one of them cannot cover it (the caller rolls back)."""
        head = repository.spend(session, self._account_id, self.charge)
        if head is None or self._grant_id is None:
            return head
        return head if repository.spend_allowance(session, self._grant_id, self.charge) else None

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
    _forget_amounts(
        session, session.get(AccountRow, account_id), session.get(GrantRow, grant_id or "")
    )


def has_charges(session: Session, account_id: str) -> bool:
    """Whether anything was charged and not given back."""
    spent = repository.account_position(session, account_id).spent
    return spent.primary > 0 or spent.delta > 0


def ledger_hash(session: Session, account_id: str, sequence: int) -> str:
    """The hash of an entry, as certificates cite it. Raises `NotFound`."""
    row = repository.entry(session, account_id, sequence)
    if row is None:
        raise NotFound
    return row.hash


def append(
    session: Session,
    account_id: str,
    head: Head,
    *,
    kind: Kind,
    amount: Charge,
    dataset_id: str,
    principal_id: str,
    detail: Mapping[str, Any],
    release_id: str | None = None,
    grant_id: str | None = None,
) -> LedgerRow:
    """Write the entry that makes the account's chain `head.entries` long.

    Raises `AccountSuspended`, for the caller's transaction to be rolled back, if the entry
    before it is missing or disagrees with what the account has spent.
    """
    previous_hash = _hash_before(session, account_id, head, kind, amount)
    moment = now()
    entry = Entry(
        account_id=account_id,
        sequence=head.entries,
        kind=kind,
        dataset_id=dataset_id,
        release_id=release_id,
        principal_id=principal_id,
        grant_id=grant_id,
        primary=amount.primary,
        delta=amount.delta,
        spent_primary=head.spent_primary,
        spent_delta=head.spent_delta,
        detail=dict(detail),
        at=format_time(moment),
    )
    facts = {**entry.as_json(), "at": moment}
    row = LedgerRow(**facts, previous_hash=previous_hash, hash=entry.hash_after(previous_hash))
    session.add(row)
    session.flush()
    return row


def _hash_before(session: Session, account_id: str, head: Head, kind: Kind, amount: Charge) -> str:
    if head.entries == 1:
        return GENESIS
    before = repository.entry(session, account_id, head.entries - 1)
    sign = {"charge": 1, "refund": -1}.get(kind, 0)
    if before is None or (
        before.spent_primary + sign * amount.primary != head.spent_primary
        or before.spent_delta + sign * amount.delta != head.spent_delta
    ):
        raise AccountSuspended
    return before.hash


def _forget_amounts(session: Session, *rows: AccountRow | GrantRow | None) -> None:
    """The statements above bypass loaded objects, so these read their amounts anew."""
    for row in rows:
        if row is not None and row in session:
            counted = ["entries"] if isinstance(row, AccountRow) else []
            session.expire(row, ["spent_primary", "spent_delta", *counted])
