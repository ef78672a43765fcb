"""Every key that the store holds under the master key: what another master key has to rewrap.

Nothing else in the store is sealed under the master key itself but the known value of
`datasets/master_key.py`. Staged uploads carry a wrapped key each in their first line, and last only
until their ingest is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.datasets.models import DatasetRow
from app.datasets.recognition import CONTENT_KEY
from app.idempotency import REQUEST_KEY
from app.ledger.marks import MARK_KEY
from app.signing.models import SigningKeyRow
from app.storage.encryption import Keyring
from app.storage.models import SecretRow
from app.storage.secrets import is_wrapped

# Names of the store's own keys, beside those that sign.
STORE_KEYS = (CONTENT_KEY, REQUEST_KEY, MARK_KEY)


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """One wrapped key, as `Keyring.wrap` made it for its owner."""

    owner: str
    wrapped: str
    _owners: InstrumentedAttribute[str]
    _column: InstrumentedAttribute[Any]

    def rewrap(self, session: Session, old: Keyring, new: Keyring) -> None:
        """Store the same key under another master key. Raises `StorageKeyError`."""
        again: str | bytes = new.wrap(self.owner, old.unwrap(self.owner, self.wrapped))
        if self._column is SecretRow.value:
            again = str(again).encode()
        session.execute(
            update(self._column.class_)
            .where(self._owners == self.owner)
            .values({self._column.key: again})
        )


def keys(session: Session) -> Iterator[WrappedKey]:
    """All of them, those of the store first."""
    for row in store_keys(session):
        if is_wrapped(row.value):
            yield WrappedKey(row.name, row.value.decode(), SecretRow.name, SecretRow.value)
    wrapped = select(DatasetRow.id, DatasetRow.wrapped_key)
    for owner, key in session.execute(wrapped.where(DatasetRow.wrapped_key.is_not(None))):
        yield WrappedKey(owner, str(key), DatasetRow.id, DatasetRow.wrapped_key)


def store_keys(session: Session) -> list[SecretRow]:
    """The store's own keys that there are, wrapped or not."""
    own = or_(SecretRow.name.in_(STORE_KEYS), SecretRow.name.in_(select(SigningKeyRow.id)))
    return list(session.scalars(select(SecretRow).where(own)))
