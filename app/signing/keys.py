"""The service's Ed25519 keys: one signs, and the public halves of earlier ones are kept.

The private half is one of the store's own keys (`app/storage/secrets.py`): wrapped under the master
key where there is one. A rotation deletes it, so that nobody can sign with a retired key.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database import Database, now
from app.problems import Unavailable
from app.security import audit
from app.signing.models import SigningKeyRow
from app.storage.encryption import Keyring, StorageKeyError
from app.storage.models import SecretRow
from app.storage.secrets import secret, wrapped_key

ALGORITHM = "Ed25519"
PREFIX = "sg_"
# 100 bits: nobody finds a second key of the same id.
_ID_CHARACTERS = 20
_SEALED = (
    "The signing key is sealed under another master key than this server has: start the server with"
    " the store's own key."
)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The key that signs. `id` names it in signatures; `public` is its public half, 32 bytes."""

    id: str
    public: bytes
    _private: Ed25519PrivateKey

    @classmethod
    def of(cls, private: bytes) -> SigningKey:
        """The key of a private half, 32 bytes."""
        key = Ed25519PrivateKey.from_private_bytes(private)
        public = key.public_key().public_bytes_raw()
        return cls(key_id(public), public, key)

    def sign(self, data: bytes) -> bytes:
        """The signature, 64 bytes; equal data give equal signatures (RFC 8032)."""
        return self._private.sign(data)

    def signature_of(self, data: bytes) -> dict[str, str]:
        """The signature as JSON documents hold it."""
        return {
            "algorithm": ALGORITHM,
            "key_id": self.id,
            "public_key": base64.b64encode(self.public).decode(),
            "value": base64.b64encode(self.sign(data)).decode(),
        }


def key_id(public: bytes) -> str:
    """The id of a public half, made of its SHA-256, so that an id names no other key."""
    digest = base64.b32encode(hashlib.sha256(public).digest()).decode().lower()
    return PREFIX + digest[:_ID_CHARACTERS]


def current(session: Session, keyring: Keyring) -> SigningKey:
    """The key that signs; made at the first call, in a write unit.

    Raises `Unavailable` in a process that has another master key than the store.
    """
    row = _current(session)
    if row is None:
        return _make(session, keyring)
    try:
        return SigningKey.of(secret(session, keyring, row.id))
    except StorageKeyError:
        raise Unavailable(_SEALED, retry_after_s=60) from None


def prepare(database: Database, keyring: Keyring) -> None:
    """Make the first key of a store that has none."""
    with database.read() as session:
        if _current(session) is not None:
            return
    with database.write() as session:
        current(session, keyring)


def rotate(session: Session, keyring: Keyring) -> SigningKey:
    """Sign with a new key from here on. The private half of the old one is deleted."""
    old = _current(session)
    if old is not None:
        old.retired_at = now()
        session.delete(session.get_one(SecretRow, old.id))
        session.flush()
    made = _make(session, keyring)
    audit.record(
        session,
        principal_id=None,
        action="signing_key.rotated",
        subject=made.id,
        detail={"retired": None if old is None else old.id},
    )
    return made


def all_keys(session: Session) -> list[SigningKeyRow]:
    """The public halves: the current one, then the retired ones, newest first."""
    rows = session.scalars(select(SigningKeyRow))
    return sorted(rows, key=lambda row: (row.retired_at is None, row.created_at), reverse=True)


def _current(session: Session) -> SigningKeyRow | None:
    return session.scalar(select(SigningKeyRow).where(SigningKeyRow.retired_at.is_(None)))


def _make(session: Session, keyring: Keyring) -> SigningKey:
    private = Ed25519PrivateKey.generate().private_bytes_raw()
    made = SigningKey.of(private)
    session.add(SecretRow(name=made.id, value=wrapped_key(keyring, made.id, private)))
    session.add(SigningKeyRow(id=made.id, public=made.public, created_at=now()))
    session.flush()
    return made
