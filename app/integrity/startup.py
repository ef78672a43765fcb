"""What is checked at start-up: ledgers against their accounts, and tables against what was stored.

Accounts that disagree are suspended, and datasets whose tables are not whole take no releases.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from app.database import Database
from app.datasets import damage
from app.integrity.ledgers import missing_accounts, verify, verify_all
from app.integrity.put_back import end_unfinished
from app.ledger import repository
from app.ledger.marks import Mark, Marks, behind, heads
from app.ledger.verification import Verification
from app.problems import Unavailable
from app.security import audit

log = logging.getLogger("halftone.ledger")


def check_ledgers(database: Database, marks: Marks | None = None) -> tuple[Verification, ...]:
    """Suspend the accounts whose ledger is not intact or does not reach its high-water mark; reopen
    those that are intact again. Where one is newly found behind its mark, all releases that have
    not ended fail.

    The rest of the service works as before: a suspended account admits no release, and
    `/readyz` says so. Returns what is not intact.
    """
    recorded = {} if marks is None else marks.read()
    with database.read() as session:
        broken = tuple(found for found in verify_all(session, recorded) if not found.ok)
        suspended = repository.suspended(session)
        missing = missing_accounts(session, recorded)
    changed = {one.account_id for one in broken}.symmetric_difference(suspended)
    if changed:
        _settle(database, sorted(changed), recorded)
    for one in broken:
        log.error("the ledger of account %s is not intact: %s", one.account_id, one.problems[-1])
    for account_id in missing:
        log.error("account %s has a high-water mark, and is not in the store", account_id)
    if marks is not None and not broken and not missing:
        try:
            with database.write() as session:
                marks.compact(heads(session))
        except (OSError, Unavailable) as error:
            # A service on a full disk must start, so that something can be erased.
            log.error("the high-water marks could not be written anew: %s", error)
    return broken


def check_datasets(database: Database) -> list[str]:
    """Take releases on damaged tables no more, and on restored ones again; returns the damaged."""
    damaged = damage.settle(database)
    for dataset_id in damaged:
        log.error("the stored table of dataset %s is damaged: run `halftone verify`", dataset_id)
    return damaged


def _settle(database: Database, account_ids: list[str], recorded: Mapping[str, Mark]) -> None:
    with database.write() as session:
        if not behind(session, recorded).keys().isdisjoint(account_ids):
            end_unfinished(session)
        for account_id in account_ids:
            # Verified again under the write lock: the account may have changed since the first
            # look.
            found = verify(session, account_id, recorded)
            repository.suspend(session, account_id, suspended=not found.ok)
            audit.record(
                session,
                principal_id=None,
                action="account.reopened" if found.ok else "account.suspended",
                subject=account_id,
                detail={"problems": list(found.problems)},
            )
