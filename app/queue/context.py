"""What an executor works with: the store, its claim, and the ways to stop it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.database import Database
from app.queue import jobs
from app.queue.jobs import Claim, JobInterrupted
from app.settings import Settings

# Every write takes the store's one write lock.
PROGRESS_INTERVAL_S = 1.0
# Events come in steps of a hundredth, so this is enough unless the stage changes very often.
MOST_PROGRESS_EVENTS = 300
# The width of the column `stage`.
LONGEST_STAGE = 64


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """A fraction in [0, 1] and the stage reached; both are public."""

    fraction: float
    stage: str


# Stores events of a subject: (session, subject id, events).
Recorder = Callable[[Session, str, list[ProgressEvent]], None]


def record_nothing(session: Session, subject_id: str, events: list[ProgressEvent]) -> None:
    """For subjects that keep no events of their own."""
    del session, subject_id, events


class JobContext:
    """One run of a job. Executors write only through `fenced`, and call `check_cancelled` often.

    Every progress event is kept in order, independently of timing, so that what an analyst sees
    of a run depends only on what was reported. Events are written at most once a second, and
    with the job's last write.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        claim: Claim,
        record: Recorder = record_nothing,
    ) -> None:
        self.database = database
        self.settings = settings
        self.claim = claim
        self._record = record
        self._waiting: list[ProgressEvent] = []
        self._last: ProgressEvent | None = None
        self._events = 0
        self._written_at = float("-inf")
        self._awaited = False
        # Only a fit reads private rows for others than their custodian.
        self._interval_s = settings.publish_interval_s if claim.kind == "fit" else 0.0
        self.completed = False
        self.publishing = False
        self._interruption: JobInterrupted | None = None
        self._on_interrupt: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def job_id(self) -> str:
        return self.claim.job_id

    @property
    def kind(self) -> str:
        return self.claim.kind

    @property
    def subject_id(self) -> str:
        return self.claim.subject_id

    @property
    def dataset_id(self) -> str:
        return self.claim.dataset_id

    def fenced(self) -> AbstractContextManager[Session]:
        """A writing unit of work under the claim; raises `JobInterrupted` before it writes."""
        self.check_cancelled()
        return jobs.fenced(self.database, self.claim)

    @contextlib.contextmanager
    def completing(self) -> Iterator[Session]:
        """The last unit of work of a run that succeeds: what it publishes, and its end."""
        self.await_publication()
        with self.fenced() as session:
            self.flush(session)
            yield session
            jobs.finish(session, self.claim, "succeeded")
        self.completed = True

    def await_publication(self) -> None:
        """Wait for the next multiple of `publish_interval_s`, where a run must hide its length.

        The wait does not count as work.
        """
        interval_s = self._interval_s
        self.publishing = True
        if not interval_s or self._awaited:
            return
        # At the first call only: a retry must not move the moment by another interval.
        self._awaited = True
        # Waited for on a clock that is never set: a step back would hold the run up for as long.
        publishes_at = time.monotonic() + interval_s - time.time() % interval_s
        while (left_s := publishes_at - time.monotonic()) > 0:
            self.check_cancelled()
            time.sleep(min(left_s, 0.1))

    def progress(self, fraction: float, stage: str) -> None:
        """Report how far the job is. `stage` is public: never made from rows."""
        self.check_cancelled()
        event = self._forward(
            ProgressEvent(round(min(max(fraction, 0.0), 1.0), 2), stage[:LONGEST_STAGE])
        )
        if event == self._last or self._events >= MOST_PROGRESS_EVENTS:
            return
        self._last = event
        self._events += 1
        with self._lock:
            self._waiting.append(event)
        self.show_progress()

    def show_progress(self) -> None:
        """Store what was reported, if it is time to; safe from any thread."""
        if self._waiting and self._may_show():
            with self.fenced() as session:
                self.flush(session)

    def _may_show(self) -> bool:
        """Progress is throttled, and kept back altogether where durations are hidden."""
        if self._interval_s:
            return False
        return time.monotonic() - self._written_at >= PROGRESS_INTERVAL_S

    def _forward(self, event: ProgressEvent) -> ProgressEvent:
        if self._last is None or event.fraction >= self._last.fraction:
            return event
        # Progress never goes back, also when a run repeats what an earlier one did.
        return ProgressEvent(self._last.fraction, event.stage)

    def flush(self, session: Session) -> None:
        """Store the events that wait, inside a unit of work of this run."""
        with self._lock:
            events, self._waiting = self._waiting, []
        if not events:
            return
        jobs.record_progress(session, self.claim, events[-1].fraction, events[-1].stage)
        self._record(session, self.subject_id, events)
        self._written_at = time.monotonic()

    @property
    def interruption(self) -> JobInterrupted | None:
        return self._interruption

    def check_cancelled(self) -> None:
        """Raise the `JobInterrupted` that ended this run, if one did."""
        if self._interruption is not None:
            raise self._interruption

    def interrupt(self, reason: JobInterrupted) -> None:
        """Make the run stop, from another thread; the first reason is kept."""
        with self._lock:
            if self._interruption is not None:
                return
            self._interruption = reason
            stoppers = list(self._on_interrupt)
        # Outside the lock, since a stopper may call back into this context.
        for stop in stoppers:
            stop()

    def on_interrupt(self, stop: Callable[[], None]) -> None:
        """Call `stop` when the run is interrupted, at once if it already was."""
        with self._lock:
            self._on_interrupt.append(stop)
            interrupted = self._interruption is not None
        if interrupted:
            stop()
