"""Recognises an upload whose content is already stored, when its dataset becomes ready.

This protects against mistakes, not against intent. A custodian's uploads are compared with their
own datasets alone, and only they learn the result: from the ingest report, which nobody else
reads. Nothing that an analyst or the admin can see depends on it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.orm import Session

from app.database import now
from app.datasets import repository
from app.datasets.delta import Note
from app.datasets.models import DatasetRow
from app.engine.json_pointer import pointer
from app.ledger.accounts import has_charges
from app.storage.encryption import Keyring
from app.storage.secrets import secret

CONTENT_KEY = "content-key"
COMPARISON_WINDOW = timedelta(days=1)
# How many earlier datasets are looked through for one of the same columns.
_MOST_LOOKED_AT = 50


class NotAccepted(Exception):
    """The content may not be stored like this; for the custodian alone."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def content_key(session: Session, keyring: Keyring) -> bytes:
    """This store's key for recognising content; made at the first call, in a write unit."""
    # Without the key nobody can test whether the store holds a known table.
    return secret(session, keyring, CONTENT_KEY)


def content_hmac(key: bytes, owner_id: str, digest: bytes) -> str:
    """The digest by which content is recognised among the tables of one owner."""
    # Different for each owner, so that equal tables of two custodians do not look equal.
    return hmac.new(key, owner_id.encode() + b"\0" + digest, hashlib.sha256).hexdigest()


def recognise(
    session: Session, dataset: DatasetRow, content_hmac: str, *, most_comparisons: int
) -> list[str]:
    """Apply the rules in the transaction that makes `dataset` ready.

    Closes the accounts that older datasets of the same content draw on, where nothing was charged
    to them and no analyst may use them. Returns the ids of the datasets that this closed. Raises
    `NotAccepted` if that cannot be done, if the content is declared both public and private, or if
    too many of the custodian's uploads were compared today.
    """
    if dataset.closed:
        raise _closed_meanwhile()
    same = repository.same_content(session, dataset, content_hmac)
    if dataset.visibility == "private" and dataset.new_population is not None:
        # Other people by declaration: private tables are not compared, so nothing is told of them.
        same = [other for other in same if other.visibility == "public"]
    else:
        _limit_comparisons(session, dataset, most_comparisons)
    if any(other.visibility != dataset.visibility for other in same):
        raise _two_visibilities(dataset)
    if dataset.visibility == "public":
        return []
    return _take_over(session, [other for other in same if not other.closed])


def warnings(session: Session, dataset: DatasetRow) -> list[Note]:
    """What may close when this dataset becomes ready, told before it does.

    From dictionaries, ledgers and grants: nothing is known yet of the table.
    """
    waits = dataset.state in ("awaiting_data", "ingesting", "rejected") and not dataset.closed
    if dataset.visibility != "private" or dataset.new_population is not None or not waits:
        return []
    for older in repository.closable(session, dataset, _MOST_LOOKED_AT):
        if _columns(older) == _columns(dataset):
            return [_may_close(older)]
    return []


def _columns(dataset: DatasetRow) -> set[str]:
    return {field["name"] for field in dataset.schema["fields"]}


def _may_close(older: DatasetRow) -> Note:
    return Note(
        pointer("budget"),
        f"Your dataset {older.id} has the same columns, and nothing was charged to its budget. If"
        " the table is the same too, every dataset on that budget is closed when this one is"
        " ready.",
        f'To keep it, create a dataset with "shares_budget_with": "{older.id}" instead, or, if'
        ' these are other people, with "new_population": {"reason": "..."}.',
    )


def _limit_comparisons(session: Session, dataset: DatasetRow, most: int) -> None:
    """Before anything is decided: an upload beyond the limit is answered alike, equal or not."""
    # What is still stored has nothing to hide from its custodian. An erased table has: with all
    # rows but one, one upload for each guess would find the missing one.
    if not repository.has_erased(session, dataset):
        return
    moment = now()
    since = moment - COMPARISON_WINDOW
    if repository.comparisons(session, dataset.owner_id, since) >= most:
        raise _too_many_comparisons(most)
    repository.record_comparison(session, dataset.owner_id, moment, since)


def _take_over(session: Session, same: Sequence[DatasetRow]) -> list[str]:
    """Close the accounts of these datasets, each with all its datasets."""
    accounts = {other.account_id: other for other in same if other.account_id is not None}
    for account_id, older in accounts.items():
        # Checked for all before any is closed: this raises, and nothing may be half done.
        if has_charges(session, account_id):
            raise _charged_already(older)
        if repository.is_granted(session, account_id):
            raise _used_by_analysts(older)
    # A sibling left open would keep its budget, for people who now have another one.
    closed = [row for account_id in accounts for row in repository.rows_of(session, account_id)]
    for row in closed:
        row.closed = True
    return [row.id for row in closed]


def _charged_already(older: DatasetRow) -> NotAccepted:
    return NotAccepted(
        f"This is the content of your dataset {older.id}, whose budget has already been charged."
        " A second budget for the same people would add to what was spent.",
        f'Create the dataset with "shares_budget_with": "{older.id}", or, if these are other'
        ' people, with "new_population": {"reason": "..."}.',
    )


def _used_by_analysts(older: DatasetRow) -> NotAccepted:
    return NotAccepted(
        f"This is the content of your dataset {older.id}, whose budget analysts may use. Closing it"
        " would tell them that the two tables are equal.",
        f'Create the dataset with "shares_budget_with": "{older.id}", or revoke the grants on all'
        " datasets of that budget and send the data again.",
    )


def _closed_meanwhile() -> NotAccepted:
    return NotAccepted(
        "The budget that this dataset draws on is closed: a newer dataset has the content of one"
        " that shares it.",
        'Create the dataset again with a "budget" of its own, or with another'
        ' "shares_budget_with".',
    )


def _too_many_comparisons(most: int) -> NotAccepted:
    return NotAccepted(
        f"In the last 24 hours {most} of your uploads were compared with tables that you erased,"
        " the most allowed: each comparison tells whether they are equal.",
        'Send the data again later, or create the dataset with "new_population":'
        ' {"reason": "..."} if these are other people.',
    )


def _two_visibilities(dataset: DatasetRow) -> NotAccepted:
    if dataset.visibility == "public":
        return NotAccepted(
            "This is the content of a private dataset of yours, so it cannot be public.",
            "Upload it as a private dataset, or upload a table that is public.",
        )
    return NotAccepted(
        "This is the content of a public dataset of yours, so no budget can protect it.",
        "Use the public dataset, or upload another table.",
    )
