"""Regular maintenance of the store: checkpoints, lost leases, expired samples,
erasures that were interrupted, old folders."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from app.database import Database
from app.erasure import finish_interrupted
from app.jobs import liveness
from app.jobs.chores import Chores
from app.problems import Unavailable
from app.queue import jobs
from app.queue.leases import LeaseWatch
from app.queue.outcomes import Outcomes, report_ends
from app.releases import samples
from app.sandbox import folders
from app.settings import Settings
from app.storage.blobs import BlobStore

# A passive checkpoint never shrinks the log, and a large log slows down every read.
LARGEST_WAL_BYTES = 16 * 1024**2
CHECKPOINT_S = 60.0
# How long a checkpoint waits for readers of the log, while running and at the end.
PATIENCE_S, LAST_PATIENCE_S = 0.2, 2.0
# Often, because a user waits for a job whose worker was lost; the rest is only tidying.
LEASES_S = 1.0
SAMPLES_S = 30.0
# For what a full disk, or a process that was stopped, left over.
ERASURE_S = 60.0
FOLDERS_S = 60.0
_LOOK_S = 0.25


class Housekeeping:
    """A thread that maintains the store until the `with` block ends.

    Any number of processes may maintain the same store: every task holds the write lock. Leases
    of workers that are known to be dead are taken away at the start.
    """

    def __init__(
        self, database: Database, settings: Settings, outcomes: Mapping[str, Outcomes]
    ) -> None:
        self._database = database
        self._settings = settings
        self._outcomes = outcomes
        self._checkpointed = time.monotonic()
        self._leases = LeaseWatch()
        self.chores = Chores(
            "housekeeping",
            {
                "checkpoint": (self._checkpoint, _LOOK_S),
                "leases": (self._take_from_lost, LEASES_S),
                "samples": (self._drop_samples, SAMPLES_S),
                "erasure": (lambda: finish_interrupted(database, settings), ERASURE_S),
                "folders": (folders.remove_left_behind, FOLDERS_S),
            },
            look_s=_LOOK_S,
        )

    def __enter__(self) -> Housekeeping:
        # As a chore: a full disk must not keep a service from starting.
        self.chores.do("leases")
        self.chores.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.chores.stop()
        with contextlib.suppress(Unavailable):
            self._database.checkpoint(patience_s=LAST_PATIENCE_S)

    def take_from_dead(self) -> None:
        """Queue again the jobs of workers that died on this machine."""
        with self._database.read() as session:
            dead = [name for name in jobs.holders(session) if liveness.is_dead(name)]
        for name in dead:
            with self._database.write() as session:
                report_ends(session, jobs.expire_worker(session, name), self._outcomes)

    def _checkpoint(self) -> None:
        size = self._database.wal_bytes()
        if not size:
            return
        waited_s = time.monotonic() - self._checkpointed
        if size > LARGEST_WAL_BYTES or waited_s > CHECKPOINT_S:
            self._database.checkpoint(patience_s=PATIENCE_S)
            self._checkpointed = time.monotonic()

    def _take_from_lost(self) -> None:
        self.take_from_dead()
        with self._database.read() as session:
            lost = self._leases.run_out(session)
        if lost:
            with self._leases.kept_if_unwritten(), self._database.write() as session:
                report_ends(session, jobs.expire(session, lost), self._outcomes)

    def _drop_samples(self) -> None:
        if self._settings.sample_ttl_s is None:
            return
        with self._database.write() as session:
            dropped = samples.drop_expired(session, self._settings)
        # After the commit, so that no row promises bytes that are gone. If the process dies in
        # between, or the disk is full, the chore `erasure` deletes them.
        for sample_id in dropped:
            BlobStore(self._database).delete(sample_id)
