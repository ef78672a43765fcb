"""Tables of releases, their journal, events and samples."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base, UtcTime
from app.ledger.models import amount_checks


class ReleaseRow(Base):
    __tablename__ = "releases"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), index=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    # The grant that was charged in addition to the account; None for the custodian.
    grant_id: Mapped[str | None] = mapped_column(ForeignKey("grants.id"))
    synthesizer: Mapped[str] = mapped_column(String(200))
    synthesizer_version: Mapped[str] = mapped_column(String(100))
    assurance: Mapped[str] = mapped_column(String(16))
    params: Mapped[dict[str, Any]] = mapped_column(JSON)
    guarantee: Mapped[dict[str, str]] = mapped_column(JSON)
    charge_primary: Mapped[int] = mapped_column(BigInteger)
    charge_delta: Mapped[int] = mapped_column(BigInteger)
    # The session's allowance, fixed at admission: pure | zcdp.
    loss_kind: Mapped[str] = mapped_column(String(8))
    loss_amount: Mapped[int] = mapped_column(BigInteger)
    loss_delta: Mapped[int] = mapped_column(BigInteger)
    rows: Mapped[int | None] = mapped_column(BigInteger)
    public_dataset_id: Mapped[str | None] = mapped_column(String(32))
    # For the synthesizer's own arithmetic and sampling; never for noise.
    seed: Mapped[int] = mapped_column(BigInteger)
    # queued | running | cancelling | succeeded | failed | cancelled
    state: Mapped[str] = mapped_column(String(16))
    progress: Mapped[float] = mapped_column(Float, default=0.0)
    stage: Mapped[str] = mapped_column(String(64), default="queued")
    refunded: Mapped[bool] = mapped_column(Boolean, default=False)
    # Who sees it besides its requester and the custodian: requester (nobody) | grantees | public
    visibility: Mapped[str] = mapped_column(
        String(16), default="requester", server_default="requester"
    )
    # The visibility that its requester asked the custodian for, until the custodian decides.
    visibility_requested: Mapped[str | None] = mapped_column(String(16))
    # Of an evaluation: the release that it is of, with the columns and pairs that it measures.
    evaluates: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    ledger_sequence: Mapped[int] = mapped_column(Integer)
    # How long its account's chain was when it succeeded: where the proof in its bundle ends.
    ledger_head: Mapped[int | None] = mapped_column(Integer)
    certificate: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    # What its model states of its own errors; None until it has succeeded, and withdrawn.
    expected_errors: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON)
    # How good it is, in words and intervals; made as it succeeds, None if withdrawn.
    statement: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)

    __table_args__ = (
        *amount_checks("charge_primary", "charge_delta", "loss_amount", "loss_delta"),
    )


class JournalRow(Base):
    """One question and its noisy answer, committed before the synthesizer sees it."""

    __tablename__ = "journal"

    release_id: Mapped[str] = mapped_column(ForeignKey("releases.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    question_hash: Mapped[str] = mapped_column(String(64))
    question: Mapped[bytes] = mapped_column(LargeBinary)
    answer: Mapped[bytes] = mapped_column(LargeBinary)
    loss_amount: Mapped[int] = mapped_column(BigInteger)
    loss_delta: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime] = mapped_column(UtcTime)

    __table_args__ = (*amount_checks("loss_amount", "loss_delta"),)


class EventRow(Base):
    """What happened to a release, in order; the source of its event stream."""

    __tablename__ = "events"

    release_id: Mapped[str] = mapped_column(ForeignKey("releases.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # state | progress | end
    type: Mapped[str] = mapped_column(String(16))
    data: Mapped[dict[str, Any]] = mapped_column(JSON)


class SampleRow(Base):
    __tablename__ = "samples"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    release_id: Mapped[str] = mapped_column(ForeignKey("releases.id"))
    # Who asked for it, and whose stored bytes it counts as.
    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"))
    # rows | counts
    kind: Mapped[str] = mapped_column(String(8))
    # As requested; None stands for the noisy count until the sample is made.
    rows: Mapped[int | None] = mapped_column(BigInteger)
    seed: Mapped[int] = mapped_column(BigInteger)
    # queued | running | succeeded | failed | deleted
    state: Mapped[str] = mapped_column(String(16))
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    content_sha256: Mapped[str | None] = mapped_column(String(64))
    # The rows were dropped after their TTL and are made again from the seed on demand.
    dropped: Mapped[bool] = mapped_column(Boolean, default=False)
    # What it took to keep the dictionary's rules; None until made, and where none applies.
    repairs: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)

    __table_args__ = (
        Index("ix_samples_state", "state"),
        # A release's samples, oldest first.
        Index("ix_samples_release_id", "release_id", "created_at", "id"),
    )
