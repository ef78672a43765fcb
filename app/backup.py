"""A verified copy of a store, made while the service runs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from app.database import Database
from app.integrity import store


class BackupExists(FileExistsError):
    """There is a file at the target; it is not changed."""


class BackupBroken(RuntimeError):
    """The copy did not pass verification and was removed; says what was found."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(f"the copy is not intact: {'; '.join(problems[:5])}")
        self.problems = problems


def back_up(database: Database, target: Path) -> int:
    """Copy the store to `target` with SQLite's backup API; its size in bytes.

    The copy is one snapshot, also while others write. It gets its final name only after it was
    verified. Raises `BackupExists`, `BackupBroken`, `OSError`.
    """
    if target.exists():
        raise BackupExists(f"{target} exists")
    partial = target.with_name(f".{target.name}.partial")
    # Made before SQLite opens it, so that it is never readable by other users.
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    try:
        _copy(database, partial)
        with opened(partial) as session:
            found = list(store.problems(session))
        if found:
            raise BackupBroken(found)
        size_bytes = partial.stat().st_size
        # Atomic: there is never half a backup under the final name.
        os.replace(partial, target)
        _sync(target.parent)
        return size_bytes
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def opened(path: Path) -> Iterator[Session]:
    """A store's file, opened read-only and without any set-up."""
    place = f"{path.absolute().as_uri()}?mode=ro"
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(place, uri=True), poolclass=NullPool
    )
    try:
        with Session(engine) as session:
            yield session
    finally:
        engine.dispose()


def _copy(database: Database, partial: Path) -> None:
    with database.read_engine.connect() as connection, closing(sqlite3.connect(partial)) as copy:
        source = connection.connection.driver_connection
        assert source is not None
        source.backup(copy)
        # One file, complete without a log next to it.
        copy.execute("PRAGMA journal_mode = DELETE")
    _sync(partial)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
