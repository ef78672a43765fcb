"""Keys made on the command line, by the operator, if no admin can authenticate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from app.database import now
from app.problems import NotFound
from app.security import repository, service
from app.security.models import ApiKeyRow, PrincipalRow
from app.security.service import MadeKey


@dataclass(frozen=True, slots=True)
class Holder:
    """A principal with all its keys."""

    principal: PrincipalRow
    keys: list[ApiKeyRow]


def holders(session: Session) -> list[Holder]:
    """Every principal, oldest first, with its keys in order of creation."""
    found: dict[str, Holder] = {}
    for principal, key in repository.principals_with_keys(session):
        holder = found.setdefault(principal.id, Holder(principal, []))
        if key is not None:
            holder.keys.append(key)
    return list(found.values())


def make_key(session: Session, name_or_id: str, *, label: str, days: int | None) -> MadeKey:
    """A key for a principal found by name or id; a disabled one is enabled again.

    Raises `NotFound`.
    """
    row = _found(session, name_or_id)
    row.state = "active"
    expires_at = None if days is None else now() + timedelta(days=days)
    return service.create_key(session, None, row.id, label=label, expires_at=expires_at)


def end_key(session: Session, key_id: str) -> None:
    """Revoke a key. Raises `NotFound`, and `Conflict` for the last key of the last admin."""
    row = session.get(ApiKeyRow, key_id)
    if row is None:
        raise NotFound("There is no such key.")
    service.revoke_key(session, None, row.principal_id, key_id)


def _found(session: Session, name_or_id: str) -> PrincipalRow:
    row = repository.principal(session, name_or_id) or repository.principal_named(
        session, name_or_id
    )
    if row is None:
        raise NotFound("There is no principal of this name or id.")
    return row
