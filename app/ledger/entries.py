"""Writing an entry into an account's chain."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from app.database import format_time, now
from app.engine.privacy.loss import Charge
from app.ledger import marks, repository
from app.ledger.chain import GENESIS, Entry, Kind, Link
from app.ledger.marks import Mark
from app.ledger.models import AccountRow, GrantRow
from app.ledger.repository import Head
from app.problems import NotFound, Unavailable

# Key in the detail of a release's entries. Analysts who may not see the account's total can read
# the hashes of these entries. Without a secret part, they could try totals until a hash matches.
SALT = "salt"
# 128 bits, more than anyone can try out.
_SALT_BYTES = 16


class AccountSuspended(Unavailable):
    """The account's ledger does not add up, so nothing is booked until it has been checked."""

    def __init__(self) -> None:
        super().__init__(
            "The ledger of this budget does not add up, so nothing more is admitted. The"
            " service's operator must run `halftone verify`.",
            retry_after_s=300,
        )


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
) -> Link:
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
        detail=_salted(detail) if release_id is not None else dict(detail),
        at=format_time(moment),
    )
    link = Link(entry, previous_hash, entry.hash_after(previous_hash))
    repository.append(session, link, moment)
    marks.note(
        session, Mark(account_id, head.entries, link.hash, head.spent_primary, head.spent_delta)
    )
    return link


def _salted(detail: Mapping[str, Any]) -> dict[str, Any]:
    return {**detail, SALT: secrets.token_hex(_SALT_BYTES)}


def _hash_before(session: Session, account_id: str, head: Head, kind: Kind, amount: Charge) -> str:
    if head.entries == 1:
        return GENESIS
    before = repository.tail(session, account_id, head.entries - 1)
    sign = {"charge": 1, "acknowledged": 1, "refund": -1}.get(kind, 0)
    # The induction step of the chain: if the last entry states the right sum, so does this one. It
    # is checked here on every write, not only when the ledger is verified.
    if before is None or (
        before.spent_primary + sign * amount.primary != head.spent_primary
        or before.spent_delta + sign * amount.delta != head.spent_delta
    ):
        raise AccountSuspended
    return before.hash


def ledger_hash(session: Session, account_id: str, sequence: int) -> str:
    """The hash of an entry, as certificates cite it. Raises `NotFound`."""
    row = repository.entry(session, account_id, sequence)
    if row is None:
        raise NotFound
    return row.hash


def forget_amounts(session: Session, *rows: AccountRow | GrantRow | None) -> None:
    """Make loaded rows read their amounts again: the charging statements bypass the session."""
    for row in rows:
        if row is not None and row in session:
            counted = ["entries"] if isinstance(row, AccountRow) else []
            session.expire(row, ["spent_primary", "spent_delta", *counted])
