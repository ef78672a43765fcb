"""At start-up every ledger is held against its account; what does not add up is closed."""

from __future__ import annotations

import logging

from app.database import Database
from app.integrity.ledgers import verify, verify_all
from app.ledger import repository
from app.ledger.verification import Verification
from app.security import audit

log = logging.getLogger("halftone.ledger")


def hold_ledgers_against_accounts(database: Database) -> tuple[Verification, ...]:
    """Suspend the accounts whose ledger is not whole, reopen those that are whole again.

    The rest of the service works as before: a suspended account admits no release, and
    `/readyz` says so. Returns what is not whole.
    """
    with database.read() as session:
        broken = tuple(found for found in verify_all(session) if not found.ok)
        suspended = repository.suspended(session)
    changed = {one.account_id for one in broken}.symmetric_difference(suspended)
    if changed:
        _settle(database, sorted(changed))
    for one in broken:
        log.error("the ledger of account %s is not whole: %s", one.account_id, one.problems[0])
    return broken


def _settle(database: Database, account_ids: list[str]) -> None:
    with database.write() as session:
        for account_id in account_ids:
            found = verify(session, account_id)
            repository.suspend(session, account_id, suspended=not found.ok)
            audit.record(
                session,
                principal_id=None,
                action="account.reopened" if found.ok else "account.suspended",
                subject=account_id,
                detail={"problems": list(found.problems)},
            )
