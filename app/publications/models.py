"""Table of publications: releases that their custodian made citable."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base, UtcTime


class PublicationRow(Base):
    __tablename__ = "publications"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    # The id of the first publication of its series, of which a newer version supersedes an older.
    series_id: Mapped[str] = mapped_column(String(32))
    version: Mapped[int] = mapped_column(Integer)
    release_id: Mapped[str] = mapped_column(ForeignKey("releases.id"), index=True)
    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"))
    # publishing | published | withdrawn
    state: Mapped[str] = mapped_column(String(16))
    # Title, abstract, creators, contact, licence, keywords, coverage: as declared.
    citation: Mapped[dict[str, Any]] = mapped_column(JSON)
    # Title, abstract, creators and keywords in small letters, for the search.
    words: Mapped[str] = mapped_column(Text)
    # Ids of the samples that are its files.
    samples: Mapped[list[str]] = mapped_column(JSON)
    # Its files and the archive of them: names, media types, sizes and hashes; None until then.
    listing: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    withdrawn_at: Mapped[datetime | None] = mapped_column(UtcTime)
    # Why it was withdrawn.
    reason: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (
        UniqueConstraint("series_id", "version"),
        # The catalogue, newest first.
        Index("ix_publications_state", "state", "created_at", "id"),
    )
