"""The chores of a running service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forge import eventually
from sqlalchemy import select, update

import app.tables  # noqa: F401
from app.database import Base, Database
from app.jobs import housekeeping, liveness
from app.jobs.housekeeping import Housekeeping
from app.queue import jobs
from app.queue.models import JobRow
from app.queue.outcomes import Outcomes
from app.settings import Settings

FAILED: list[str] = []


def note_failure(_: object, subject: str) -> None:
    FAILED.append(subject)


def ignore(*_: object) -> None:
    pass


OUTCOMES = {"fit": Outcomes(ignore, ignore, note_failure, ignore)}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'store.sqlite'}")
    Base.metadata.create_all(database.write_engine)
    yield database
    database.close()


def claimed_by(database: Database, worker: str) -> None:
    with database.write() as session:
        jobs.enqueue(session, kind="fit", subject_id="rl_a", dataset_id="ds_a", settings=Settings())
    with database.write() as session:
        assert jobs.claim(session, worker, 1000) is not None


def state(database: Database) -> str:
    with database.read() as session:
        return session.scalars(select(JobRow)).one().state


def dead_worker() -> str:
    """The name of a worker that lived on this machine and is no more."""
    code = "from app.jobs import liveness; print(liveness.own_name())"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_worker_is_alive_until_its_process_ends() -> None:
    own = liveness.own_name()
    assert not liveness.is_dead(own)
    host, pid, started = own.rsplit(":", 2)
    assert int(pid) == os.getpid()
    assert liveness.is_dead(f"{host}:{pid}:{int(started) - 3_600_000}")  # the id came again
    assert liveness.is_dead(dead_worker())


def test_nothing_is_said_of_workers_elsewhere() -> None:
    assert not liveness.is_dead("another-machine:1:1")
    assert not liveness.is_dead("a name of another form")


def test_a_dead_workers_job_is_queued_again_at_the_start(database: Database) -> None:
    claimed_by(database, dead_worker())
    with Housekeeping(database, Settings(), OUTCOMES):
        assert state(database) == "queued"


def test_a_living_workers_job_stays(database: Database) -> None:
    claimed_by(database, liveness.own_name())
    with Housekeeping(database, Settings(), OUTCOMES):
        assert state(database) == "running"


def test_a_job_that_was_lost_too_often_is_told_to_its_subject(database: Database) -> None:
    FAILED.clear()
    claimed_by(database, "elsewhere:1:1")
    with database.write() as session:
        session.execute(update(JobRow).values(losses=jobs.MOST_RERUNS, lease_until=1.0))
    with Housekeeping(database, Settings(), OUTCOMES):
        eventually(lambda: state(database) == "failed", "the lost job to be given up")
    assert FAILED == ["rl_a"]


def test_a_long_log_is_checkpointed_while_the_service_runs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "LARGEST_WAL_BYTES", 1)
    claimed_by(database, liveness.own_name())
    assert database.wal_bytes() > 0
    with Housekeeping(database, Settings(), OUTCOMES):
        eventually(lambda: database.wal_bytes() == 0, "the log to be emptied")
