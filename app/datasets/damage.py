"""Datasets whose stored table has lost chunks, or holds other bytes than were stored.

Such a dataset leaves the state `ready` for `damaged`, in which no release is admitted: it would be
charged, and fail. It comes back when its chunks do, as from a backup.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database import Database
from app.datasets.models import DatasetRow
from app.problems import Conflict
from app.security import audit
from app.storage import inventory

STATE = "damaged"
REFUSED = (
    "The dataset's stored table is damaged, so it takes no releases; nothing was charged. Its"
    " operator finds what is missing with `halftone verify`, and can put a backup in its place."
)


class Damaged(Conflict):
    """The stored table is not whole."""

    def __init__(self) -> None:
        super().__init__(REFUSED)


def require_whole(session: Session, dataset: DatasetRow, database: Database | None = None) -> None:
    """Raises `Damaged` where the table of a ready dataset has lost chunks; reads none of them.

    With `database`, the dataset is noted as damaged.
    """
    if dataset.state == "ready" and not inventory.is_complete(session, dataset.id):
        if database is not None:
            note(database, dataset.id)
        raise Damaged


def note(database: Database, dataset_id: str) -> None:
    """A ready dataset was found damaged."""
    with database.write() as session:
        row = session.get(DatasetRow, dataset_id)
        if row is not None and row.state == "ready":
            _set(session, row, STATE)


def settle(database: Database) -> list[str]:
    """At a start: ready datasets that lost chunks are damaged, damaged ones that are whole again
    are ready. Returns those that are damaged."""
    with database.read() as session:
        known = session.execute(
            select(DatasetRow.id, DatasetRow.state).where(DatasetRow.state.in_(("ready", STATE)))
        ).all()
        damaged = [
            each
            for each, state in known
            if not inventory.is_complete(session, each)
            # Only of one that was found damaged all bytes are read: others' are read when used.
            or (state == STATE and not inventory.is_intact(session, each))
        ]
    for each, state in known:
        if (state == STATE) != (each in damaged):
            with database.write() as session:
                row = session.get_one(DatasetRow, each)
                if row.state == state:
                    _set(session, row, STATE if each in damaged else "ready")
    return damaged


def _set(session: Session, row: DatasetRow, state: str) -> None:
    row.state = state
    audit.record(
        session,
        principal_id=None,
        action="dataset.damaged" if state == STATE else "dataset.restored",
        subject=row.id,
        detail={},
    )
