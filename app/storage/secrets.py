"""Keys of the store itself, wrapped under the master key where there is one."""

from __future__ import annotations

import secrets

from sqlalchemy.orm import Session

from app.database import Database
from app.storage.encryption import KEY_BYTES, Keyring
from app.storage.models import SecretRow


def secret(session: Session, keyring: Keyring, name: str) -> bytes:
    """The key of this name, of 32 bytes; made at the first call, in a write unit.

    Raises `MasterKeyMissing` or `SealBroken`.
    """
    row = session.get(SecretRow, name)
    if row is not None:
        return keyring.unwrap(name, row.value.decode()) if is_wrapped(row.value) else row.value
    made = secrets.token_bytes(KEY_BYTES)
    session.add(SecretRow(name=name, value=wrapped_key(keyring, name, made)))
    return made


def kept_secret(database: Database, keyring: Keyring, name: str) -> bytes:
    """`secret` in a unit of work of its own, which writes only where the key has to be made."""
    with database.read() as session:
        if session.get(SecretRow, name) is not None:
            return secret(session, keyring, name)
    with database.write() as session:
        return secret(session, keyring, name)


def wrapped_key(keyring: Keyring, name: str, key: bytes) -> bytes:
    """The key as it is stored; as it is without a master key."""
    return keyring.wrap(name, key).encode() if keyring.encrypts else key


def is_wrapped(value: bytes) -> bool:
    """A wrapped key is the text of `Keyring.wrap`, which is longer than the key itself."""
    return len(value) != KEY_BYTES
