"""The store: one writer at a time, snapshots for readers, nothing half-written."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import bindparam, func, select, text
from sqlalchemy.exc import DBAPIError, OperationalError

from app.database import MOST_SQL_BYTES, MOST_VARIABLES, Base, Database
from app.problems import Unavailable
from app.storage.models import SecretRow


@pytest.fixture
def database(tmp_path: Path):
    opened = Database(f"sqlite:///{tmp_path}/store.sqlite", busy_timeout_s=0.2)
    Base.metadata.create_all(opened.write_engine)
    yield opened
    opened.close()


def secrets_in(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(SecretRow)) or 0


def test_a_unit_of_work_that_raises_changes_nothing(database: Database) -> None:
    with pytest.raises(RuntimeError), database.write() as session:
        session.add(SecretRow(name="a", value=b"1"))
        session.flush()
        raise RuntimeError
    assert secrets_in(database) == 0


def test_a_read_unit_refuses_to_write(database: Database) -> None:
    with database.read() as session, pytest.raises(OperationalError, match="readonly"):
        session.add(SecretRow(name="a", value=b"1"))
        session.flush()


def test_a_second_writer_waits_then_is_told_that_the_store_is_busy(database: Database) -> None:
    with database.write(), pytest.raises(Unavailable), database.write():
        pytest.fail("two writers at once")


def test_a_writer_of_another_process_is_held_off_by_the_file_lock(database: Database) -> None:
    other = Database(f"sqlite:///{database.path}", busy_timeout_s=0.2)
    try:
        with database.write(), pytest.raises(Unavailable), other.write():
            pytest.fail("two writers at once")
    finally:
        other.close()


def test_many_threads_lose_no_write(database: Database) -> None:
    patient = Database(f"sqlite:///{database.path}", busy_timeout_s=30)

    def add(number: int) -> None:
        with patient.write() as session:
            session.add(SecretRow(name=str(number), value=b""))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert secrets_in(database) == 40
    patient.close()


def test_a_checkpoint_empties_the_log_and_keeps_the_rows(database: Database) -> None:
    with database.write() as session:
        session.add(SecretRow(name="a", value=b"x" * 100_000))
    assert database.wal_bytes() > 100_000
    database.checkpoint()
    assert database.wal_bytes() == 0
    assert secrets_in(database) == 1


def test_a_checkpoint_does_not_wait_for_readers_unless_told_to(database: Database) -> None:
    with database.write() as session:
        session.add(SecretRow(name="a", value=b"1"))
    with database.read() as reader:
        assert reader.scalar(select(func.count()).select_from(SecretRow)) == 1
        with database.write() as session:
            session.add(SecretRow(name="b", value=b"2"))
        started = time.monotonic()
        assert not database.checkpoint()
        assert time.monotonic() - started < 0.15
    assert database.checkpoint(patience_s=1)
    assert secrets_in(database) == 2


def test_automatic_checkpoints_are_off_on_every_connection(database: Database) -> None:
    for engine in (database.write_engine, database.read_engine):
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar() == 0
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
            assert connection.exec_driver_sql("PRAGMA secure_delete").scalar() == 1


def test_a_second_database_of_a_process_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    """Closing any descriptor of the file would drop them, and another process's last close
    would then take the log away under the first."""
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    first = Database(url)
    with first.write() as session:
        session.execute(text("CREATE TABLE kept (value INTEGER)"))
    Database(url).close()
    code = (
        "import sys; from app.database import Database; from sqlalchemy import text\n"
        "other = Database(sys.argv[1])\n"
        "with other.write() as session: session.execute(text('INSERT INTO kept VALUES (1)'))\n"
        "other.close()"
    )
    subprocess.run([sys.executable, "-c", code, url], check=True)
    assert Path(f"{first.path}-wal").exists()
    with first.read() as session:
        assert session.execute(text("SELECT count(*) FROM kept")).scalar_one() == 1
    first.close()


@pytest.mark.parametrize("unit", ["read", "write"])
def test_no_statement_binds_a_list_that_grows(tmp_path: Path, unit: str) -> None:
    database = Database(f"sqlite:///{tmp_path / 'store.sqlite'}")
    listed = text("SELECT 1 WHERE 1 IN :ids").bindparams(bindparam("ids", expanding=True))
    try:
        with getattr(database, unit)() as session:
            assert session.scalar(listed, {"ids": list(range(MOST_VARIABLES))}) == 1
        with pytest.raises((OperationalError, Unavailable)), getattr(database, unit)() as session:
            session.scalar(listed, {"ids": list(range(MOST_VARIABLES + 1))})
        with pytest.raises((DBAPIError, Unavailable)), getattr(database, unit)() as session:
            session.scalar(text("SELECT 1 --" + "x" * MOST_SQL_BYTES))
    finally:
        database.close()
