"""Queries on accounts and their ledger; the only statements that change what is spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BindParameter,
    Select,
    String,
    bindparam,
    func,
    insert,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy.orm import Session

from app.database import rowcount
from app.engine import strict_json
from app.engine.privacy.loss import Charge
from app.ledger.as_epsilon import EpsilonAtDelta
from app.ledger.chain import FIELDS, Entry, Link
from app.ledger.models import AccountRow, GrantRow, LedgerRow

_accounts = AccountRow.__table__.c
_grants = GrantRow.__table__.c
_ledger = LedgerRow.__table__.c
_primary: BindParameter[int] = bindparam("charged_primary")
_delta: BindParameter[int] = bindparam("charged_delta")

# Each admission runs these, so they are built once.
# The condition and the change are one statement: two requests cannot both see the same rest and
# spend it twice.
_SPEND = (
    update(AccountRow.__table__)  # type: ignore[arg-type]
    .where(
        _accounts.id == bindparam("account"),
        ~_accounts.suspended,
        _accounts.spent_primary + _primary <= _accounts.cap_primary,
        _accounts.spent_delta + _delta <= _accounts.cap_delta,
    )
    .values(
        spent_primary=_accounts.spent_primary + _primary,
        spent_delta=_accounts.spent_delta + _delta,
        entries=_accounts.entries + 1,
    )
    .returning(_accounts.entries, _accounts.spent_primary, _accounts.spent_delta)
)
_SPEND_ALLOWANCE = (
    update(GrantRow.__table__)  # type: ignore[arg-type]
    .where(
        _grants.id == bindparam("grant"),
        _grants.state == "active",
        # A grant without an allowance is limited by the account alone.
        or_(_grants.cap_primary.is_(None), _grants.spent_primary + _primary <= _grants.cap_primary),
        or_(_grants.cap_delta.is_(None), _grants.spent_delta + _delta <= _grants.cap_delta),
    )
    .values(
        spent_primary=_grants.spent_primary + _primary,
        spent_delta=_grants.spent_delta + _delta,
    )
)
_ALLOWANCE = select(
    _grants.cap_primary,
    _grants.cap_delta,
    _grants.spent_primary,
    _grants.spent_delta,
    _grants.state,
    _grants.stated_epsilon,
    _grants.stated_delta,
).where(_grants.id == bindparam("grant"))
_TAIL = select(_ledger.spent_primary, _ledger.spent_delta, _ledger.hash).where(
    _ledger.account_id == bindparam("account"), _ledger.sequence == bindparam("number")
)
_APPEND = insert(LedgerRow.__table__)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Position:
    """What an account or a grant may spend and has spent, read in this transaction.

    A cap of None means that there is no limit here.
    """

    cap_primary: int | None
    cap_delta: int | None
    spent_primary: int
    spent_delta: int
    is_open: bool
    # Of an allowance in rho that was stated as epsilon at a delta.
    stated: EpsilonAtDelta | None = None

    @property
    def cap(self) -> Charge | None:
        if self.cap_primary is None or self.cap_delta is None:
            return None
        return Charge(self.cap_primary, self.cap_delta)

    @property
    def spent(self) -> Charge:
        return Charge(self.spent_primary, self.spent_delta)

    @property
    def remaining(self) -> Charge | None:
        """What is left; None where there is no cap."""
        if self.cap is None:
            return None
        return Charge(
            # An allowance may be lowered below what is spent: then nothing is left, not less than
            # nothing.
            max(0, self.cap.primary - self.spent_primary),
            max(0, self.cap.delta - self.spent_delta),
        )

    def covers(self, charge: Charge) -> bool:
        left = self.remaining
        return left is None or (charge.primary <= left.primary and charge.delta <= left.delta)


@dataclass(frozen=True, slots=True)
class Head:
    """Where an account's chain stands after a change: its length and what is spent."""

    entries: int
    spent_primary: int
    spent_delta: int


@dataclass(frozen=True, slots=True)
class Tail:
    """What the last entry of a chain says: what was spent by then, and its hash."""

    spent_primary: int
    spent_delta: int
    hash: str


def account(session: Session, account_id: str) -> AccountRow | None:
    return session.get(AccountRow, account_id)


def account_ids(session: Session) -> list[str]:
    return list(session.scalars(select(AccountRow.id).order_by(AccountRow.created_at)))


def account_position(session: Session, account_id: str) -> Position:
    row = session.execute(
        select(
            _accounts.cap_primary,
            _accounts.cap_delta,
            _accounts.spent_primary,
            _accounts.spent_delta,
            _accounts.suspended,
        ).where(_accounts.id == account_id)
    ).one()
    return Position(*row[:4], is_open=not row[4])


def grant_position(session: Session, grant_id: str) -> Position:
    row = session.execute(_ALLOWANCE, {"grant": grant_id}).one()
    return Position(*row[:4], is_open=row[4] == "active", stated=_stated(*row[5:]))


def allowance_of(row: GrantRow) -> Position:
    """What a loaded grant may spend and has spent."""
    return Position(
        row.cap_primary,
        row.cap_delta,
        row.spent_primary,
        row.spent_delta,
        is_open=row.state == "active",
        stated=_stated(row.stated_epsilon, row.stated_delta),
    )


def _stated(epsilon: int | None, delta: int | None) -> EpsilonAtDelta | None:
    return None if epsilon is None or delta is None else EpsilonAtDelta(epsilon, delta)


def spend(session: Session, account_id: str, charge: Charge) -> Head | None:
    """Charge the account if it covers the charge; None, and nothing changed, if not."""
    moved = session.execute(_SPEND, {"account": account_id, **_charged(charge)}).first()
    return None if moved is None else Head(*moved)


def spend_allowance(session: Session, grant_id: str, charge: Charge) -> bool:
    """Charge an active grant if its allowance covers the charge."""
    result = session.execute(_SPEND_ALLOWANCE, {"grant": grant_id, **_charged(charge)})
    return rowcount(result) == 1


def _charged(charge: Charge) -> dict[str, int]:
    return {"charged_primary": charge.primary, "charged_delta": charge.delta}


def give_back(session: Session, account_id: str, charge: Charge) -> Head | None:
    """Take a charge back from an open account; None, and nothing changed, if it is suspended."""
    return _moved(
        session,
        update(AccountRow.__table__)  # type: ignore[arg-type]
        .where(
            _accounts.id == account_id,
            # No entry of any kind while suspended: its mark would stand for what was forgotten.
            ~_accounts.suspended,
            _accounts.spent_primary >= charge.primary,
            _accounts.spent_delta >= charge.delta,
        )
        .values(
            spent_primary=_accounts.spent_primary - charge.primary,
            spent_delta=_accounts.spent_delta - charge.delta,
            entries=_accounts.entries + 1,
        ),
    )


def give_back_allowance(session: Session, grant_id: str, charge: Charge) -> bool:
    """Give back to a grant, revoked or not."""
    result = session.execute(
        update(GrantRow.__table__)  # type: ignore[arg-type]
        .where(
            _grants.id == grant_id,
            _grants.spent_primary >= charge.primary,
            _grants.spent_delta >= charge.delta,
        )
        .values(
            spent_primary=_grants.spent_primary - charge.primary,
            spent_delta=_grants.spent_delta - charge.delta,
        )
    )
    return rowcount(result) == 1


def set_budget(
    session: Session,
    account_id: str,
    *,
    budget_epsilon: int,
    budget_delta: int,
    delta_for_approximate: int,
    cap: Charge,
) -> Head | None:
    """Put other caps in force if they cover what is spent; None, and nothing changed, if not."""
    return _moved(
        session,
        update(AccountRow.__table__)  # type: ignore[arg-type]
        .where(
            _accounts.id == account_id,
            ~_accounts.suspended,
            _accounts.spent_primary <= cap.primary,
            _accounts.spent_delta <= cap.delta,
        )
        .values(
            budget_epsilon=budget_epsilon,
            budget_delta=budget_delta,
            delta_for_approximate=delta_for_approximate,
            cap_primary=cap.primary,
            cap_delta=cap.delta,
            highest_primary=func.max(_accounts.highest_primary, cap.primary),
            highest_delta=func.max(_accounts.highest_delta, cap.delta),
            entries=_accounts.entries + 1,
        ),
    )


def lengthen(session: Session, account_id: str) -> Head | None:
    """Make room in the chain for an entry that moves no amount."""
    return _moved(
        session,
        update(AccountRow.__table__)  # type: ignore[arg-type]
        .where(_accounts.id == account_id, ~_accounts.suspended)
        .values(entries=_accounts.entries + 1),
    )


def _moved(session: Session, statement: Any) -> Head | None:
    moved = session.execute(
        statement.returning(_accounts.entries, _accounts.spent_primary, _accounts.spent_delta)
    ).all()
    return Head(*moved[0]) if len(moved) == 1 else None


def suspend(session: Session, account_id: str, *, suspended: bool) -> None:
    session.execute(
        update(AccountRow.__table__)  # type: ignore[arg-type]
        .where(_accounts.id == account_id)
        .values(suspended=suspended)
    )


def suspended(session: Session) -> list[str]:
    return list(session.scalars(select(_accounts.id).where(_accounts.suspended)))


def entry(session: Session, account_id: str, sequence: int) -> LedgerRow | None:
    return session.get(LedgerRow, (account_id, sequence))


def entry_of_hash(session: Session, entry_hash: str) -> LedgerRow | None:
    return session.scalar(select(LedgerRow).where(LedgerRow.hash == entry_hash))


def tail(session: Session, account_id: str, sequence: int) -> Tail | None:
    """What the entry of this number says; None if it is missing."""
    found = session.execute(_TAIL, {"account": account_id, "number": sequence}).first()
    return None if found is None else Tail(*found)


def append(session: Session, link: Link, moment: datetime) -> None:
    """Store an entry with its hashes; `moment` is the time that it states as text."""
    facts = {**link.entry.as_json(), "at": moment}
    session.execute(_APPEND, {**facts, "previous_hash": link.previous_hash, "hash": link.hash})


def cap_at(session: Session, account_id: str, sequence: int) -> Charge:
    """The cap that was in force once this entry was made."""
    row = session.execute(
        select(LedgerRow.primary, LedgerRow.delta)
        .where(
            LedgerRow.account_id == account_id,
            LedgerRow.sequence <= sequence,
            LedgerRow.kind.in_(("opened", "budget")),
        )
        .order_by(LedgerRow.sequence.desc())
        .limit(1)
    ).one()
    return Charge(*row)


def charge_of(session: Session, account_id: str, release_id: str) -> LedgerRow | None:
    return session.scalar(
        select(LedgerRow).where(
            LedgerRow.account_id == account_id,
            LedgerRow.release_id == release_id,
            LedgerRow.kind == "charge",
        )
    )


def is_refunded(session: Session, release_id: str) -> bool:
    return (
        session.scalar(
            select(LedgerRow.sequence).where(
                LedgerRow.release_id == release_id, LedgerRow.kind == "refund"
            )
        )
        is not None
    )


def entries(session: Session, account_id: str, after: int | None, limit: int) -> list[LedgerRow]:
    """Entries of an account, oldest first, from the one after number `after`."""
    return list(session.scalars(_entries(account_id, after, limit)))


def entries_of(
    session: Session,
    account_id: str,
    after: int | None,
    limit: int,
    *,
    dataset_id: str,
    principal_id: str,
    grant_id: str | None,
) -> list[LedgerRow]:
    """Those about a dataset that a principal made, or that moved the principal's grant."""
    query = _entries(account_id, after, limit).where(
        LedgerRow.dataset_id == dataset_id,
        or_(LedgerRow.principal_id == principal_id, LedgerRow.grant_id == grant_id),
    )
    return list(session.scalars(query))


def _entries(account_id: str, after: int | None, limit: int) -> Select[LedgerRow]:
    return (
        select(LedgerRow)
        .where(LedgerRow.account_id == account_id, LedgerRow.sequence > (after or 0))
        .order_by(LedgerRow.sequence)
        .limit(limit)
    )


def count_of_kind(session: Session, account_id: str, kind: str) -> int:
    return (
        session.scalar(
            select(func.count())
            .select_from(LedgerRow)
            .where(LedgerRow.account_id == account_id, LedgerRow.kind == kind)
        )
        or 0
    )


def links(session: Session, account_id: str) -> Iterator[Link]:
    """The whole chain in order, as stored.

    Raises `ValueError` at an entry whose detail is not one JSON object, which the service never
    writes.
    """
    # A long chain is never held in memory as a whole.
    return _read(session, _links(account_id).execution_options(yield_per=1000))


def some_links(
    session: Session, account_id: str, *, after: int, last: int, limit: int
) -> list[Link]:
    """The entries beyond number `after` and up to `last`, at most `limit`; raises as `links`."""
    number = LedgerRow.__table__.c.sequence
    query = _links(account_id).where(number > after, number <= last).limit(limit)
    return list(_read(session, query))


def _links(account_id: str) -> Select[Any]:
    columns = LedgerRow.__table__.c
    # Raw text, before SQLAlchemy decodes it: a changed detail or time must be found here, and must
    # not stop the walk in a decoder.
    raw = {"detail": type_coerce(columns.detail, String), "at": type_coerce(columns.at, String)}
    chosen = [raw.get(name, columns[name]).label(name) for name in FIELDS]
    return (
        select(*chosen, columns.previous_hash, columns.hash)
        .where(columns.account_id == account_id)
        .order_by(columns.sequence)
    )


def _read(session: Session, query: Select[Any]) -> Iterator[Link]:
    for row in session.execute(query):
        facts = row._asdict()
        previous_hash, own_hash = facts.pop("previous_hash"), facts.pop("hash")
        # A repeated key would be outside the hash, which covers what was parsed.
        detail = strict_json.loads(facts.pop("detail"))
        if not isinstance(detail, dict):
            raise ValueError("the detail is no object")
        yield Link(Entry(**facts, detail=detail), previous_hash, own_hash)


def unbalanced(session: Session) -> list[str]:
    """Accounts that are suspended, or whose last entry disagrees with what they have spent."""
    last = LedgerRow.__table__.c
    return list(
        session.scalars(
            select(_accounts.id)
            .outerjoin(
                LedgerRow.__table__,
                (last.account_id == _accounts.id) & (last.sequence == _accounts.entries),
            )
            .where(
                or_(
                    _accounts.suspended,
                    last.sequence.is_(None),
                    last.spent_primary != _accounts.spent_primary,
                    last.spent_delta != _accounts.spent_delta,
                )
            )
        )
    )
