"""Queries on who may see a dataset, and on grants."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, false, or_, select
from sqlalchemy.orm import Session

from app.datasets.models import DatasetRow
from app.ledger.models import AccountRow, GrantRow
from app.pages import Place, created_after
from app.security.models import AuditRow
from app.security.principals import Principal

# Actions on their datasets and accounts that custodians and auditors may read as well. Others are
# for the admin alone, such as matches of content, which would reveal that another custodian holds
# the same data.
SHOWN_BESIDES = ("account.", "budget.", "dataset.", "grant.", "publication.", "release.")

# Values bound in one statement.
_MOST_IDS = 50

# Almost every request runs these, so they are built once.
_OPENED = (
    select(DatasetRow, AccountRow, GrantRow)
    .outerjoin(AccountRow, AccountRow.id == DatasetRow.account_id)
    .outerjoin(
        GrantRow,
        and_(GrantRow.dataset_id == DatasetRow.id, GrantRow.principal_id == bindparam("principal")),
    )
    .where(DatasetRow.id == bindparam("dataset"))
)
_ACCESS_FACTS = (
    select(
        DatasetRow.account_id,
        DatasetRow.owner_id,
        DatasetRow.visibility,
        DatasetRow.state,
        DatasetRow.closed,
        DatasetRow.ready_at,
        GrantRow.state,
        GrantRow.role,
        GrantRow.show_budget,
    )
    # No grant is bound as null, which equals nothing, so the row is still found.
    .outerjoin(GrantRow, GrantRow.id == bindparam("grant"))
    .where(DatasetRow.id == bindparam("dataset"))
)


def opened(
    session: Session, dataset_id: str, principal_id: str
) -> tuple[DatasetRow, AccountRow | None, GrantRow | None] | None:
    """The dataset, its account, and the principal's grant on it, active or revoked."""
    found = session.execute(_OPENED, {"dataset": dataset_id, "principal": principal_id}).first()
    return None if found is None else (found[0], found[1], found[2])


def access_facts(session: Session, dataset_id: str, grant_id: str | None) -> tuple[Any, ...] | None:
    """Everything that decides about access to a dataset and its use, and that can change."""
    found = session.execute(_ACCESS_FACTS, {"dataset": dataset_id, "grant": grant_id}).first()
    return None if found is None else tuple(found)


def visible(
    session: Session, principal: Principal, after: Place | None, limit: int
) -> list[DatasetRow]:
    """Newest first, what `permission.open_dataset` would open."""
    query = _seen_by(principal).order_by(DatasetRow.created_at.desc(), DatasetRow.id).limit(limit)
    if after is not None:
        moment, last = after
        query = query.where(
            or_(
                DatasetRow.created_at < moment,
                and_(DatasetRow.created_at == moment, DatasetRow.id > last),
            )
        )
    return list(session.scalars(query))


def _seen_by(principal: Principal) -> Select[DatasetRow]:
    seen = [and_(DatasetRow.visibility == "public", DatasetRow.ready_at.is_not(None))]
    if principal.is_custodian:
        seen.append(DatasetRow.owner_id == principal.id)
    for role, holds in (("analyst", principal.is_analyst), ("auditor", principal.is_auditor)):
        if holds:
            granted = DatasetRow.id.in_(_granted(principal, role))
            seen.append(and_(DatasetRow.ready_at.is_not(None), granted))
    return select(DatasetRow).where(or_(*seen))


def _granted(principal: Principal, role: str) -> Select[str]:
    """Ids of the datasets on which an active grant gives the principal this role."""
    return select(GrantRow.dataset_id).where(
        GrantRow.principal_id == principal.id, GrantRow.role == role, GrantRow.state == "active"
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
    """Oldest first, revoked ones included."""
    query = select(GrantRow).where(GrantRow.dataset_id == dataset_id)
    if after is not None:
        query = query.where(created_after(GrantRow, after))
    return list(session.scalars(query.order_by(GrantRow.created_at, GrantRow.id).limit(limit)))


def active_caps(
    session: Session, account_id: str, principal_ids: Collection[str]
) -> list[tuple[str, int | None, int | None]]:
    """(principal, caps) of every active grant of these analysts on datasets of the account."""
    ids, found = sorted(principal_ids), []
    for first in range(0, len(ids), _MOST_IDS):
        rows = session.execute(
            select(GrantRow.principal_id, GrantRow.cap_primary, GrantRow.cap_delta)
            .join(DatasetRow, DatasetRow.id == GrantRow.dataset_id)
            .where(
                DatasetRow.account_id == account_id,
                GrantRow.principal_id.in_(ids[first : first + _MOST_IDS]),
                GrantRow.state == "active",
                GrantRow.role == "analyst",
            )
        )
        found += [(row[0], row[1], row[2]) for row in rows]
    return found


def spending(session: Session, account_id: str) -> dict[str, tuple[int, int]]:
    """What every grant on the account's datasets has spent, by its id."""
    rows = session.execute(
        select(GrantRow.id, GrantRow.spent_primary, GrantRow.spent_delta)
        .join(DatasetRow, DatasetRow.id == GrantRow.dataset_id)
        .where(DatasetRow.account_id == account_id)
    )
    return {row[0]: (row[1], row[2]) for row in rows}


def audit_of(principal: Principal) -> ColumnElement[bool]:
    """The entries of the audit log that concern a custodian's and an auditor's datasets.

    Entries on an account concern each of its datasets.
    """
    mine = []
    if principal.is_custodian:
        mine.append(DatasetRow.owner_id == principal.id)
    if principal.is_auditor:
        audited = DatasetRow.id.in_(_granted(principal, "auditor"))
        mine.append(and_(DatasetRow.ready_at.is_not(None), audited))
    own = or_(false(), *mine)
    return and_(
        or_(
            AuditRow.subject.in_(select(DatasetRow.id).where(own)),
            AuditRow.subject.in_(select(DatasetRow.account_id).where(own)),
        ),
        or_(*(AuditRow.action.startswith(noun) for noun in SHOWN_BESIDES)),
    )
