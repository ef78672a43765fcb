"""One run of a job: how it starts, stops and ends, whatever happens in it."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

import app.tables  # noqa: F401
from app.database import Base, Database
from app.jobs import run as run_module
from app.jobs.run import Execute
from app.jobs.shutdown import Shutdown
from app.jobs.worker import FIRST_REST_S, Worker
from app.problems import StorageFull, Unavailable
from app.queue import jobs
from app.queue.context import JobContext, ProgressEvent
from app.queue.leases import LeaseWatch
from app.queue.models import JobRow
from app.queue.outcomes import Outcomes
from app.settings import Settings

SUBJECT = "rl_subject"


class Log:
    """What a subject was told, in order, as committed."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.events: list[ProgressEvent] = []

    def outcomes(self) -> Outcomes:
        def tell(word: str) -> Callable[[Session, str], None]:
            return lambda session, subject: self.told.append(word)  # noqa: ARG005

        def progressed(session: Session, subject: str, events: list[ProgressEvent]) -> None:
            del session, subject
            self.events += events

        return Outcomes(tell("started"), progressed, tell("failed"), tell("cancelled"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'store.sqlite'}")
    Base.metadata.create_all(database.write_engine)
    yield database
    database.close()


def enqueue(database: Database, settings: Settings) -> None:
    with database.write() as session:
        jobs.enqueue(session, kind="fit", subject_id=SUBJECT, dataset_id="ds_a", settings=settings)


def run_one(
    database: Database,
    execute: Execute,
    settings: Settings | None = None,
    shutdown: Shutdown | None = None,
) -> tuple[JobRow, Log]:
    """Queue one job, let a worker run it in this thread, and give back its row."""
    settings = settings or Settings()
    log = Log()
    enqueue(database, settings)
    worker = Worker(
        database, settings, {"fit": execute}, {"fit": log.outcomes()}, shutdown or Shutdown(0)
    )
    claim = worker.next_claim()
    assert claim is not None
    worker.run(claim)
    return job(database), log


def job(database: Database) -> JobRow:
    with database.read() as session:
        return session.scalars(select(JobRow)).one()


def fail_with(error: Exception) -> Execute:
    def execute(_: JobContext) -> None:
        raise error

    return execute


def do_nothing(_: JobContext) -> None:
    pass


def until_stopped(context: JobContext) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        context.check_cancelled()
        time.sleep(0.02)
    pytest.fail("the run was never told to stop")


def later(act: Callable[[], None], delay_s: float = 0.1) -> threading.Timer:
    timer = threading.Timer(delay_s, act)
    timer.start()
    return timer


def test_a_run_that_returns_has_succeeded(database: Database) -> None:
    row, log = run_one(database, do_nothing)
    assert (row.state, row.progress, row.stage) == ("succeeded", 1.0, "done")
    assert log.told == ["started"]


def test_what_a_run_publishes_commits_with_its_end(database: Database) -> None:
    def execute(context: JobContext) -> None:
        with pytest.raises(ZeroDivisionError), context.completing():
            raise ZeroDivisionError
        assert job(database).state == "running"
        with context.completing():
            pass
        assert job(database).state == "succeeded"

    run_one(database, execute)


def test_an_exception_fails_the_job_for_good_and_only_the_custodian_learns_why(
    database: Database,
) -> None:
    row, log = run_one(database, fail_with(ValueError("row 7 holds 12.5")))
    assert (row.state, row.stage) == ("failed", "failed")
    assert "row 7 holds 12.5" in (row.private_detail or "")
    assert log.told == ["started", "failed"]


def test_a_cause_that_cannot_be_written_is_kept_as_far_as_it_can(database: Database) -> None:
    row, log = run_one(database, fail_with(ValueError("half \ud800 a character")))
    assert row.state == "failed"
    assert "half ? a character" in (row.private_detail or "")
    assert log.told == ["started", "failed"]


def test_a_cancelled_run_ends_within_two_seconds(database: Database) -> None:
    asked_at = []

    def cancel() -> None:
        asked_at.append(time.monotonic())
        with database.write() as session:
            assert jobs.cancel(session, SUBJECT).state == "cancelling"

    def execute(context: JobContext) -> None:
        later(cancel)
        until_stopped(context)

    row, log = run_one(database, execute)
    assert time.monotonic() - asked_at[0] < 2
    assert row.state == "cancelled"
    assert log.told == ["started", "cancelled"]


def test_a_job_cancelled_as_it_fails_is_cancelled(database: Database) -> None:
    def execute(context: JobContext) -> None:
        with database.write() as session:
            jobs.cancel(session, context.subject_id)
        raise ValueError

    row, log = run_one(database, execute)
    assert row.state == "cancelled"
    assert log.told == ["started", "cancelled"]


def test_a_run_beyond_its_time_has_failed(database: Database) -> None:
    row, _ = run_one(database, until_stopped, Settings(job_time_limit_s=0.3))
    assert row.state == "failed"
    assert "time limit" in (row.private_detail or "")


def test_a_run_beyond_its_memory_has_failed(database: Database) -> None:
    row, _ = run_one(database, until_stopped, Settings(job_memory_bytes=1024))
    assert row.state == "failed"
    assert "memory limit" in (row.private_detail or "")


def test_an_interruption_stops_what_the_run_started(database: Database) -> None:
    stopped = threading.Event()

    def execute(context: JobContext) -> None:
        context.on_interrupt(stopped.set)
        until_stopped(context)

    run_one(database, execute, Settings(job_time_limit_s=0.2))
    assert stopped.is_set()


def test_a_lost_lease_stores_nothing(database: Database) -> None:
    def execute(context: JobContext) -> None:
        with database.write() as session:
            session.execute(update(JobRow).values(fence=JobRow.fence + 1, state="queued"))
        until_stopped(context)

    row, log = run_one(database, execute)
    assert row.state == "queued"
    assert log.told == ["started"]


@pytest.mark.parametrize(
    "fault",
    [Unavailable(), StorageFull(), OSError(errno.ENOSPC, "no space"), "a write"],
    ids=["busy", "full", "no space for a file", "no space in the store"],
)
def test_a_job_for_which_the_store_has_no_room_waits_and_keeps_its_reruns(
    database: Database, fault: Exception | str
) -> None:
    def execute(context: JobContext) -> None:
        if isinstance(fault, Exception):
            raise fault
        with database.raw_writer() as raw:
            raw.execute("PRAGMA max_page_count = 1")  # SQLite takes the size that it has
        try:
            with context.fenced() as session:
                session.execute(update(JobRow).values(private_detail="x" * 100_000))
        finally:
            with database.raw_writer() as raw:
                raw.execute(f"PRAGMA max_page_count = {2**30}")

    row, log = run_one(database, execute)
    assert (row.state, row.losses, row.private_detail) == ("queued", 0, None)
    assert log.told == ["started"]


def test_an_end_that_the_store_does_not_take_is_stored_once_it_does(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def ending(*given: Any) -> Any:
        tries.append(given)
        if len(tries) < 3:
            raise StorageFull
        return kept(*given)

    kept = jobs.ending
    monkeypatch.setattr(jobs, "ending", ending)
    monkeypatch.setattr(run_module, "FIRST_PAUSE_S", 0.01)
    row, log = run_one(database, fail_with(ValueError("one")))
    assert (row.state, row.losses, len(tries)) == ("failed", 0, 3)
    assert log.told == ["started", "failed"]


def test_a_worker_rests_ever_longer_while_there_is_no_room(database: Database) -> None:
    shutdown = Shutdown(0)
    rests: list[float] = []

    def rest(seconds: float) -> bool:
        rests.append(seconds)
        if len(rests) == 3:
            shutdown.request()
        return shutdown.requested

    enqueue(database, Settings())
    no_room = {"fit": fail_with(StorageFull())}
    worker = Worker(database, Settings(), no_room, {"fit": Log().outcomes()}, shutdown)
    shutdown.wait = rest  # type: ignore[method-assign]
    worker.work()
    assert rests == [FIRST_REST_S, 2 * FIRST_REST_S, 4 * FIRST_REST_S]
    assert job(database).losses == 0


def test_a_shutdown_queues_the_job_again_after_the_drain(database: Database) -> None:
    shutdown = Shutdown(0.3)

    def execute(context: JobContext) -> None:
        shutdown.request()
        until_stopped(context)

    row, log = run_one(database, execute, shutdown=shutdown)
    assert (row.state, row.losses) == ("queued", 0)
    assert log.told == ["started"]


def test_a_shutdown_lets_a_short_job_end(database: Database) -> None:
    shutdown = Shutdown(30)
    row, _ = run_one(database, lambda _: shutdown.request(), shutdown=shutdown)
    assert row.state == "succeeded"


def test_heartbeats_keep_a_run_longer_than_its_lease(database: Database) -> None:
    leases = LeaseWatch()

    def execute(context: JobContext) -> None:
        deadline = time.monotonic() + 1.6
        while time.monotonic() < deadline:
            with database.read() as session:
                assert leases.run_out(session) == []
            context.check_cancelled()
            time.sleep(0.05)

    row, _ = run_one(database, execute, Settings(lease_s=1, heartbeat_s=0.2))
    assert (row.state, row.losses) == ("succeeded", 0)


def test_every_progress_report_is_kept_in_order(database: Database) -> None:
    def execute(context: JobContext) -> None:
        for step in range(50):
            context.progress(step / 50, f"step {step}")
        context.progress(0.1, "back")

    row, log = run_one(database, execute)
    assert [event.stage for event in log.events] == [f"step {i}" for i in range(50)] + ["back"]
    fractions = [event.fraction for event in log.events]
    assert fractions == sorted(fractions)
    assert row.state == "succeeded"


def test_the_last_report_is_shown_though_nothing_follows(database: Database) -> None:
    def execute(context: JobContext) -> None:
        context.progress(0.1, "first")
        context.progress(0.2, "second")
        deadline = time.monotonic() + 20
        while job(database).stage != "second":
            assert time.monotonic() < deadline
            time.sleep(0.05)

    row, _ = run_one(database, execute)
    assert row.state == "succeeded", row.private_detail


def test_a_flood_of_progress_is_bounded(database: Database) -> None:
    def execute(context: JobContext) -> None:
        for step in range(5000):
            context.progress(step / 5000, f"{step}" * 100)

    _, log = run_one(database, execute)
    assert len(log.events) <= 300
    assert max(len(event.stage) for event in log.events) <= 64


def test_results_appear_at_multiples_of_the_publication_interval(database: Database) -> None:
    shown: list[float] = []

    def execute(context: JobContext) -> None:
        context.progress(0.5, "counting")
        with context.completing():
            shown.append(time.time())

    begun = time.time()
    row, log = run_one(database, execute, Settings(publish_interval_s=0.5, job_time_limit_s=0.1))
    assert row.state == "succeeded"
    assert shown[0] // 0.5 > begun // 0.5
    assert len(log.events) == 1


def test_failures_wait_for_publication_too(database: Database) -> None:
    begun = time.time()
    row, _ = run_one(database, fail_with(ValueError()), Settings(publish_interval_s=0.5))
    assert row.state == "failed"
    assert time.time() // 0.5 > begun // 0.5
