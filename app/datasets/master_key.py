"""Whether the master key of the settings is the one that the store's data are sealed under.

The first process with a master key seals a known value in the store. From then on the store is used
with that key alone: under another one, or none, no release could read its dataset, though it was
charged. A store that was made without a key may be given one; what it holds already stays as it
is, and what is uploaded from then on is encrypted.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database import Database
from app.datasets.models import DatasetRow
from app.problems import Unavailable
from app.settings import Settings
from app.storage.encryption import Keyring, StorageKeyError, WrongMasterKey
from app.storage.models import SecretRow

KNOWN_VALUE = "master_key_check"
REPLACED = (
    "The store is sealed under another master key than this server has: start the server with the"
    " store's own key."
)


def require_master_key(database: Database, settings: Settings) -> None:
    """Seal the known value, the first time. Raises `WrongMasterKey` before anything is written."""
    keyring = Keyring(settings)
    with database.write() as session:
        if not is_master_key(session, keyring):
            raise WrongMasterKey(is_missing=not keyring.encrypts)
        sealed = keyring.seal_known_value()
        if sealed is not None and session.get(SecretRow, KNOWN_VALUE) is None:
            session.add(SecretRow(name=KNOWN_VALUE, value=sealed))


def require_same_key(session: Session, keyring: Keyring) -> None:
    """Raises `Unavailable` in a process that was started before the store got another key.

    One look at the known value, which every start with a key has sealed.
    """
    known = session.get(SecretRow, KNOWN_VALUE)
    if known is not None and not keyring.opens_known_value(known.value):
        raise Unavailable(REPLACED, retry_after_s=60)


def is_master_key(session: Session, keyring: Keyring) -> bool:
    """Whether this key opens what is sealed in the store; any key does while nothing is."""
    known = session.get(SecretRow, KNOWN_VALUE)
    if known is not None:
        return keyring.opens_known_value(known.value)
    # A store of the version before has no known value; the key of any dataset serves as well.
    one = select(DatasetRow).where(DatasetRow.wrapped_key.is_not(None)).limit(1)
    dataset = session.scalar(one)
    try:
        if dataset is not None:
            keyring.cipher(dataset.id, dataset.wrapped_key)
    except StorageKeyError:
        return False
    return True
