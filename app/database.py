"""Access to the store: read units of work, and write units of work one at a time.

SQLite before 3.51.3 can corrupt the database when a checkpoint races a writer that resets
the log (sqlite.org/wal.html). So automatic checkpoints are off, every writer of every
process holds `WriteLock`, and the one checkpointer holds it too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import MetaData, String, create_engine, event, text
from sqlalchemy.engine import Connection, Dialect, Engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Session, sessionmaker
from sqlalchemy.pool import QueuePool
from sqlalchemy.types import TypeDecorator

from app.problems import StorageFull, Unavailable

# More than the 40 threads of anyio's pool, so that no request waits for a connection.
READ_CONNECTIONS = 48
MOVED_AWAY = (
    "The file of the store was moved or replaced while the service ran. Nothing was changed. Put it"
    " back, or restart the service on the file that is there now."
)
# Most values that one statement may bind, and its longest text. A statement that lists what grows
# (datasets, releases, samples) would slow down with it and fail one day, and every length of the
# list would be one more statement to keep. So it fails at once, in tests. This bounds what each
# connection keeps, and what each engine keeps compiled (500, by SQLAlchemy's default).
MOST_VARIABLES = 100
MOST_SQL_BYTES = 64 * 1024
STATEMENTS_KEPT = 64
JOURNAL_SIZE_LIMIT_BYTES = 64 * 1024**2
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The second: the index of the log, which readers share, cannot grow.
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
# 32 letters and digits without l, o, 0 and 1, which are easily confused.
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


class Base(DeclarativeBase):
    """All tables; constraint names are fixed so that migrations can refer to them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class UtcTime(TypeDecorator[datetime]):
    """A moment as fixed-width ISO text in UTC, so that text order is time order."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else format_time(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        del dialect
        return None if value is None else datetime.fromisoformat(value)


def format_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def now() -> datetime:
    return datetime.now(UTC)


def new_id(prefix: str) -> str:
    """An unguessable identifier of fixed length, such as `ds_k3v...`."""
    # 100 random bits; 256 is a multiple of 32, so every character is equally likely.
    return prefix + "_" + "".join(_ALPHABET[byte % 32] for byte in secrets.token_bytes(20))


class WriteLock:
    """One writer at a time among the threads and processes that share the store."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._thread_lock = threading.Lock()
        self._timeout_s = timeout_s
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        # flock locks belong to the open file, so they do not exclude threads of one process.
        if not self._thread_lock.acquire(timeout=self._timeout_s):
            raise Unavailable
        pause = 0.0002
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self._thread_lock.release()
                    raise Unavailable from None
                time.sleep(pause)
                # flock has no timeout, so it is polled: at first almost at once, later every 5 ms.
                pause = min(pause * 2, 0.005)
            else:
                return

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._thread_lock.release()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        os.close(self._file)


class Database:
    """Engines and sessions of one process on one store."""

    def __init__(self, url: str, *, busy_timeout_s: float = 30) -> None:
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite" or not parsed.database:
            raise ValueError("the store is a SQLite file in this version")
        self.path = Path(parsed.database).absolute()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _create_private(self.path)
        self._identity = self._file_identity()
        self._busy_timeout_ms = int(busy_timeout_s * 1000)
        self.lock = WriteLock(self.path.with_suffix(".lock"), busy_timeout_s)
        # IMMEDIATE: a transaction that reads first and then writes could fail with SQLITE_BUSY,
        # which no timeout can resolve.
        self.write_engine = self._engine("BEGIN IMMEDIATE", query_only=False, connections=1)
        self.read_engine = self._engine("BEGIN", query_only=True, connections=READ_CONNECTIONS)
        self._write = sessionmaker(self.write_engine, expire_on_commit=False)
        self._read = sessionmaker(self.read_engine, expire_on_commit=False, autoflush=False)
        self._after_commit: list[Callable[[Mapping[str, Any]], None]] = []

    def after_commit(self, observer: Callable[[Mapping[str, Any]], None]) -> None:
        """Call `observer` with a session's `info` after each commit, under the write lock."""
        self._after_commit.append(observer)

    def _engine(self, begin: str, *, query_only: bool, connections: int) -> Engine:
        engine = create_engine(
            f"sqlite:///{self.path}",
            poolclass=QueuePool,
            pool_size=connections,
            max_overflow=0,
            # `isolation_level` None: Python's driver would otherwise begin transactions late and by
            # itself.
            connect_args={
                "check_same_thread": False,
                "isolation_level": None,
                "cached_statements": STATEMENTS_KEPT,
            },
        )

        @event.listens_for(engine, "connect")
        def configure(connection: sqlite3.Connection, _: object) -> None:
            connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, MOST_VARIABLES)
            connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MOST_SQL_BYTES)
            for pragma in self._pragmas(query_only=query_only):
                try:
                    connection.execute(f"PRAGMA {pragma}")
                # Of a damaged schema SQLite's message quotes bytes that are no text.
                except UnicodeDecodeError as error:
                    raise _damaged_schema() from error

        @event.listens_for(engine, "begin")
        def start(connection: Connection) -> None:
            connection.exec_driver_sql(begin)

        return engine

    def _pragmas(self, *, query_only: bool) -> list[str]:
        pragmas = [
            f"busy_timeout = {self._busy_timeout_ms}",
            # Must come before the first table exists; `storage/reclaim` needs it.
            "auto_vacuum = INCREMENTAL",
            "journal_mode = WAL",
            # In WAL mode, NORMAL may lose the last commits in a power cut: a charge could be lost
            # after its noisy answer was seen.
            "synchronous = FULL",
            "foreign_keys = ON",
            # Deleted rows are overwritten: erased data must not stay in free pages.
            "secure_delete = ON",
            "wal_autocheckpoint = 0",
            f"journal_size_limit = {JOURNAL_SIZE_LIMIT_BYTES}",
        ]
        return [*pragmas, "query_only = ON"] if query_only else pragmas

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A unit of work that sees one snapshot and can change nothing."""
        with self._read() as session:
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """The one writing unit of work: commits when the block ends, or changes nothing.

        Raises `Unavailable` if the store cannot be locked, its file was moved away, or the commit
        fails, and `StorageFull` if its disk has no room.
        """
        if not self.is_in_place():
            raise Unavailable(MOVED_AWAY, retry_after_s=60)
        with self.lock.held(), store_faults(), self._write() as session:
            try:
                yield session
                session.commit()
                for observer in self._after_commit:
                    observer(session.info)
            except BaseException:
                session.rollback()
                raise

    def is_in_place(self) -> bool:
        """Whether the file at the store's path is still the one that was opened.

        Open connections follow a file that is moved away, so everything would seem to work, and
        what was written would be missing at the next start.
        """
        return self._file_identity() == self._identity

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def checkpoint(self, *, patience_s: float = 0.0) -> bool:
        """Move the log into the database and empty it, with every writer held off.

        A reader that still uses the log keeps it from being emptied. Such readers are waited
        for up to `patience_s`, with writers let in between; False if one is still there. Raises
        `Unavailable`.
        """
        deadline = time.monotonic() + patience_s
        while not self._emptied():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        return True

    def _emptied(self) -> bool:
        with self.raw_writer() as raw:
            # Without this, writers would be held off for as long as the busy timeout.
            raw.execute("PRAGMA busy_timeout = 0")
            try:
                busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                raw.execute(f"PRAGMA busy_timeout = {self._busy_timeout_ms}")
        return not busy

    @contextlib.contextmanager
    def raw_writer(self) -> Iterator[Any]:
        """The driver's own connection, with every writer held off, for what is no transaction.

        Raises `Unavailable`.
        """
        with self.lock.held(), store_faults(), self.write_engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            yield raw

    def wal_bytes(self) -> int:
        wal = Path(f"{self.path}-wal")
        return wal.stat().st_size if wal.exists() else 0

    def sqlite_version(self) -> str:
        with self.read() as session:
            return str(session.execute(text("SELECT sqlite_version()")).scalar_one())

    def close(self) -> None:
        self.write_engine.dispose()
        self.read_engine.dispose()
        self.lock.close()


def _damaged_schema() -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("malformed database schema")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _create_private(path: Path) -> None:
    """Make the file for its owner alone.

    A file that exists is not opened: closing it again would drop every lock that this process
    holds on it for SQLite (POSIX), and another process could then take the log away.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


@contextlib.contextmanager
def store_faults() -> Iterator[None]:
    """Raise what the store or its disk is at fault for as `Unavailable`, and the rest as it is."""
    try:
        yield
    except (DBAPIError, sqlite3.Error, OSError) as error:
        fault = unavailable(error)
        if fault is None:
            raise
        raise fault from error


def unavailable(error: BaseException) -> Unavailable | None:
    """The kind of a fault that a later try may not meet: locked, full, unreadable.

    None for any other error, such as a faulty statement or a damaged file.
    """
    if isinstance(error, Unavailable):
        return error
    if isinstance(error, OSError):
        return StorageFull() if error.errno in _NO_ROOM else None
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, sqlite3.OperationalError):
        return None
    # Errors that Python's driver raises by itself have no code.
    code = getattr(cause, "sqlite_errorcode", None)
    if code in _FULL:
        return StorageFull()
    return None if code == sqlite3.SQLITE_ERROR else Unavailable()


def rowcount(result: Any) -> int:
    """How many rows a bulk statement changed."""
    return int(result.rowcount)
