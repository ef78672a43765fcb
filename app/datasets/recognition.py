"""The same content again: what happens when a dataset becomes ready with known content.

It guards against mistakes, not against intent. Matches count among one custodian's datasets;
a match across custodians is recorded in the admin's audit log alone.
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
KEY_BYTES = 32


class SameContent(Exception):
    """The content may not come in a second time like this; for the custodian alone."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def content_key(session: Session) -> bytes:
    """This store's key for recognising content; made when first asked for, in a write unit."""
    row = session.get(SecretRow, CONTENT_KEY)
    if row is None:
        row = SecretRow(name=CONTENT_KEY, value=secrets.token_bytes(KEY_BYTES))
        session.add(row)
    return row.value


def recognise(session: Session, dataset: DatasetRow, content_hmac: str) -> list[str]:
    """Apply the rules in the transaction that makes `dataset` ready.

    Closes older datasets of the same content whose accounts have no charge, and returns
    their ids. Raises `SameContent` where the content was charged for already, or is asserted
    public and private both.
    """
    matches = repository.same_content(session, dataset, content_hmac)
    own = [match for match in matches if match.owner_id == dataset.owner_id]
    _record_for_admin(session, dataset, [match for match in matches if match not in own])
    if any(match.visibility != dataset.visibility for match in own):
        raise _two_visibilities(dataset)
    if dataset.visibility == "public":
        return []
    rivals = [m for m in own if m.account_id != dataset.account_id and not m.closed]
    if rivals and dataset.new_population is not None:
        _audit_new_population(session, dataset, rivals)
        return []
    for rival in rivals:
        assert rival.account_id is not None
        if has_charges(session, rival.account_id):
            raise _charged_already(rival)
    for rival in rivals:
        _close(session, rival, dataset)
    return [rival.id for rival in rivals]


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
    session: Session, dataset: DatasetRow, rivals: Sequence[DatasetRow]
) -> None:
    audit.record(
        session,
        principal_id=dataset.owner_id,
        action="dataset.new_population",
        subject=dataset.id,
        detail={
            "reason": dataset.new_population,
            "same_content_as": [rival.id for rival in rivals],
        },
    )


def _record_for_admin(session: Session, dataset: DatasetRow, foreign: Sequence[DatasetRow]) -> None:
    """Without a subject, so that the entry shows in no custodian's view of the log."""
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
        f"This is the content of your dataset {older.id}, whose budget has been charged already."
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
