"""Queries on datasets."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session

from app.datasets.models import DatasetRow
from app.ledger.models import GrantRow
from app.releases.models import ReleaseRow, SampleRow
from app.security.principals import Principal
from app.storage.models import ChunkRow


def get(session: Session, dataset_id: str) -> DatasetRow | None:
    return session.get(DatasetRow, dataset_id)


def visible(
    session: Session, principal: Principal, after: tuple[datetime, str] | None, limit: int
) -> list[DatasetRow]:
    """Newest first, what `app.access.permission.open_dataset` would open."""
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
    if principal.is_analyst:
        granted = select(GrantRow.dataset_id).where(
            GrantRow.principal_id == principal.id, GrantRow.state == "active"
        )
        seen.append(and_(DatasetRow.ready_at.is_not(None), DatasetRow.id.in_(granted)))
    return select(DatasetRow).where(or_(*seen))


def same_content(session: Session, dataset: DatasetRow, content_hmac: str) -> list[DatasetRow]:
    """Other datasets that were ever ready with this content, erased ones too, oldest first."""
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
    """Datasets without a table of which chunks are left: an erasure or a run was cut short."""
    left = select(ChunkRow.collection).where(ChunkRow.collection == DatasetRow.id).exists()
    without_table = DatasetRow.state.in_(("awaiting_data", "rejected", "erased"))
    return list(session.scalars(select(DatasetRow.id).where(without_table, left)))


def collections_of(session: Session, principal_id: str) -> list[str]:
    """Blob collections that count as the principal's: tables, models and samples."""
    tables = select(DatasetRow.id).where(DatasetRow.owner_id == principal_id)
    models = select(ReleaseRow.id).where(ReleaseRow.principal_id == principal_id)
    samples = (
        select(SampleRow.id)
        .join(ReleaseRow, ReleaseRow.id == SampleRow.release_id)
        .where(ReleaseRow.principal_id == principal_id)
    )
    return [*session.scalars(tables), *session.scalars(models), *session.scalars(samples)]
