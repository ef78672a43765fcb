"""Which leases have run out, whatever happens to clocks and to the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

import app.tables  # noqa: F401
from app.database import Base, Database
from app.problems import StorageFull
from app.queue import jobs
from app.queue.jobs import Claim
from app.queue.leases import LONGEST_LOOK_S, Lease, LeaseWatch
from app.queue.models import JobRow
from app.settings import Settings

LEASE_S = 30


class Clock:
    """The observer's monotonic clock, moved by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'store.sqlite'}")
    Base.metadata.create_all(database.write_engine)
    yield database
    database.close()


@pytest.fixture
def held(database: Database) -> Claim:
    with database.write() as session:
        jobs.enqueue(session, kind="fit", subject_id="rl_a", dataset_id="ds_a", settings=Settings())
    with database.write() as session:
        claim = jobs.claim(session, "w1", LEASE_S)
    assert claim is not None
    return claim


def looks(database: Database, watch: LeaseWatch, clock: Clock, seconds: int) -> list[Lease]:
    """One look a second, up to the first that finds a lease run out."""
    for _ in range(seconds):
        clock.now += 1
        with database.read() as session:
            if found := watch.run_out(session):
                return found
    return []


def beat(database: Database, claim: Claim) -> None:
    with database.write() as session:
        jobs.heartbeat(session, claim)


def test_a_silent_worker_is_lost_after_its_lease(database: Database, held: Claim) -> None:
    clock = Clock()
    watch = LeaseWatch(clock)
    assert looks(database, watch, clock, LEASE_S) == []
    assert looks(database, watch, clock, 2) == [Lease(held.job_id, held.fence, 0)]


def test_a_worker_that_beats_is_never_lost(database: Database, held: Claim) -> None:
    clock = Clock()
    watch = LeaseWatch(clock)
    for _ in range(4):
        assert looks(database, watch, clock, LEASE_S - 1) == []
        beat(database, held)


@pytest.mark.parametrize("step_s", [-86_400.0, 10.0, 86_400.0])
def test_a_step_of_the_wall_clock_takes_no_job_and_leaves_none(
    database: Database, held: Claim, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    clock = Clock()
    watch = LeaseWatch(clock)
    assert looks(database, watch, clock, 5) == []
    stepped = time.time() + step_s
    monkeypatch.setattr(time, "time", lambda: stepped)
    assert looks(database, watch, clock, 5) == []
    with jobs.fenced(database, held) as session:
        jobs.heartbeat(session, held)
    assert looks(database, watch, clock, LEASE_S) == []
    assert len(looks(database, watch, clock, 3)) == 1


def test_a_suspended_machine_takes_no_job(database: Database, held: Claim) -> None:
    """Also where the machine's monotonic clock went on while it was suspended."""
    clock = Clock()
    watch = LeaseWatch(clock)
    assert looks(database, watch, clock, 3) == []
    clock.now += 7200
    assert looks(database, watch, clock, 1) == []
    beat(database, held)
    assert looks(database, watch, clock, LEASE_S) == []


def test_an_observer_that_looks_late_waits_longer(database: Database, held: Claim) -> None:
    clock = Clock()
    watch = LeaseWatch(clock)
    found: list[Lease] = []
    late = 0
    while not found:
        clock.now += 600
        late += 1
        with database.read() as session:
            found = watch.run_out(session)
    assert late > LEASE_S / LONGEST_LOOK_S
    assert [lease.job_id for lease in found] == [held.job_id]


def test_a_new_observer_gives_a_whole_lease(database: Database, held: Claim) -> None:
    del held
    clock = Clock()
    first = LeaseWatch(clock)
    assert looks(database, first, clock, LEASE_S - 2) == []
    assert looks(database, LeaseWatch(clock), clock, LEASE_S) == []


def test_a_lease_of_the_version_before_has_run_out(database: Database, held: Claim) -> None:
    with database.write() as session:
        session.execute(update(JobRow).values(lease_s=None))
    with database.read() as session:
        assert [lease.job_id for lease in LeaseWatch().run_out(session)] == [held.job_id]


def test_a_store_that_takes_no_write_takes_no_job(database: Database, held: Claim) -> None:
    """On a full disk no worker can beat, and the one that sees its silence cannot write either."""
    clock = Clock()
    watch = LeaseWatch(clock)
    looks(database, watch, clock, LEASE_S)
    with pytest.raises(StorageFull), watch.kept_if_unwritten():
        raise StorageFull
    assert looks(database, watch, clock, LEASE_S) == []
    beat(database, held)
    assert looks(database, watch, clock, LEASE_S) == []
