"""Ledgers of the store, each compared with its account, datasets and grants."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.orm import Session

from app.access import repository as access
from app.datasets import repository as datasets
from app.ledger import repository, verification
from app.ledger.verification import Users, Verification


def verify(session: Session, account_id: str) -> Verification:
    """Verify the ledger of one account. Raises `LookupError` where there is no such account."""
    users = Users(datasets.of_account(session, account_id), access.spending(session, account_id))
    return verification.verify(session, account_id, users)


def verify_all(session: Session) -> Iterator[Verification]:
    """Every account's ledger, one after another. Reads every entry, so not for each request."""
    for account_id in repository.account_ids(session):
        yield verify(session, account_id)
