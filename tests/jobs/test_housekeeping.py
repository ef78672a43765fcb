"""The chores of a running service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
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
    place, pid, started = own.rsplit(":", 2)
    assert int(pid) == os.getpid()
    assert liveness.is_dead(f"{place}:{pid}:{int(started) - 1}")  # the id came again
    assert liveness.is_dead(dead_worker())


@pytest.mark.skipif(sys.platform != "linux", reason="a start is noted once elsewhere")
def test_a_worker_lives_on_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel derives from the clock: the moment of the boot, and so of every start."""
    own, boot = liveness.own_name(), psutil.boot_time()
    for step_s in (-3600, 10, 3600):
        monkeypatch.setattr(psutil, "boot_time", lambda step_s=step_s: boot + step_s)
        monkeypatch.setattr(psutil._pslinux, "boot_time", lambda step_s=step_s: boot + step_s)
        assert liveness.own_name() == own
        assert not liveness.is_dead(own)


def test_nothing_is_said_of_workers_elsewhere() -> None:
    host, boot, pid, started = liveness.own_name().rsplit(":", 3)
    assert not liveness.is_dead(f"another-machine:{boot}:1:1")
    assert not liveness.is_dead(f"{host}:another-boot:{pid}:{started}")
    assert not liveness.is_dead(f"{host}:{pid}:1700000000000")  # of the version before
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
    claimed_by(database, "elsewhere:boot:1:1")
    with database.write() as session:
        session.execute(update(JobRow).values(losses=jobs.MOST_RERUNS, lease_s=0.0))
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
