"""Queries on datasets."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.datasets.models import DatasetRow
from app.storage.models import ChunkRow


def get(session: Session, dataset_id: str) -> DatasetRow | None:
    return session.get(DatasetRow, dataset_id)


def same_content(session: Session, dataset: DatasetRow, content_hmac: str) -> list[DatasetRow]:
    """Other datasets that have been ready with this content, also erased ones; oldest first."""
    return list(
        session.scalars(
            select(DatasetRow)
            .where(DatasetRow.content_hmac == content_hmac, DatasetRow.id != dataset.id)
            .order_by(DatasetRow.created_at, DatasetRow.id)
        )
    )


def staged_names(session: Session) -> set[str]:
    """Files in the staging folder that an ingest still needs."""
    staged = session.scalars(select(DatasetRow.staged).where(DatasetRow.state == "ingesting"))
    return {str(wire["name"]) for wire in staged if wire is not None}


def leftovers(session: Session) -> list[str]:
    """Datasets that have chunks but no table: an erasure or a run was interrupted."""
    left = select(ChunkRow.collection).where(ChunkRow.collection == DatasetRow.id).exists()
    without_table = DatasetRow.state.in_(("awaiting_data", "rejected", "erased"))
    return list(session.scalars(select(DatasetRow.id).where(without_table, left)))


def of_account(session: Session, account_id: str) -> list[str]:
    """Datasets that draw on an account."""
    return list(session.scalars(select(DatasetRow.id).where(DatasetRow.account_id == account_id)))
