"""Table of the service's signing keys: the current one, and those that it replaced."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base, UtcTime


class SigningKeyRow(Base):
    """The public half of a key; the private half of the current one is among the `secrets`."""

    __tablename__ = "signing_keys"

    # Made of the public half: see `keys.key_id`.
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    public: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    # From when on another key signs; what this one signed stays verifiable.
    retired_at: Mapped[datetime | None] = mapped_column(UtcTime)
