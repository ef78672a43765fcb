"""From an Authorization header to a principal, with failures limited."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Collection
from datetime import datetime

from sqlalchemy.orm import Session

from app.database import Database, now
from app.problems import NotAuthenticated, TooManyRequests
from app.security import repository
from app.security.keys import digest_of, is_key, prefix_of
from app.security.models import ApiKeyRow, PrincipalRow
from app.security.principals import Principal
from app.security.windows import Windows

_ANY_PREFIX = ""


class FailureLimit:
    """Counts failed authentications of a client address, alone and with a key prefix.

    An address that keeps failing with one prefix is refused before its key is checked. One that
    fails with many prefixes gets 429 instead of 401, but a valid key still works, so that nobody
    can lock out others behind the same proxy. Counts are kept in this process, for windows of
    `window_s` seconds.
    """

    def __init__(
        self, limit: int, window_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._windows: Windows[tuple[str, str]] = Windows(window_s, clock)

    def refuse_if_exceeded(self, client: str, prefix: str = _ANY_PREFIX) -> None:
        """Raises `TooManyRequests` once this address has failed too often."""
        left_s = self._windows.left_s((client, prefix), self._limit)
        if left_s:
            raise TooManyRequests(
                "Too many failed authentications came from this address. Wait, then send a valid"
                " key.",
                retry_after_s=left_s,
            )

    def count(self, client: str, prefix: str) -> None:
        # The prefix is not the key: the limit can count it without holding a secret.
        self._windows.count((client, prefix), (client, _ANY_PREFIX))


def authenticate(
    database: Database, failures: FailureLimit, *, authorization: str | None, client: str
) -> Principal:
    """The principal whose key the header carries.

    Raises `NotAuthenticated` for a header that is missing or holds no valid key (unknown,
    expired, revoked, or of a disabled principal: the answer is the same), `TooManyRequests` after
    too many failures from this client. A missing header is not counted as a failure.
    """
    if authorization is None:
        raise NotAuthenticated
    key = _bearer_token(authorization)
    prefix = prefix_of(key)
    failures.refuse_if_exceeded(client, prefix)
    principal = _owner_of(database, key) if is_key(key) else None
    if principal is None:
        failures.refuse_if_exceeded(client)
        failures.count(client, prefix)
        raise NotAuthenticated
    return principal


def _bearer_token(authorization: str) -> str:
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _owner_of(database: Database, key: str) -> Principal | None:
    digest = digest_of(key)
    with database.read() as session:
        found = repository.key_with_owner(session, digest)
    if found is None:
        return None
    row, owner = found
    # Constant time. The index found the row by a hash, which tells a client nothing about the key.
    return _principal(row, owner) if hmac.compare_digest(row.digest, digest) else None


def owners_of_keys(session: Session, key_ids: Collection[str]) -> dict[str, Principal]:
    """Whom each of these keys stands for now; without those that no longer work."""
    found = {
        row.id: _principal(row, owner)
        for row, owner in repository.keys_with_owners(session, key_ids)
    }
    return {key_id: principal for key_id, principal in found.items() if principal is not None}


def _principal(row: ApiKeyRow, owner: PrincipalRow) -> Principal | None:
    if not is_usable(row, now()) or owner.state != "active":
        return None
    return Principal(
        id=owner.id,
        name=owner.name,
        is_admin=owner.is_admin,
        is_custodian=owner.is_custodian,
        is_analyst=owner.is_analyst,
        is_auditor=owner.is_auditor,
        key_id=row.id,
    )


def is_usable(key: ApiKeyRow, moment: datetime) -> bool:
    """Whether the key works at `moment`: neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or moment < key.expires_at)
