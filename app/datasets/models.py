"""Table of datasets: what is public about them, and separately the facts for the custodian."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base, UtcTime


class DatasetRow(Base):
    __tablename__ = "datasets"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    # None for public datasets.
    account_id: Mapped[str | None] = mapped_column(ForeignKey("accounts.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    # private | public
    visibility: Mapped[str] = mapped_column(String(16))
    # awaiting_data | ingesting | ready | damaged | rejected | erased
    state: Mapped[str] = mapped_column(String(16))
    schema: Mapped[dict[str, Any]] = mapped_column(JSON)
    unit: Mapped[dict[str, Any]] = mapped_column(JSON)
    max_total_rows: Mapped[int] = mapped_column(BigInteger)
    file_options: Mapped[dict[str, Any]] = mapped_column(JSON)
    new_population: Mapped[str | None] = mapped_column(String(2000))
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    ready_at: Mapped[datetime | None] = mapped_column(UtcTime)
    erased_at: Mapped[datetime | None] = mapped_column(UtcTime)

    # Private: for the custodian and the service alone.
    # Its account is closed, since a newer dataset has the content of one that draws on it. No
    # analyst has a grant on it, so that nobody but the custodian can notice.
    closed: Mapped[bool] = mapped_column(Boolean, default=False)
    # Of a private table that is encrypted, the report alone states it.
    rows: Mapped[int | None] = mapped_column(BigInteger)
    # Under a key of the store, and different for each owner.
    content_hmac: Mapped[str | None] = mapped_column(String(64))
    # A sealed one is a text; see `private_facts`.
    ingest_report: Mapped[dict[str, Any] | str | None] = mapped_column(JSON)
    # The staged upload that is being ingested: only where it is, and what it was said to be.
    staged: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    # The dataset's own key under the master key, when encryption at rest is on.
    wrapped_key: Mapped[str | None] = mapped_column(String(200))

    __table_args__ = (Index("ix_datasets_content_hmac", "content_hmac"),)


class ComparisonRow(Base):
    """An upload that was compared with tables that its custodian erased; kept for a day."""

    __tablename__ = "comparisons"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    at: Mapped[datetime] = mapped_column(UtcTime)
