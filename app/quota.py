"""How much a principal may store: tables, models and samples together."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.problems import TooLarge
from app.settings import Settings
from app.storage.blobs import owned_bytes


def check_upload(session: Session, principal_id: str, settings: Settings) -> None:
    """Raise `TooLarge` if the principal's tables and samples fill the allowed space."""
    if used_bytes(session, principal_id) >= settings.max_stored_bytes:
        raise TooLarge(
            f"Your stored tables and samples take {settings.max_stored_bytes} bytes, the most"
            " allowed. Erase datasets or samples that are not needed."
        )


def used_bytes(session: Session, principal_id: str) -> int:
    """Bytes of all tables, models and samples that count as the principal's."""
    return owned_bytes(session, principal_id)
