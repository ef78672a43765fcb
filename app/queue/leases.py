"""Which leases have run out, as one process sees it.

A worker that holds a job raises the job's number of beats. A lease has run out for an observer once
it has seen the same number for as long as the lease lasts, by the observer's own monotonic clock.
No two clocks are compared, so that a clock that is set, forward or back, or that differs between
machines takes no job from a living worker and leaves none with a dead one (as failure detectors do;
Chandra and Toueg 1996). A new observer gives every worker a whole lease first.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.problems import Unavailable
from app.queue.models import JobRow

HELD = ("running", "cancelling")

# A look that comes late counts for no more: an observer that was suspended has seen no silence, and
# the workers beside it were suspended too.
LONGEST_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it was seen: `fence` names the claim, `beats` how often it was extended."""

    job_id: str
    fence: int
    beats: int


class LeaseWatch:
    """What one process has seen of the leases in its store; used by one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked = clock()
        self._silent_s: dict[Lease, float] = {}

    @contextlib.contextmanager
    def kept_if_unwritten(self) -> Iterator[None]:
        """Around a write: where the store takes none, it takes no beat either, and every worker
        gets a whole lease anew."""
        try:
            yield
        except Unavailable:
            self._silent_s.clear()
            raise

    def run_out(self, session: Session) -> list[Lease]:
        """Look once more, at least every `LONGEST_LOOK_S` seconds; returns the leases without a
        sign of life for longer than they last."""
        now = self._clock()
        passed = min(max(now - self._looked, 0.0), LONGEST_LOOK_S)
        self._looked = now
        held = select(JobRow.id, JobRow.fence, JobRow.beats, JobRow.lease_s)
        lasting = {
            Lease(job_id, fence, beats): lease_s
            for job_id, fence, beats, lease_s in session.execute(held.where(JobRow.state.in_(HELD)))
        }
        self._silent_s = {
            lease: self._silent_s[lease] + passed if lease in self._silent_s else 0.0
            for lease in lasting
        }
        return [
            lease
            for lease, lease_s in lasting.items()
            # None is a lease of the version before, whose worker ended with it.
            if lease_s is None or self._silent_s[lease] > lease_s
        ]
