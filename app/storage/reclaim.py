"""Give freed pages back, so that erased bytes are in neither the database nor its log."""

from __future__ import annotations

from app.database import Database

READERS_PATIENCE_S = 30
"""How long readers of the older images are waited for; later checkpoints empty the log then."""


def reclaim(database: Database) -> None:
    """Shrink the file and empty the log; call after the erasing transaction has committed.

    `secure_delete` has overwritten what was deleted, but the log still holds older images of
    those pages until it is truncated.
    """
    with database.lock.held(), database.write_engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        # A step of this statement frees one page; `execute` would take a single step of it.
        raw.executescript("PRAGMA incremental_vacuum")
    database.checkpoint(patience_s=READERS_PATIENCE_S)
