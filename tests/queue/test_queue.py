"""The queue: who gets a job, for how long, and who may write for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import app.tables  # noqa: F401
from app.database import Base, Database, new_id
from app.queue import jobs
from app.queue.jobs import Claim, JobCancelled, LeaseLost
from app.queue.leases import Lease
from app.queue.models import JobRow
from app.settings import Settings

LEASE_S = 30


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'store.sqlite'}")
    Base.metadata.create_all(database.write_engine)
    yield database
    database.close()


def enqueue(database: Database, kind: jobs.Kind = "fit") -> str:
    subject = new_id("rl")
    with database.write() as session:
        jobs.enqueue(session, kind=kind, subject_id=subject, dataset_id="ds_a", settings=Settings())
    return subject


def claim(database: Database, worker: str = "w1") -> Claim:
    with database.write() as session:
        found = jobs.claim(session, worker, LEASE_S)
    assert found is not None
    return found


def run_out(database: Database, held: Claim) -> list[jobs.Ended]:
    """Take the job away as where nothing was heard of its worker for a lease."""
    with database.write() as session:
        return jobs.expire(session, [Lease(held.job_id, held.fence, job(database, held).beats)])


def job(database: Database, held: Claim) -> JobRow:
    with database.read() as session:
        found = session.get(JobRow, held.job_id)
    assert found is not None
    return found


def test_an_empty_queue_gives_nothing(database: Database) -> None:
    with database.read() as session:
        assert not jobs.has_work(session)
    with database.write() as session:
        assert jobs.claim(session, "w1", LEASE_S) is None


def test_the_oldest_job_of_a_kind_goes_first(database: Database) -> None:
    subjects = [enqueue(database) for _ in range(3)]
    assert [claim(database).subject_id for _ in range(3)] == subjects


def test_uploads_do_not_starve_releases(database: Database) -> None:
    for _ in range(5):
        enqueue(database, "ingest")
    enqueue(database, "fit")
    assert {claim(database).kind, claim(database).kind} == {"ingest", "fit"}


def test_a_job_is_claimed_by_one_worker(database: Database) -> None:
    enqueue(database)
    claim(database)
    with database.write() as session:
        assert jobs.claim(session, "w2", LEASE_S) is None


def test_a_job_whose_lease_ran_out_is_run_again(database: Database) -> None:
    subject = enqueue(database)
    first = claim(database)
    assert run_out(database, first) == []
    second = claim(database, "w2")
    assert second.subject_id == subject
    assert second.fence > first.fence


def test_a_lost_worker_can_store_nothing(database: Database) -> None:
    enqueue(database)
    first = claim(database)
    run_out(database, first)
    with pytest.raises(LeaseLost), jobs.fenced(database, first):
        pytest.fail("a worker without a lease must not write")
    claim(database, "w2")
    for unit in (jobs.fenced, jobs.ending):
        with pytest.raises(LeaseLost), unit(database, first):
            pytest.fail("a worker with an older number must not write")
    with pytest.raises(LeaseLost), database.write() as session:
        jobs.heartbeat(session, first)


def test_a_lease_that_was_extended_since_it_was_seen_is_left(database: Database) -> None:
    enqueue(database)
    held = claim(database)
    seen = Lease(held.job_id, held.fence, job(database, held).beats)
    with database.write() as session:
        jobs.heartbeat(session, held)
    with database.write() as session:
        assert jobs.expire(session, [seen]) == []
    assert job(database, held).state == "running"


def test_a_job_is_run_again_three_times_and_no_more(database: Database) -> None:
    enqueue(database)
    for _ in range(3):
        assert run_out(database, claim(database)) == []
    last = claim(database)
    (ended,) = run_out(database, last)
    assert ended.state == "failed"
    assert job(database, last).state == "failed"
    with database.read() as session:
        assert not jobs.has_work(session)


def test_a_shutdown_hands_a_job_back_without_counting_a_loss(database: Database) -> None:
    enqueue(database)
    for _ in range(6):
        held = claim(database)
        with jobs.ending(database, held) as session:
            jobs.hand_back(session, held)
    assert job(database, held).state == "queued"
    assert job(database, held).claims == 6


def test_the_jobs_of_a_dead_worker_are_taken_at_once(database: Database) -> None:
    enqueue(database)
    enqueue(database)
    dead, alive = claim(database, "dead"), claim(database, "alive")
    with database.read() as session:
        assert sorted(jobs.holders(session)) == ["alive", "dead"]
    with database.write() as session:
        jobs.expire_worker(session, "dead")
    assert job(database, dead).state == "queued"
    assert job(database, alive).state == "running"


def test_cancelling_a_job_that_no_one_claimed_is_refundable(database: Database) -> None:
    subject = enqueue(database)
    with database.write() as session:
        outcome = jobs.cancel(session, subject)
    assert (outcome.state, outcome.refundable) == ("cancelled", True)
    with database.write() as session:
        assert jobs.claim(session, "w1", LEASE_S) is None


def test_cancelling_a_job_that_waits_again_keeps_the_charge(database: Database) -> None:
    subject = enqueue(database)
    run_out(database, claim(database))
    with database.write() as session:
        outcome = jobs.cancel(session, subject)
    assert (outcome.state, outcome.refundable) == ("cancelled", False)


def test_cancelling_a_running_job_stops_its_writes_but_lets_it_end(database: Database) -> None:
    subject = enqueue(database)
    held = claim(database)
    for _ in range(2):
        with database.write() as session:
            assert jobs.cancel(session, subject) == jobs.CancelOutcome("cancelling")
    with pytest.raises(JobCancelled), jobs.fenced(database, held):
        pytest.fail("nothing of a cancelled job may be stored")
    with jobs.ending(database, held) as session:
        jobs.finish(session, held, "cancelled")
    with database.write() as session:
        assert jobs.cancel(session, subject).state == "finished"


def test_a_cancelled_job_whose_worker_is_lost_is_cancelled(database: Database) -> None:
    subject = enqueue(database)
    held = claim(database)
    with database.write() as session:
        jobs.cancel(session, subject)
    (ended,) = run_out(database, held)
    assert ended.state == "cancelled"


def test_a_finished_job_takes_no_more_writes(database: Database) -> None:
    enqueue(database)
    held = claim(database)
    with jobs.fenced(database, held) as session:
        jobs.finish(session, held, "succeeded")
    with pytest.raises(LeaseLost), jobs.fenced(database, held):
        pytest.fail("a finished job must not be written for")
    assert job(database, held).progress == 1.0


def test_jobs_are_counted_by_kind_and_state(database: Database) -> None:
    enqueue(database)
    enqueue(database)
    enqueue(database, "ingest")
    claim(database)
    with database.read() as session:
        found = set(jobs.tally(session))
    assert found == {("fit", "queued", 1), ("fit", "running", 1), ("ingest", "queued", 1)}
