"""Return free pages to the system, so that erased bytes are in neither the database nor its log."""

from __future__ import annotations

from typing import Any

from app.database import Database

# 32 MiB of 4 KiB pages, to bound how long one step holds the write lock.
PAGES_AT_ONCE = 8192


def reclaim(database: Database) -> None:
    """Shrink the file and empty the log; call after the erasing transaction has committed.

    `secure_delete` has overwritten what was deleted, but the log still holds older images of
    those pages until it is truncated. Other writers get their turn between two steps. Raises
    `Unavailable`.
    """
    while _freed_some(database):
        pass
    database.checkpoint()


def free_bytes(database: Database) -> int:
    """Bytes of the file that hold nothing."""
    with database.read_engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()
        size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    return int(pages * size)


def _freed_some(database: Database) -> bool:
    """Return some free pages; whether any are left."""
    with database.raw_writer() as raw:
        before = _free_pages(raw)
        # A step of this statement frees one page; `execute` would take a single step of it.
        raw.executescript(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})")
        return 0 < _free_pages(raw) < before


def _free_pages(connection: Any) -> int:
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0])
