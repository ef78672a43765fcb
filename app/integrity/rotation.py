"""A new master key for a store.

Data are sealed under keys of their own, and these are wrapped under the master key. So a rotation
wraps every key again, in one transaction: whenever it is interrupted, the store is under the old
key or under the new one, and never under both. The bytes of tables are not read or written.
"""

from __future__ import annotations

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.database import Database
from app.datasets.master_key import KNOWN_VALUE, is_master_key
from app.datasets.models import DatasetRow
from app.integrity import wrapped
from app.problems import Conflict
from app.queue import jobs
from app.security import audit
from app.storage.encryption import Keyring, WrongMasterKey
from app.storage.models import SecretRow
from app.storage.secrets import is_wrapped, wrapped_key


def rotate(database: Database, old: Keyring, new: Keyring) -> int:
    """Wrap all keys under `new`; how many there were.

    Raises `WrongMasterKey` if the store is not under `old`, and `Conflict` while uploads wait or
    jobs run, whose keys are held by others.
    """
    with database.write() as session:
        if not is_master_key(session, old):
            raise WrongMasterKey(is_missing=not old.encrypts)
        _refuse_busy(session)
        number = 0
        for key in wrapped.keys(session):
            key.rewrap(session, old, new)
            number += 1
        for row in wrapped.store_keys(session):
            if not is_wrapped(row.value):
                row.value = wrapped_key(new, row.name, row.value)
                number += 1
        sealed = new.seal_known_value()
        assert sealed is not None
        session.merge(SecretRow(name=KNOWN_VALUE, value=sealed))
        audit.record(
            session,
            principal_id=None,
            action="master_key.rotated",
            subject=None,
            detail={"keys": number},
        )
        return number


def _refuse_busy(session: Session) -> None:
    # A staged file names its key in its first line, under the old master key.
    uploads = session.scalar(select(exists().where(DatasetRow.state == "ingesting")))
    if uploads or jobs.holders(session):
        raise Conflict(
            "Uploads wait or jobs run. Let them end, stop the service, and rotate the key then."
        )
