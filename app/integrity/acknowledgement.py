"""Going on with an account whose store was put back to an earlier moment.

What was released after that moment is out in the world, though the store has forgotten it. So what
the high-water mark says was spent is charged again, as far as the cap allows, before the account
takes any other charge. The entry in the ledger says what the mark was, and why it is gone on.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.database import Database
from app.engine.privacy.loss import Charge
from app.integrity.ledgers import verify
from app.integrity.put_back import end_unfinished
from app.ledger import repository
from app.ledger.entries import AccountSuspended, append
from app.ledger.marks import Mark, Marks, behind
from app.ledger.models import AccountRow
from app.problems import Conflict, NotFound
from app.security import audit

# Who caused the entry: whoever runs commands on the server is no principal.
OPERATOR = "operator"


def acknowledge(database: Database, marks: Marks, account_id: str, reason: str) -> Charge:
    """Take charges on the account again; what was charged for the forgotten entries.

    An account that the store has forgotten altogether has no ledger to charge: that is audited, and
    its mark removed. Raises `NotFound`, or `Conflict` where the account is not behind its mark or
    its ledger has other faults.
    """
    marks.follow(database)
    with database.write() as session:
        account = repository.account(session, account_id)
        if account is not None:
            return _charge_forgotten(session, marks, account, reason)
        _note_forgotten(session, marks.read().get(account_id), reason)
    # After the commit: a crash in between leaves a mark to acknowledge again, and loses no record.
    with database.write():
        rest = marks.read()
        rest.pop(account_id, None)
        marks.compact(rest)
    return Charge(0, 0)


def _charge_forgotten(session: Session, marks: Marks, account: AccountRow, reason: str) -> Charge:
    mark = behind(session, marks.read()).get(account.id)
    if mark is None:
        raise Conflict(f"Account {account.id} has not fallen behind its high-water mark.")
    if not verify(session, account.id).ok:
        raise Conflict(f"The ledger of {account.id} has other faults: run `halftone verify`.")
    if not account.suspended:
        # No start has found it yet.
        end_unfinished(session)
    forgotten = Charge(
        _within(mark.spent_primary, account.spent_primary, account.cap_primary),
        _within(mark.spent_delta, account.spent_delta, account.cap_delta),
    )
    repository.suspend(session, account.id, suspended=False)
    head = repository.spend(session, account.id, forgotten)
    opened = repository.entry(session, account.id, 1)
    if head is None or opened is None:
        raise AccountSuspended
    append(
        session,
        account.id,
        head,
        kind="acknowledged",
        amount=forgotten,
        dataset_id=opened.dataset_id,
        principal_id=OPERATOR,
        detail={"reason": reason, "mark": _described(mark)},
    )
    audit.record(
        session,
        principal_id=None,
        action="account.acknowledged",
        subject=account.id,
        detail={"reason": reason},
    )
    return forgotten


def _note_forgotten(session: Session, mark: Mark | None, reason: str) -> None:
    if mark is None:
        raise NotFound
    audit.record(
        session,
        principal_id=None,
        action="account.acknowledged",
        subject=mark.account_id,
        detail={"reason": reason, "mark": _described(mark)},
    )


def _described(mark: Mark) -> dict[str, int | str]:
    return {
        "entries": mark.entries,
        "hash": mark.hash,
        "spent_primary": mark.spent_primary,
        "spent_delta": mark.spent_delta,
    }


def _within(marked: int, spent: int, cap: int) -> int:
    """What was forgotten of an amount, and the cap still takes: it may have been raised since."""
    return max(0, min(marked, cap) - spent)
