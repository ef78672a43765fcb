"""Use-cases of principals and their API keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy.orm import Session

from app.database import format_time, new_id, now
from app.names import look_alike
from app.problems import Conflict, FieldError, Invalid, NotFound
from app.security import audit, repository
from app.security.authentication import is_usable
from app.security.keys import digest_of, new_key, prefix_of
from app.security.models import ApiKeyRow, PrincipalRow
from app.security.principals import Principal

Role = Literal["admin", "custodian", "analyst", "auditor"]
ROLES: tuple[Role, ...] = ("admin", "custodian", "analyst", "auditor")
# A hundred years; beyond, datetimes could overflow.
LONGEST_LIFE = timedelta(days=36500)


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A key just made: its row, and its secret, which is shown only once."""

    row: ApiKeyRow
    secret: str


def roles_of(row: PrincipalRow | Principal) -> list[Role]:
    held = (row.is_admin, row.is_custodian, row.is_analyst, row.is_auditor)
    return [role for role, holds in zip(ROLES, held, strict=True) if holds]


def create_principal(
    session: Session, actor: Principal | None, *, name: str, roles: Collection[Role]
) -> PrincipalRow:
    """A principal without keys yet. Raises `Conflict` if the name is taken."""
    _expect_free(session, name)
    row = PrincipalRow(
        id=new_id("pr"),
        name=name,
        is_admin="admin" in roles,
        is_custodian="custodian" in roles,
        is_analyst="analyst" in roles,
        is_auditor="auditor" in roles,
        state="active",
        created_at=now(),
    )
    session.add(row)
    session.flush()
    _audit(session, actor, "principal.created", row.id, name=name, roles=roles_of(row))
    return row


def change_principal(
    session: Session,
    actor: Principal,
    principal_id: str,
    *,
    name: str | None = None,
    roles: Collection[Role] | None = None,
    state: Literal["active", "disabled"] | None = None,
) -> PrincipalRow:
    """Rename, change roles, disable or enable; what is None stays unchanged.

    Raises `Conflict` if no working admin would be left.
    """
    row = get_principal(session, principal_id)
    stays_admin = (roles is None or "admin" in roles) and state != "disabled"
    # Otherwise the service could lock out its last admin, and only the operator could repair it.
    if row.is_admin and row.state == "active" and not stays_admin:
        _expect_another_admin(session, row.id)
    changed: dict[str, Any] = {}
    if name is not None and name != row.name:
        _expect_free(session, name, row.id)
        changed["name"] = row.name = name
    if roles is not None and set(roles) != set(roles_of(row)):
        row.is_admin, row.is_custodian, row.is_analyst, row.is_auditor = (
            role in roles for role in ROLES
        )
        changed["roles"] = roles_of(row)
    if state is not None and state != row.state:
        changed["state"] = row.state = state
    if changed:
        _audit(session, actor, "principal.changed", row.id, **changed)
    session.flush()
    return row


def get_principal(session: Session, principal_id: str) -> PrincipalRow:
    row = repository.principal(session, principal_id)
    if row is None:
        raise NotFound
    return row


def visible_principal(session: Session, actor: Principal, principal_id: str) -> PrincipalRow:
    """An admin sees every principal, others only themselves; raises `NotFound` otherwise."""
    if not actor.is_admin and actor.id != principal_id:
        raise NotFound
    return get_principal(session, principal_id)


def create_key(
    session: Session,
    actor: Principal | None,
    principal_id: str,
    *,
    label: str,
    expires_at: datetime | None,
) -> MadeKey:
    """A new key for a principal, made by an admin, by themselves, or by the operator (None).

    A key that expires cannot make one that expires later, unless it is an admin's. Raises
    `Invalid` at /expires_at, `Conflict` for a disabled principal.
    """
    owner = _key_owner(session, actor, principal_id)
    if owner.state != "active":
        raise Conflict("The principal is disabled. Enable it before making a key.")
    moment = now()
    expires_at = _expiry(session, actor, moment, expires_at)
    secret = new_key()
    row = ApiKeyRow(
        id=new_id("ky"),
        principal_id=owner.id,
        label=label,
        prefix=prefix_of(secret),
        digest=digest_of(secret),
        created_at=moment,
        expires_at=expires_at,
    )
    session.add(row)
    session.flush()
    _audit(
        session,
        actor,
        "key.created",
        owner.id,
        key_id=row.id,
        prefix=row.prefix,
        expires_at=None if expires_at is None else format_time(expires_at),
    )
    return MadeKey(row, secret)


def _key_owner(session: Session, actor: Principal | None, principal_id: str) -> PrincipalRow:
    if actor is None:
        return get_principal(session, principal_id)
    return visible_principal(session, actor, principal_id)


def _expiry(
    session: Session, actor: Principal | None, moment: datetime, expires_at: datetime | None
) -> datetime | None:
    if expires_at is not None and not moment < expires_at <= moment + LONGEST_LIFE:
        raise Invalid.at(
            "/expires_at",
            "A key expires within the next hundred years, or not at all.",
            "Send a moment between now and then, or none.",
        )
    if actor is None or actor.is_admin or actor.key_id is None:
        return expires_at
    # A stolen key must not turn into one that lasts.
    own = repository.key(session, actor.id, actor.key_id)
    longest = None if own is None else own.expires_at
    if longest is None or (expires_at is not None and expires_at <= longest):
        return expires_at
    if expires_at is None:
        return longest
    raise Invalid.at(
        "/expires_at",
        "A key cannot make a key that expires later than itself.",
        f"Send {format_time(longest)} or earlier, or ask an admin.",
    )


def get_key(session: Session, actor: Principal, principal_id: str, key_id: str) -> ApiKeyRow:
    visible_principal(session, actor, principal_id)
    row = repository.key(session, principal_id, key_id)
    if row is None:
        raise NotFound
    return row


def revoke_key(session: Session, actor: Principal | None, principal_id: str, key_id: str) -> None:
    """Revoke a key at once; revoking it again changes nothing.

    Raises `Conflict` for the caller's own last key, and for the last key of the last admin.
    """
    owner = _key_owner(session, actor, principal_id)
    row = repository.key(session, owner.id, key_id)
    if row is None:
        raise NotFound
    moment = now()
    if row.revoked_at is not None:
        return
    if is_usable(row, moment) and repository.usable_keys(session, owner.id, moment) == 1:
        if actor is not None and actor.id == owner.id:
            raise Conflict("This is your last key. Make another before you revoke it.")
        if owner.is_admin and owner.state == "active":
            _expect_another_admin(session, owner.id)
    row.revoked_at = moment
    session.flush()
    _audit(session, actor, "key.revoked", owner.id, key_id=row.id, prefix=row.prefix)


def _expect_free(session: Session, name: str, own_id: str | None = None) -> None:
    """Raises `Conflict` for a name that another principal has, or one that looks like it.

    Disabled principals count: what they did stays in the audit log under their names.
    """
    for principal_id, taken in repository.names(session):
        if principal_id != own_id and look_alike(name, taken):
            raise Conflict(
                "There is already a principal of this name, or of one that looks like it.",
                errors=[FieldError("/name", "The name is taken.", "Choose another name.")],
            )


def _expect_another_admin(session: Session, principal_id: str) -> None:
    if repository.other_admins(session, principal_id, now()) == 0:
        raise Conflict("No other admin has a working key. Make one before you remove this one.")


def _audit(
    session: Session, actor: Principal | None, action: str, subject: str, **detail: Any
) -> None:
    audit.record(
        session,
        principal_id=None if actor is None else actor.id,
        action=action,
        subject=subject,
        detail=detail,
    )
