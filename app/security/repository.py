"""Queries on principals, API keys and the audit log."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TypeVar

from sqlalchemy import ColumnElement, Select, bindparam, func, or_, select
from sqlalchemy.orm import Session

from app.pages import Place, created_after
from app.security.models import ApiKeyRow, AuditRow, PrincipalRow

# Every request runs this, so it is built once.
_KEY_WITH_OWNER = (
    select(ApiKeyRow, PrincipalRow)
    .join(PrincipalRow, PrincipalRow.id == ApiKeyRow.principal_id)
    .where(ApiKeyRow.digest == bindparam("digest"))
)
# Values bound in one statement.
_MOST_IDS = 50
Listed = TypeVar("Listed", PrincipalRow, ApiKeyRow)


def _page(
    query: Select[Listed], row: type[Listed], after: Place | None, limit: int
) -> Select[Listed]:
    if after is not None:
        query = query.where(created_after(row, after))
    return query.order_by(row.created_at, row.id).limit(limit)


def key_with_owner(session: Session, digest: str) -> tuple[ApiKeyRow, PrincipalRow] | None:
    found = session.execute(_KEY_WITH_OWNER, {"digest": digest}).first()
    return None if found is None else (found[0], found[1])


def keys_with_owners(
    session: Session, key_ids: Collection[str]
) -> Iterator[tuple[ApiKeyRow, PrincipalRow]]:
    """Keys by their ids, a bounded number to a query."""
    ids = sorted(key_ids)
    for first in range(0, len(ids), _MOST_IDS):
        query = select(ApiKeyRow, PrincipalRow).join(
            PrincipalRow, PrincipalRow.id == ApiKeyRow.principal_id
        )
        chosen = query.where(ApiKeyRow.id.in_(ids[first : first + _MOST_IDS]))
        yield from ((row, owner) for row, owner in session.execute(chosen))


def principal(session: Session, principal_id: str) -> PrincipalRow | None:
    return session.get(PrincipalRow, principal_id)


def principal_named(session: Session, name: str) -> PrincipalRow | None:
    return session.scalar(select(PrincipalRow).where(PrincipalRow.name == name))


def names(session: Session) -> Iterator[tuple[str, str]]:
    """Id and name of every principal."""
    rows = session.execute(select(PrincipalRow.id, PrincipalRow.name))
    return ((row[0], row[1]) for row in rows)


def any_principal(session: Session) -> bool:
    return session.scalar(select(PrincipalRow.id).limit(1)) is not None


def principals(session: Session, after: Place | None, limit: int) -> list[PrincipalRow]:
    return list(session.scalars(_page(select(PrincipalRow), PrincipalRow, after, limit)))


def principals_with_keys(session: Session) -> Iterator[tuple[PrincipalRow, ApiKeyRow | None]]:
    """Oldest first; a row for each key, and one for a principal without any."""
    rows = session.execute(
        select(PrincipalRow, ApiKeyRow)
        .outerjoin(ApiKeyRow, ApiKeyRow.principal_id == PrincipalRow.id)
        .order_by(PrincipalRow.created_at, PrincipalRow.id, ApiKeyRow.created_at, ApiKeyRow.id)
    )
    return ((row[0], row[1]) for row in rows)


def other_admins(session: Session, principal_id: str, moment: datetime) -> int:
    """How many other active admins hold a key that works at `moment`."""
    return (
        session.scalar(
            select(func.count(PrincipalRow.id.distinct()))
            .join(ApiKeyRow, ApiKeyRow.principal_id == PrincipalRow.id)
            .where(
                PrincipalRow.id != principal_id,
                PrincipalRow.is_admin,
                PrincipalRow.state == "active",
                ApiKeyRow.revoked_at.is_(None),
                or_(ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > moment),
            )
        )
        or 0
    )


def key(session: Session, principal_id: str, key_id: str) -> ApiKeyRow | None:
    return session.scalar(
        select(ApiKeyRow).where(ApiKeyRow.id == key_id, ApiKeyRow.principal_id == principal_id)
    )


def keys(session: Session, principal_id: str, after: Place | None, limit: int) -> list[ApiKeyRow]:
    return list(
        session.scalars(
            _page(
                select(ApiKeyRow).where(ApiKeyRow.principal_id == principal_id),
                ApiKeyRow,
                after,
                limit,
            )
        )
    )


def usable_keys(session: Session, principal_id: str, moment: datetime) -> int:
    return (
        session.scalar(
            select(func.count(ApiKeyRow.id)).where(
                ApiKeyRow.principal_id == principal_id,
                ApiKeyRow.revoked_at.is_(None),
                or_(ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > moment),
            )
        )
        or 0
    )


def audit_entries(
    session: Session, before: int | None, limit: int, *, shown: ColumnElement[bool] | None = None
) -> list[AuditRow]:
    """Newest first; with `shown` only the entries for which it holds."""
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(AuditRow.id < before)
    if shown is not None:
        query = query.where(shown)
    return list(session.scalars(query))
