"""Recognises an upload whose content is already stored, when its dataset becomes ready.

This protects against mistakes, not against intent. Only matches among one custodian's datasets
have an effect; a match across custodians is only recorded in the admin's audit log.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.datasets import repository
from app.datasets.models import DatasetRow
from app.ledger.accounts import has_charges
from app.security import audit
from app.storage.models import SecretRow

CONTENT_KEY = "content-key"
# A keyed digest: without the key nobody can test whether the store holds a known table.
KEY_BYTES = 32


class SameContent(Exception):
    """The content may not be stored a second time like this; for the custodian alone."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def content_key(session: Session) -> bytes:
    """This store's key for recognising content; made at the first call, in a write unit."""
    row = session.get(SecretRow, CONTENT_KEY)
    if row is None:
        row = SecretRow(name=CONTENT_KEY, value=secrets.token_bytes(KEY_BYTES))
        session.add(row)
    return row.value


def recognise(session: Session, dataset: DatasetRow, content_hmac: str) -> list[str]:
    """Apply the rules in the transaction that makes `dataset` ready.

    Closes older datasets of the same content whose accounts have no charge, and returns
    their ids. Raises `SameContent` if the content was already charged for, or if it is
    declared both public and private.
    """
    matches = repository.same_content(session, dataset, content_hmac)
    own = [match for match in matches if match.owner_id == dataset.owner_id]
    # A custodian must not learn that somebody else holds the same table.
    _record_for_admin(session, dataset, [match for match in matches if match not in own])
    if any(match.visibility != dataset.visibility for match in own):
        raise _two_visibilities(dataset)
    if dataset.visibility == "public":
        return []
    duplicates = [m for m in own if m.account_id != dataset.account_id and not m.closed]
    if duplicates and dataset.new_population is not None:
        _audit_new_population(session, dataset, duplicates)
        return []
    for duplicate in duplicates:
        assert duplicate.account_id is not None
        # Checked for all before any is closed: this raises, and nothing may be half done.
        if has_charges(session, duplicate.account_id):
            raise _charged_already(duplicate)
    for duplicate in duplicates:
        _close(session, duplicate, dataset)
    return [duplicate.id for duplicate in duplicates]


def _close(session: Session, older: DatasetRow, newer: DatasetRow) -> None:
    older.closed = True
    audit.record(
        session,
        principal_id=newer.owner_id,
        action="dataset.close",
        subject=older.id,
        detail={"taken_over_by": newer.id},
    )


def _audit_new_population(
    session: Session, dataset: DatasetRow, duplicates: Sequence[DatasetRow]
) -> None:
    audit.record(
        session,
        principal_id=dataset.owner_id,
        action="dataset.new_population",
        subject=dataset.id,
        detail={
            "reason": dataset.new_population,
            "same_content_as": [duplicate.id for duplicate in duplicates],
        },
    )


def _record_for_admin(session: Session, dataset: DatasetRow, foreign: Sequence[DatasetRow]) -> None:
    """Without a subject, so that no custodian sees the entry in their view of the log."""
    if foreign:
        audit.record(
            session,
            principal_id=None,
            action="dataset.same_content",
            subject=None,
            detail={"dataset": dataset.id, "others": [match.id for match in foreign]},
        )


def _charged_already(older: DatasetRow) -> SameContent:
    return SameContent(
        f"This is the content of your dataset {older.id}, whose budget has already been charged."
        " A second budget for the same people would add to what was spent.",
        f'Create the dataset with "shares_budget_with": "{older.id}", or, if these are other'
        ' people, with "new_population": {"reason": "..."}.',
    )


def _two_visibilities(dataset: DatasetRow) -> SameContent:
    if dataset.visibility == "public":
        return SameContent(
            "This is the content of a private dataset of yours, so it cannot be public.",
            "Upload it as a private dataset, or upload a table that is public.",
        )
    return SameContent(
        "This is the content of a public dataset of yours, so no budget can protect it.",
        "Use the public dataset, or upload another table.",
    )
