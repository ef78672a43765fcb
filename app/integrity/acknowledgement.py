"""Going on with an account whose store was put back to an earlier moment.

What was released after that moment is out in the world, though the store has forgotten it. So what
the high-water mark says was spent is charged again, as far as the cap allows, before the account
takes any other charge. The entry in the ledger says what the mark was, and why it is gone on.
"""

from __future__ import annotations

from app.database import Database
from app.engine.privacy.loss import Charge
from app.integrity.ledgers import verify
from app.ledger import repository
from app.ledger.entries import AccountSuspended, append
from app.ledger.marks import Marks, behind
from app.problems import Conflict, NotFound
from app.security import audit

# Who caused the entry: whoever runs commands on the server is no principal.
OPERATOR = "operator"


def acknowledge(database: Database, marks: Marks, account_id: str, reason: str) -> Charge:
    """Take charges on the account again; what was charged for the forgotten entries.

    Raises `NotFound`, or `Conflict` where the account is not behind its mark or its ledger has
    other faults.
    """
    marks.follow(database)
    with database.write() as session:
        account = repository.account(session, account_id)
        if account is None:
            raise NotFound
        mark = behind(session, marks.read()).get(account_id)
        if mark is None:
            raise Conflict(f"Account {account_id} has not fallen behind its high-water mark.")
        if not verify(session, account_id).ok:
            raise Conflict(f"The ledger of {account_id} has other faults: run `halftone verify`.")
        spent = account.spent_primary, account.spent_delta
        forgotten = Charge(
            _within(mark.spent_primary, spent[0], account.cap_primary),
            _within(mark.spent_delta, spent[1], account.cap_delta),
        )
        repository.suspend(session, account_id, suspended=False)
        head = repository.spend(session, account_id, forgotten)
        opened = repository.entry(session, account_id, 1)
        if head is None or opened is None:
            raise AccountSuspended
        append(
            session,
            account_id,
            head,
            kind="acknowledged",
            amount=forgotten,
            dataset_id=opened.dataset_id,
            principal_id=OPERATOR,
            detail={
                "reason": reason,
                "mark": {
                    "entries": mark.entries,
                    "hash": mark.hash,
                    "spent_primary": mark.spent_primary,
                    "spent_delta": mark.spent_delta,
                },
            },
        )
        audit.record(
            session,
            principal_id=None,
            action="account.acknowledged",
            subject=account_id,
            detail={"reason": reason},
        )
        return forgotten


def _within(marked: int, spent: int, cap: int) -> int:
    """What was forgotten of an amount, and the cap still takes: it may have been raised since."""
    return max(0, min(marked, cap) - spent)
