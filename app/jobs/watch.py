"""The thread that keeps a run's lease, and ends a run that is cancelled or breaks a limit."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

import psutil

from app.database import store_faults
from app.jobs.shutdown import Shutdown
from app.problems import StorageFull, Unavailable
from app.queue import jobs
from app.queue.context import JobContext
from app.queue.jobs import JobCancelled, JobInterrupted, LeaseLost

LOOK_S = 0.2
CANCEL_S = 0.4
# How long the main thread has to stop; with the two intervals above, a cancelled job ends within 2
# seconds in total.
GRACE_S = 0.7

log = logging.getLogger("halftone.jobs")


class LimitExceeded(JobInterrupted):
    """The run took more time or memory than a job is allowed."""

    def __init__(self, limit: Literal["time", "memory"]) -> None:
        super().__init__(f"the job passed its {limit} limit")


class ShuttingDown(JobInterrupted):
    """The service stops before the run has ended: the job waits for the next start."""


class Watch:
    """Watches one run from a thread of its own, until the `with` block ends.

    `give_up` is called in that thread if the run had to stop and has not within a grace
    period; it records the end and leaves the process.
    """

    def __init__(
        self, context: JobContext, shutdown: Shutdown, give_up: Callable[[JobInterrupted], None]
    ) -> None:
        self._context = context
        self._shutdown = shutdown
        self._give_up = give_up
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._process = psutil.Process()
        self._started = self._beaten = self._asked = time.monotonic()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            try:
                self._look()
            except JobInterrupted as reason:
                self._context.interrupt(reason)
                if not self._ended.wait(GRACE_S):
                    self._give_up(reason)
                return

    def _look(self) -> None:
        if self._shutdown.overdue:
            raise ShuttingDown
        self._check_limits()
        try:
            with store_faults():
                self._check_cancelled()
                self._beat()
                self._context.show_progress()
        except JobInterrupted:
            raise
        except Unavailable:
            pass
        except Exception as error:
            # Without this thread a run would have neither limits nor a lease.
            log.error("the watch of a job met %s", type(error).__name__)
        # A store that stays busy ends the run as well: by now another worker may own the job.
        if time.monotonic() - self._beaten > self._context.settings.lease_s:
            raise LeaseLost

    def _check_limits(self) -> None:
        claim = self._context.claim
        late = time.monotonic() - self._started > claim.time_limit_s
        # Waiting for the moment of publication is not work; see `await_publication`.
        if late and not self._context.publishing:
            raise LimitExceeded("time")
        if resident_bytes(self._process) > claim.memory_bytes:
            raise LimitExceeded("memory")

    def _check_cancelled(self) -> None:
        if time.monotonic() - self._asked < CANCEL_S:
            return
        self._asked = time.monotonic()
        with self._context.database.read() as session:
            if jobs.is_cancelling(session, self._context.claim):
                raise JobCancelled

    def _beat(self) -> None:
        settings = self._context.settings
        if time.monotonic() - self._beaten < settings.heartbeat_s:
            return
        # Before the write, which may wait for the lock: the lease counts from the earlier moment.
        begun = time.monotonic()
        # No other worker can take the job while the disk is full.
        with contextlib.suppress(StorageFull), self._context.database.write() as session:
            jobs.heartbeat(session, self._context.claim)
        self._beaten = begun


def resident_bytes(process: psutil.Process) -> int:
    """Memory of a process and all its descendants."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += int(each.memory_info().rss)
    return total
