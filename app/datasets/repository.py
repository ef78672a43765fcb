"""Queries on datasets."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, delete, func, or_, select, true
from sqlalchemy.orm import Session, aliased

from app.datasets.models import ComparisonRow, DatasetRow
from app.ledger.models import AccountRow, GrantRow
from app.queue.models import JobRow
from app.storage.models import ChunkRow
from app.storage.sealed import is_sealed


def get(session: Session, dataset_id: str) -> DatasetRow | None:
    return session.get(DatasetRow, dataset_id)


def same_content(session: Session, dataset: DatasetRow, content_hmac: str) -> list[DatasetRow]:
    """The owner's other datasets that have been ready with this content, also erased ones.

    Oldest first, without those of the dataset's own account.
    """
    return list(
        session.scalars(
            select(DatasetRow)
            .where(DatasetRow.content_hmac == content_hmac, *_of_other_accounts(dataset))
            .order_by(DatasetRow.created_at, DatasetRow.id)
        )
    )


def closable(session: Session, dataset: DatasetRow, most: int) -> list[DatasetRow]:
    """The owner's open private datasets whose accounts are neither charged nor granted to anybody,
    newest first, without those of the dataset's own account; at most so many."""
    other = aliased(DatasetRow)
    granted = (
        select(GrantRow.id)
        .join(other, other.id == GrantRow.dataset_id)
        .where(other.account_id == DatasetRow.account_id, GrantRow.state == "active")
        .exists()
    )
    query = (
        select(DatasetRow)
        .join(AccountRow, AccountRow.id == DatasetRow.account_id)
        .where(
            *_of_other_accounts(dataset),
            DatasetRow.visibility == "private",
            DatasetRow.state == "ready",
            DatasetRow.closed.is_(False),
            AccountRow.spent_primary == 0,
            AccountRow.spent_delta == 0,
            ~granted,
        )
        .order_by(DatasetRow.created_at.desc(), DatasetRow.id)
        .limit(most)
    )
    return list(session.scalars(query))


def has_erased(session: Session, dataset: DatasetRow) -> bool:
    """Whether `same_content` could find a private table that is erased."""
    erased = select(DatasetRow.id).where(
        DatasetRow.state == "erased",
        DatasetRow.visibility == "private",
        DatasetRow.content_hmac.is_not(None),
        *_of_other_accounts(dataset),
    )
    return session.scalar(erased.limit(1)) is not None


def _of_other_accounts(dataset: DatasetRow) -> tuple[ColumnElement[bool], ...]:
    return (
        DatasetRow.owner_id == dataset.owner_id,
        DatasetRow.id != dataset.id,
        # Public datasets have none, so they are always compared.
        or_(DatasetRow.account_id.is_(None), DatasetRow.account_id != dataset.account_id)
        if dataset.account_id is not None
        else true(),
    )


def comparisons(session: Session, principal_id: str, since: datetime) -> int:
    """How many of a custodian's uploads were compared with erased tables since then."""
    counted = select(func.count()).where(
        ComparisonRow.principal_id == principal_id, ComparisonRow.at > since
    )
    return int(session.scalar(counted) or 0)


def record_comparison(session: Session, principal_id: str, at: datetime, since: datetime) -> None:
    """Count an upload that is compared now; those before `since` are forgotten."""
    session.execute(
        delete(ComparisonRow).where(
            ComparisonRow.principal_id == principal_id, ComparisonRow.at <= since
        )
    )
    session.add(ComparisonRow(principal_id=principal_id, at=at))


def is_granted(session: Session, account_id: str) -> bool:
    """Whether an analyst may use a dataset of the account."""
    granted = (
        select(GrantRow.id)
        .join(DatasetRow, DatasetRow.id == GrantRow.dataset_id)
        .where(DatasetRow.account_id == account_id, GrantRow.state == "active")
    )
    return session.scalar(granted.limit(1)) is not None


def rows_of(session: Session, account_id: str) -> list[DatasetRow]:
    """Datasets that draw on an account, oldest first."""
    return list(
        session.scalars(
            select(DatasetRow)
            .where(DatasetRow.account_id == account_id)
            .order_by(DatasetRow.created_at, DatasetRow.id)
        )
    )


def jobs_with_plain_detail(session: Session, dataset_id: str) -> list[JobRow]:
    """Jobs on a dataset whose failure is described in the clear."""
    described = select(JobRow).where(
        JobRow.dataset_id == dataset_id, JobRow.private_detail.is_not(None)
    )
    return [job for job in session.scalars(described) if not is_sealed(job.private_detail or "")]


def staged_names(session: Session) -> set[str]:
    """Files in the staging folder that an ingest still needs."""
    staged = session.scalars(select(DatasetRow.staged).where(DatasetRow.state == "ingesting"))
    return {str(wire["name"]) for wire in staged if wire is not None}


def leftovers(session: Session, dataset_id: str | None = None) -> list[str]:
    """Datasets, or one alone, that have chunks but no table: something was interrupted."""
    left = select(ChunkRow.collection).where(ChunkRow.collection == DatasetRow.id).exists()
    without_table = DatasetRow.state.in_(("awaiting_data", "rejected", "erased"))
    query = select(DatasetRow.id).where(without_table, left)
    if dataset_id is not None:
        query = query.where(DatasetRow.id == dataset_id)
    return list(session.scalars(query))


def of_account(session: Session, account_id: str) -> list[str]:
    """Datasets that draw on an account."""
    return list(session.scalars(select(DatasetRow.id).where(DatasetRow.account_id == account_id)))
