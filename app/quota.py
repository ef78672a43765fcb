"""How much a principal may store: tables, models and samples together."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.datasets.models import DatasetRow
from app.problems import TooLarge
from app.releases.models import ReleaseRow, SampleRow
from app.settings import Settings
from app.storage.blobs import stored_bytes


def check_upload(session: Session, principal_id: str, settings: Settings) -> None:
    """Raise `TooLarge` if the principal's tables and samples fill the allowed space."""
    if used_bytes(session, principal_id) >= settings.max_stored_bytes:
        raise TooLarge(
            f"Your stored tables and samples take {settings.max_stored_bytes} bytes, the most"
            " allowed. Erase datasets or samples that are not needed."
        )


def used_bytes(session: Session, principal_id: str) -> int:
    """Bytes of all tables, models and samples that count as the principal's."""
    return stored_bytes(session, _collections_of(session, principal_id))


def _collections_of(session: Session, principal_id: str) -> list[str]:
    """Blob collections that count as the principal's: tables, models and samples."""
    tables = select(DatasetRow.id).where(DatasetRow.owner_id == principal_id)
    models = select(ReleaseRow.id).where(ReleaseRow.principal_id == principal_id)
    samples = (
        select(SampleRow.id)
        .join(ReleaseRow, ReleaseRow.id == SampleRow.release_id)
        .where(ReleaseRow.principal_id == principal_id)
    )
    return [*session.scalars(tables), *session.scalars(models), *session.scalars(samples)]
