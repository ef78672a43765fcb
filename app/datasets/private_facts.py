"""Private facts about a dataset's rows that are stored beside them, for its custodian alone.

They are sealed under the dataset's own key, and so become unreadable with the rows when the key is
erased: the report of its ingest, the exact number of rows, and why jobs on it failed.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy.orm import Session

from app.datasets import repository
from app.datasets.models import DatasetRow
from app.problems import Conflict
from app.storage.encryption import Cipher, Keyring, StorageKeyError
from app.storage.sealed import read_text, stored_text

UNREADABLE = "It is encrypted with another master key than the service's."


def put_report(row: DatasetRow, report: dict[str, Any], cipher: Cipher | None) -> None:
    """Store the report of an ingest; `cipher` is that of the dataset's key."""
    text = json.dumps(report)
    row.ingest_report = report if cipher is None else stored_text(cipher, text, _of_report(row.id))


def report(row: DatasetRow, keyring: Keyring) -> dict[str, Any] | None:
    """The report; None where there is none. Raises `StorageKeyError`."""
    stored = row.ingest_report
    if not isinstance(stored, str):
        return stored
    cipher = keyring.cipher(row.id, row.wrapped_key)
    opened: dict[str, Any] = json.loads(read_text(cipher, stored, _of_report(row.id)))
    return opened


def readable_report(row: DatasetRow, keyring: Keyring) -> dict[str, Any] | None:
    """The report, for a response. Raises `Conflict` where the service's key does not open it."""
    try:
        return report(row, keyring)
    except StorageKeyError:
        raise Conflict(f"The ingest report cannot be read. {UNREADABLE}") from None


def put_rows(row: DatasetRow, rows: int, cipher: Cipher | None) -> None:
    """Store the exact number of rows. Of a sealed private table only the report states it."""
    row.rows = rows if row.visibility == "public" or cipher is None else None


def exact_rows(row: DatasetRow, keyring: Keyring) -> int | None:
    """The exact number of rows; None where there are none, or the key cannot open it."""
    if row.rows is not None or row.state != "ready":
        return row.rows
    try:
        found = report(row, keyring)
    except StorageKeyError:
        return None
    return None if found is None else int(found["rows"])


def stored_detail(
    session: Session, keyring: Keyring, dataset_id: str, job_id: str, detail: str
) -> str | None:
    """Why a job on a dataset failed, as it is stored with the job; None once it is erased."""
    row = repository.get(session, dataset_id)
    if row is None:
        return detail
    if row.state == "erased":
        return None
    if row.wrapped_key is None and row.ready_at is None:
        # Its ingest had not come to making a key.
        row.wrapped_key = keyring.new_key(row.id)
    try:
        cipher = keyring.cipher(row.id, row.wrapped_key)
    except StorageKeyError as error:
        # Nothing can be sealed, and nothing of the rows was read: this is why it failed.
        return f"{type(error).__name__}: {error}"
    return stored_text(cipher, detail, _of_detail(job_id))


def detail(row: DatasetRow, keyring: Keyring, job_id: str, stored: str | None) -> str | None:
    """What `stored_detail` was given."""
    if stored is None:
        return None
    try:
        cipher = keyring.cipher(row.id, row.wrapped_key)
        return read_text(cipher, stored, _of_detail(job_id))
    except StorageKeyError:
        return UNREADABLE


def seal(session: Session, keyring: Keyring, row: DatasetRow) -> None:
    """Seal what an earlier version stored in the clear about a dataset that has a key."""
    cipher = keyring.cipher(row.id, row.wrapped_key)
    if cipher is None:
        return
    if isinstance(row.ingest_report, dict):
        put_report(row, row.ingest_report, cipher)
    if row.rows is not None:
        put_rows(row, row.rows, cipher)
    for job in repository.jobs_with_plain_detail(session, row.id):
        assert job.private_detail is not None
        job.private_detail = stored_text(cipher, job.private_detail, _of_detail(job.id))


def _of_report(dataset_id: str) -> str:
    return f"{dataset_id}/ingest-report"


def _of_detail(job_id: str) -> str:
    return f"{job_id}/detail"
