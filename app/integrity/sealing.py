"""At start-up: the keys of the store are there, and what was stored in the clear is sealed.

A store that was made without a master key, or by version 0001, holds its own keys and the private
facts of encrypted datasets in the clear. The first start with the master key seals them.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import String, and_, or_, select, type_coerce
from sqlalchemy.orm import Session

from app.database import Database
from app.datasets import private_facts
from app.datasets.models import DatasetRow
from app.idempotency import REQUEST_KEY
from app.integrity import wrapped
from app.queue.models import JobRow
from app.storage.encryption import Keyring
from app.storage.models import SecretRow
from app.storage.reclaim import reclaim
from app.storage.sealed import SEALED
from app.storage.secrets import is_wrapped, kept_secret, wrapped_key

# Bounds how long one transaction holds the write lock.
_SEALED_AT_ONCE = 50


def prepare_secrets(database: Database, keyring: Keyring) -> bytes:
    """Seal what is in the clear; the store's key for hashes of requests.

    Call after the master key was found to be the store's.
    """
    if keyring.encrypts and _seal(database, keyring):
        # The log and free pages still hold the plain texts.
        reclaim(database)
    return kept_secret(database, keyring, REQUEST_KEY)


def _seal(database: Database, keyring: Keyring) -> bool:
    """Whether there was anything to seal."""
    with database.read() as session:
        keys = [row.name for row in wrapped.store_keys(session) if not is_wrapped(row.value)]
        datasets = list(_with_plain_facts(session))
    if keys:
        with database.write() as session:
            for name in keys:
                row = session.get_one(SecretRow, name)
                row.value = wrapped_key(keyring, name, row.value)
    for first in range(0, len(datasets), _SEALED_AT_ONCE):
        with database.write() as session:
            for dataset_id in datasets[first : first + _SEALED_AT_ONCE]:
                private_facts.seal(session, keyring, session.get_one(DatasetRow, dataset_id))
    return bool(keys or datasets)


def _with_plain_facts(session: Session) -> Iterator[str]:
    """Datasets that have a key, and facts that are not sealed under it."""
    described = select(JobRow.dataset_id).where(
        JobRow.private_detail.is_not(None), ~JobRow.private_detail.startswith(SEALED)
    )
    plain = or_(
        type_coerce(DatasetRow.ingest_report, String).startswith("{"),
        and_(DatasetRow.visibility == "private", DatasetRow.rows.is_not(None)),
        DatasetRow.id.in_(described),
    )
    yield from session.scalars(
        select(DatasetRow.id).where(DatasetRow.wrapped_key.is_not(None), plain)
    )
