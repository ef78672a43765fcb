"""Ledgers of the store, each compared with its account, datasets, grants and high-water mark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlalchemy.orm import Session

from app.access import repository as access
from app.datasets import repository as datasets
from app.ledger import marks, repository, verification
from app.ledger.marks import Mark
from app.ledger.verification import Users, Verification

NO_MARKS: Mapping[str, Mark] = {}


def verify(
    session: Session, account_id: str, recorded: Mapping[str, Mark] = NO_MARKS
) -> Verification:
    """Verify the ledger of one account. Raises `LookupError` where there is no such account.

    `recorded` are the high-water marks that chains must reach.
    """
    users = Users(datasets.of_account(session, account_id), access.spending(session, account_id))
    found = verification.verify(session, account_id, users)
    own = {account_id: recorded[account_id]} if account_id in recorded else {}
    for mark in marks.behind(session, own).values():
        problem = (
            f"the chain had come to entry {mark.entries} of another hash: the store was put back to"
            f" an earlier moment. Put the newest store in place, or run `halftone acknowledge"
            f" {account_id}`"
        )
        found = replace(found, ok=False, problems=(*found.problems, problem))
    return found


def verify_all(session: Session, recorded: Mapping[str, Mark] = NO_MARKS) -> Iterator[Verification]:
    """Every account's ledger, one after another. Reads every entry, so not for each request."""
    for account_id in repository.account_ids(session):
        yield verify(session, account_id, recorded)


def missing_accounts(session: Session, recorded: Mapping[str, Mark]) -> list[str]:
    """Accounts that have a high-water mark and are not in the store."""
    return sorted(set(recorded) - set(repository.account_ids(session)))
