"""Queries on reports."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.reports.models import ReportRow


def get(session: Session, report_id: str) -> ReportRow | None:
    return session.get(ReportRow, report_id)


def of_release(session: Session, release_id: str) -> ReportRow | None:
    return session.scalar(select(ReportRow).where(ReportRow.release_id == release_id))


def of_dataset(session: Session, dataset_id: str) -> Sequence[ReportRow]:
    return session.scalars(select(ReportRow).where(ReportRow.dataset_id == dataset_id)).all()
