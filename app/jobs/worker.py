"""A worker: a warm process that claims jobs and runs them, one at a time."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType

from app.database import Database, store_faults
from app.datasets.master_key import require_master_key, require_same_key
from app.engine.catalog import registry
from app.jobs import liveness
from app.jobs.executors import executors
from app.jobs.housekeeping import Housekeeping
from app.jobs.memory import close_memory, leave_pandas_out
from app.jobs.run import Execute, run
from app.jobs.shutdown import Shutdown
from app.jobs.subjects import OUTCOMES
from app.problems import Unavailable
from app.queue import jobs
from app.queue.context import JobContext
from app.queue.jobs import Claim
from app.queue.leases import LeaseWatch
from app.queue.outcomes import Outcomes, report_ends
from app.sandbox.child import ChildHost
from app.settings import Settings, get_settings
from app.storage.encryption import Keyring

IDLE_S = 0.05
# How often the queue is read even if the store has not changed: leases run out without a write.
LOOK_ANYWAY_S = 1.0
# How long a worker rests after a job for which the store had no room.
FIRST_REST_S, LONGEST_REST_S = 0.5, 30.0

log = logging.getLogger("halftone.jobs")


class Worker:
    """Claims and runs jobs until a shutdown is requested."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        executors: Mapping[str, Execute],
        outcomes: Mapping[str, Outcomes],
        shutdown: Shutdown,
    ) -> None:
        self.name = liveness.own_name()
        self._database = database
        self._settings = settings
        self._executors = executors
        self._outcomes = outcomes
        self._shutdown = shutdown
        self._change = StoreChange(database)
        self._keyring = Keyring(settings)
        self._leases = LeaseWatch()
        self._warm = False
        self._rest_s = 0.0

    def work(self) -> None:
        """Run jobs as they come. Returns once a shutdown is requested and the last job ended."""
        while not self._shutdown.requested:
            claim = self.next_claim() if self._change.seen() else None
            if claim is not None:
                self._rest_after(self.run(claim))
                self._change.expect()
            elif not self._warm:
                warm_up()
                self._warm = True
            else:
                self._shutdown.wait(IDLE_S)

    def run(self, claim: Claim) -> Unavailable | None:
        """Run a claimed job; returns why the store could not take what it made."""
        outcomes = self._outcomes[claim.kind]
        context = JobContext(self._database, self._settings, claim, outcomes.progressed)
        return run(context, self._executors[claim.kind], outcomes, self._shutdown)

    def _rest_after(self, fault: Unavailable | None) -> None:
        """Wait before the next claim where the store had no room for the last job, ever longer."""
        if fault is None:
            self._rest_s = 0.0
            return
        self._rest_s = min(max(2 * self._rest_s, FIRST_REST_S), LONGEST_REST_S)
        self._shutdown.wait(self._rest_s)

    def next_claim(self) -> Claim | None:
        """Take the next job, after those of lost workers were queued again."""
        try:
            with store_faults(), self._database.read() as session:
                lost = self._leases.run_out(session)
                if not lost and not jobs.has_work(session):
                    return None
            with self._leases.kept_if_unwritten(), self._database.write() as session:
                report_ends(session, jobs.expire(session, lost), self._outcomes)
                # A job that cannot open its table would fail for good, with its charge kept.
                require_same_key(session, self._keyring)
                return jobs.claim(session, self.name, self._settings.lease_s)
        except Unavailable:
            self._change.expect()
            return None


class StoreChange:
    """A cheap check whether the store may have changed since the last one."""

    def __init__(self, database: Database) -> None:
        self._connection = sqlite3.connect(
            f"{database.path.as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        self._version: int | None = None
        self._look_at = 0.0

    def seen(self) -> bool:
        """Whether another connection committed since, or enough time has passed anyway."""
        # Changes when another connection commits. It costs no query, so that an idle worker can
        # poll 20 times a second.
        try:
            version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.OperationalError:
            # The claim meets the same fault, and knows what to do.
            return True
        if version == self._version and time.monotonic() < self._look_at:
            return False
        self._version = version
        self._look_at = time.monotonic() + LOOK_ANYWAY_S
        return True

    def expect(self) -> None:
        """Make the next check say yes, even if the store has not changed."""
        self._look_at = 0.0

    def close(self) -> None:
        self._connection.close()


def main(settings: Settings, *, supervised: bool = False) -> None:
    """`halftone worker`: run jobs of the store until SIGTERM or SIGINT.

    A supervised worker also stops when its standard input ends, as it does with its parent.
    Raises `WrongMasterKey`.
    """
    # First of all, before a key or a row is in memory.
    close_memory()
    leave_pandas_out()
    logging.basicConfig(level=settings.log_level, format="%(levelname)s %(name)s: %(message)s")
    shutdown = Shutdown(settings.drain_s)
    _on_signals(shutdown.request)
    if supervised:
        _follow_parent(shutdown)
    else:
        _migrate(settings)
    database = Database(settings.url, busy_timeout_s=settings.busy_timeout_s)
    require_master_key(database, settings)
    if not supervised:
        _prepare(database, settings)
    chores = contextlib.nullcontext() if supervised else Housekeeping(database, settings, OUTCOMES)
    host = ChildHost(settings)
    host.keep_warm()
    with chores:
        Worker(database, settings, executors(host), OUTCOMES, shutdown).work()
    database.close()


def _migrate(settings: Settings) -> None:
    # Imported here: a supervised worker does not need it, and starts faster without it.
    from app import migrate

    migrate.to_head(settings.url)


def _prepare(database: Database, settings: Settings) -> None:
    # Imported here, as above.
    from app.integrity.sealing import prepare_secrets
    from app.integrity.startup import check_ledgers
    from app.ledger.marks import Marks

    keyring = Keyring(settings)
    prepare_secrets(database, keyring)
    # It may start before a server: what waits in a store that was put back must not run again.
    check_ledgers(database, Marks.of(database, keyring))


def warm_up() -> None:
    """Import, while there is nothing to do, what the first jobs would otherwise wait for."""
    registry.import_built_ins()


def _on_signals(stop: Callable[[], None]) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def _follow_parent(shutdown: Shutdown) -> None:
    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(sys.stdin.fileno(), 1024):
                pass
        # The server is gone: hand the job back at once, so that another worker can continue it.
        shutdown.request(0)

    threading.Thread(target=wait, name="parent", daemon=True).start()


if __name__ == "__main__":
    main(get_settings(), supervised="--supervised" in sys.argv[1:])
