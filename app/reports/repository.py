"""Queries on reports."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.queue.models import JobRow
from app.reports.models import ReportRow


def get(session: Session, report_id: str) -> ReportRow | None:
    return session.get(ReportRow, report_id)


def of_release(session: Session, release_id: str) -> ReportRow | None:
    return session.scalar(select(ReportRow).where(ReportRow.release_id == release_id))


def of_dataset(session: Session, dataset_id: str) -> Sequence[ReportRow]:
    return session.scalars(select(ReportRow).where(ReportRow.dataset_id == dataset_id)).all()


def forget_details(session: Session, report_id: str) -> None:
    """Erase why the jobs of a report failed, which may quote what they compared."""
    session.execute(
        update(JobRow).where(JobRow.subject_id == report_id).values(private_detail=None)
    )
