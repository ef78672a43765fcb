"""The first principal of a new store."""

from __future__ import annotations

import logging

from sqlalchemy.orm import Session

from app.database import Database, new_id, now
from app.security import audit, repository
from app.security.keys import digest_of, is_key, new_key, prefix_of
from app.security.models import ApiKeyRow, PrincipalRow
from app.settings import Settings

log = logging.getLogger("halftone.security")


class BadAdminKey(ValueError):
    """`HALFTONE_ADMIN_KEY` does not have the form of a key; the service does not start."""

    def __init__(self) -> None:
        super().__init__(
            "HALFTONE_ADMIN_KEY is not a key: it is `hk_` followed by 32 to 128 characters"
            " out of A-Z, a-z, 0-9, `_` and `-`. Make one with:"
            " python3 -c \"import secrets; print('hk_' + secrets.token_urlsafe(32))\""
        )


def preset_key(settings: Settings) -> str | None:
    """The operator's key, if one is set. Raises `BadAdminKey`."""
    if settings.admin_key is None:
        return None
    key = settings.admin_key.get_secret_value()
    if not is_key(key):
        raise BadAdminKey
    return key


def ensure_admin(database: Database, settings: Settings) -> str | None:
    """Create the first principal of a new store, with every role.

    Returns the key to print, once, if it was made here; None if a principal exists already
    or the key was preset. Raises `BadAdminKey` before anything is changed.
    """
    preset = preset_key(settings)
    with database.read() as session:
        if repository.any_principal(session):
            _warn_if_unknown(session, preset)
            return None
    with database.write() as session:
        if repository.any_principal(session):
            return None
        # Checked again under the write lock: another process may have started on the same empty
        # store.
        key = preset or new_key()
        _add_first(session, key)
    return None if preset else key


def _warn_if_unknown(session: Session, preset: str | None) -> None:
    if preset is None:
        return
    found = repository.key_with_owner(session, digest_of(preset))
    if found is None or found[0].revoked_at is not None:
        log.warning(
            "HALFTONE_ADMIN_KEY does not work here: it is used only at the first start on an"
            " empty store. Use a key of this store, or make one: `halftone keys create admin`."
        )


def announce_admin(database: Database, settings: Settings) -> None:
    """Create the first principal of a new store, and print the key if it was made here."""
    key = ensure_admin(database, settings)
    if key is not None:
        # Standard output only: a log is kept and read by many.
        print(f"Admin key, shown this once: {key}", flush=True)


def _add_first(session: Session, key: str) -> None:
    moment = now()
    first = PrincipalRow(
        id=new_id("pr"),
        name="admin",
        is_admin=True,
        is_custodian=True,
        is_analyst=True,
        state="active",
        created_at=moment,
    )
    session.add(first)
    session.flush()
    session.add(
        ApiKeyRow(
            id=new_id("ky"),
            principal_id=first.id,
            label="first key",
            prefix=prefix_of(key),
            digest=digest_of(key),
            created_at=moment,
        )
    )
    audit.record(
        session,
        principal_id=None,
        action="principal.created",
        subject=first.id,
        detail={"name": first.name, "roles": ["admin", "custodian", "analyst"], "first": True},
    )
