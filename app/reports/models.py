"""Table of reports: at most one for each release; the row holds no exact figure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base, UtcTime


class ReportRow(Base):
    """A comparison with the exact table that the dataset's custodian requested.

    Its figures are the blob part `exact` of the collection `id`, sealed as the table is.
    """

    __tablename__ = "reports"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    release_id: Mapped[str] = mapped_column(ForeignKey("releases.id"), unique=True)
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), index=True)
    # queued | running | succeeded | failed
    state: Mapped[str] = mapped_column(String(16))
    # What the custodian chose to evaluate (`ReportIn`); None is the same as no choice.
    choices: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)
