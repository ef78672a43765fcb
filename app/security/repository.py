"""Queries on principals, API keys, grants and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Select, and_, bindparam, func, or_, select
from sqlalchemy.orm import Session

from app.datasets.models import DatasetRow
from app.ledger.models import AccountRow, GrantRow
from app.security.models import ApiKeyRow, AuditRow, PrincipalRow

SHOWN_TO_CUSTODIANS = ("grant.", "budget.")
"""Actions on their datasets that custodians read too; matches of content across custodians,
for one, are the admin's alone."""

Place = tuple[datetime, str]
"""Where a page of a list in order of creation starts: after (created_at, id)."""

# Requests begin with these, so they are put together once.
_KEY_WITH_OWNER = (
    select(ApiKeyRow, PrincipalRow)
    .join(PrincipalRow, PrincipalRow.id == ApiKeyRow.principal_id)
    .where(ApiKeyRow.digest == bindparam("digest"))
)
_OPENED = (
    select(DatasetRow, AccountRow, GrantRow)
    .outerjoin(AccountRow, AccountRow.id == DatasetRow.account_id)
    .outerjoin(
        GrantRow,
        and_(GrantRow.dataset_id == DatasetRow.id, GrantRow.principal_id == bindparam("principal")),
    )
    .where(DatasetRow.id == bindparam("dataset"))
)
_STANDING = (
    select(
        DatasetRow.account_id,
        DatasetRow.owner_id,
        DatasetRow.visibility,
        DatasetRow.state,
        DatasetRow.closed,
        DatasetRow.ready_at,
        GrantRow.state,
        GrantRow.show_budget,
    )
    .outerjoin(GrantRow, GrantRow.id == bindparam("grant"))
    .where(DatasetRow.id == bindparam("dataset"))
)

Listed = TypeVar("Listed", PrincipalRow, ApiKeyRow, GrantRow)


def _by_creation(
    query: Select[Listed], row: type[Listed], after: Place | None, limit: int
) -> Select[Listed]:
    if after is not None:
        moment, identifier = after
        query = query.where(
            or_(
                row.created_at > moment,
                (row.created_at == moment) & (row.id > identifier),
            )
        )
    return query.order_by(row.created_at, row.id).limit(limit)


def key_with_owner(session: Session, digest: str) -> tuple[ApiKeyRow, PrincipalRow] | None:
    found = session.execute(_KEY_WITH_OWNER, {"digest": digest}).first()
    return None if found is None else (found[0], found[1])


def opened(
    session: Session, dataset_id: str, principal_id: str
) -> tuple[DatasetRow, AccountRow | None, GrantRow | None] | None:
    """The dataset, its account, and the principal's grant on it, active or revoked."""
    found = session.execute(_OPENED, {"dataset": dataset_id, "principal": principal_id}).first()
    return None if found is None else (found[0], found[1], found[2])


def standing(session: Session, dataset_id: str, grant_id: str | None) -> tuple[Any, ...] | None:
    """All that may change of what decides about access to a dataset, and about its use."""
    found = session.execute(_STANDING, {"dataset": dataset_id, "grant": grant_id}).first()
    return None if found is None else tuple(found)


def principal(session: Session, principal_id: str) -> PrincipalRow | None:
    return session.get(PrincipalRow, principal_id)


def principal_named(session: Session, name: str) -> PrincipalRow | None:
    return session.scalar(select(PrincipalRow).where(PrincipalRow.name == name))


def any_principal(session: Session) -> bool:
    return session.scalar(select(PrincipalRow.id).limit(1)) is not None


def principals(session: Session, after: Place | None, limit: int) -> list[PrincipalRow]:
    return list(session.scalars(_by_creation(select(PrincipalRow), PrincipalRow, after, limit)))


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
            _by_creation(
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


def grant(session: Session, dataset_id: str, grant_id: str) -> GrantRow | None:
    return session.scalar(
        select(GrantRow).where(GrantRow.id == grant_id, GrantRow.dataset_id == dataset_id)
    )


def grant_of(session: Session, dataset_id: str, principal_id: str) -> GrantRow | None:
    """The one grant of a principal on a dataset, active or revoked."""
    return session.scalar(
        select(GrantRow).where(
            GrantRow.dataset_id == dataset_id, GrantRow.principal_id == principal_id
        )
    )


def grants(session: Session, dataset_id: str, after: Place | None, limit: int) -> list[GrantRow]:
    return list(
        session.scalars(
            _by_creation(
                select(GrantRow).where(GrantRow.dataset_id == dataset_id), GrantRow, after, limit
            )
        )
    )


def audit_entries(
    session: Session, before: int | None, limit: int, *, owner_id: str | None
) -> list[AuditRow]:
    """Newest first; with `owner_id` only what concerns that principal's datasets."""
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(AuditRow.id < before)
    if owner_id is not None:
        owned = select(DatasetRow.id).where(DatasetRow.owner_id == owner_id)
        query = query.where(
            AuditRow.subject.in_(owned),
            or_(*(AuditRow.action.startswith(noun) for noun in SHOWN_TO_CUSTODIANS)),
        )
    return list(session.scalars(query))
