"""Table of jobs: the queue that commits together with what it works for."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Float, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base, UtcTime


class JobRow(Base):
    """`subject_id` is a dataset (ingest), a release (fit), a sample or a report."""

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    # ingest | fit | sample | report
    kind: Mapped[str] = mapped_column(String(16))
    subject_id: Mapped[str] = mapped_column(String(32), index=True)
    dataset_id: Mapped[str] = mapped_column(String(32), index=True)
    # queued | running | cancelling | succeeded | failed | cancelled
    state: Mapped[str] = mapped_column(String(16))
    # How many workers have held it; 0 means that no private row was read for it.
    claims: Mapped[int] = mapped_column(Integer, default=0)
    # How often its worker was lost; beyond `MOST_RERUNS` it has failed for good.
    losses: Mapped[int] = mapped_column(Integer, default=0)
    # Raised by each claim and each expiry; a writer with an older number is refused.
    fence: Mapped[int] = mapped_column(Integer, default=0)
    worker: Mapped[str | None] = mapped_column(String(128))
    # Raised by each heartbeat; a worker that is silent for `lease_s` seconds counts as lost.
    beats: Mapped[int] = mapped_column(Integer, default=0)
    lease_s: Mapped[float | None] = mapped_column(Float)
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    time_limit_s: Mapped[float] = mapped_column(Float)
    progress: Mapped[float] = mapped_column(Float, default=0.0)
    stage: Mapped[str] = mapped_column(String(64), default="queued")
    # Why it failed, for the custodian alone; sealed where the dataset is.
    private_detail: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)

    __table_args__ = (
        Index("ix_jobs_queue", "state", "created_at"),
        Index("ix_jobs_turns", "kind", "started_at"),
    )
