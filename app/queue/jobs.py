"""The queue of jobs: claims, leases and fencing numbers.

A claim raises the job's fencing number and holds a lease (see `leases`). A worker whose lease has
run out counts as lost, and the number is raised again. Workers write only through `fenced`, so that
one that wakes up after its job was taken away can store nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Select, func, insert, select, update
from sqlalchemy.orm import Session

from app.database import Database, new_id, now
from app.queue.leases import HELD, Lease
from app.queue.models import JobRow
from app.settings import Settings

Kind = Literal["ingest", "fit", "sample", "report"]
End = Literal["succeeded", "failed", "cancelled"]

# How often a job is run again after its worker was lost. A job that kills its worker each time must
# not run forever.
MOST_RERUNS = 3

_ENQUEUE = insert(JobRow.__table__)  # type: ignore[arg-type]


class JobInterrupted(Exception):
    """The job must stop; nothing more may be stored for it by this run."""


class LeaseLost(JobInterrupted):
    """Another run owns the job, or may own it: the lease has run out."""


class JobCancelled(JobInterrupted):
    """Someone cancelled the job; nothing of it is published."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One run of a job by one worker, under its fencing number."""

    job_id: str
    kind: str
    subject_id: str
    dataset_id: str
    worker: str
    fence: int
    memory_bytes: int
    time_limit_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended for good, not reported by its worker."""

    job_id: str
    kind: str
    subject_id: str
    state: Literal["failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class CancelOutcome:
    """The result of a request to cancel.

    `refundable` holds only where no worker ever claimed the job, so that no one can have
    touched private rows for it.
    """

    state: Literal["cancelled", "cancelling", "finished"]
    refundable: bool = False


def enqueue(
    session: Session, *, kind: Kind, subject_id: str, dataset_id: str, settings: Settings
) -> None:
    """Queue a job in the transaction that makes what it works for."""
    session.execute(
        _ENQUEUE,
        {
            "id": new_id("jb"),
            "kind": kind,
            "subject_id": subject_id,
            "dataset_id": dataset_id,
            "state": "queued",
            "memory_bytes": settings.job_memory_bytes,
            "time_limit_s": settings.job_time_limit_s,
            "created_at": now(),
        },
    )


def claim(session: Session, worker: str, lease_s: float) -> Claim | None:
    """Take the next queued job, if there is one.

    Kinds take turns, the one served longest ago first, so that many uploads cannot
    starve releases; within a kind the oldest goes first.
    """
    # Under the write lock, so no two workers can select the same job.
    job = session.scalar(_next_in_turn())
    if job is None:
        return None
    job.state = "running"
    job.claims += 1
    job.fence += 1
    job.worker = worker
    job.lease_s = lease_s
    job.started_at = now()
    session.flush()
    return Claim(
        job_id=job.id,
        kind=job.kind,
        subject_id=job.subject_id,
        dataset_id=job.dataset_id,
        worker=worker,
        fence=job.fence,
        memory_bytes=job.memory_bytes,
        time_limit_s=job.time_limit_s,
    )


def _next_in_turn() -> Select[JobRow]:
    turns = (
        select(JobRow.kind, func.max(JobRow.started_at).label("served_at"))
        .group_by(JobRow.kind)
        .subquery()
    )
    return (
        select(JobRow)
        .join(turns, turns.c.kind == JobRow.kind)
        .where(JobRow.state == "queued")
        .order_by(turns.c.served_at.asc().nulls_first(), JobRow.created_at, JobRow.id)
        .limit(1)
    )


def has_work(session: Session) -> bool:
    """Whether there is a job to claim."""
    waiting = select(JobRow.id).where(JobRow.state == "queued").limit(1)
    return session.scalar(waiting) is not None


def heartbeat(session: Session, claim: Claim) -> None:
    """Extend the lease by its whole length; raises `LeaseLost` where it has gone."""
    _owned(session, claim).beats += 1


def is_cancelling(session: Session, claim: Claim) -> bool:
    """Whether the job of a claim was cancelled; raises `LeaseLost`."""
    return _owned(session, claim).state == "cancelling"


@contextlib.contextmanager
def fenced(database: Database, claim: Claim) -> Iterator[Session]:
    """A writing unit of work of the worker that holds the claim.

    Raises `LeaseLost` or `JobCancelled` before anything is written.
    """
    with database.write() as session:
        # Checked before the first write, in the transaction of the write: no expiry can come in
        # between.
        if _owned(session, claim).state == "cancelling":
            raise JobCancelled
        yield session


@contextlib.contextmanager
def ending(database: Database, claim: Claim) -> Iterator[Session]:
    """The unit of work that records how a run ended: a cancelled job may still end.

    Raises `LeaseLost` before anything is written.
    """
    with database.write() as session:
        _owned(session, claim)
        yield session


def finish(session: Session, claim: Claim, state: End, private_detail: str | None = None) -> None:
    """End the job for good, inside `fenced` or `ending`.

    `private_detail` is for the custodian alone.
    """
    job = _owned(session, claim)
    _end(job, state)
    job.private_detail = private_detail


def hand_back(session: Session, claim: Claim) -> None:
    """Queue the job again at once; another worker continues from its journal."""
    _requeue(_owned(session, claim))


def expire(session: Session, leases: Sequence[Lease]) -> list[Ended]:
    """Take away the jobs of leases that have run out, unless they were extended since; returns
    those that ended."""
    held = [session.get(JobRow, lease.job_id, populate_existing=True) for lease in leases]
    return _take_away(
        [
            job
            for job, lease in zip(held, leases, strict=True)
            if job is not None
            and job.state in HELD
            and (job.fence, job.beats) == (lease.fence, lease.beats)
        ]
    )


def expire_worker(session: Session, worker: str) -> list[Ended]:
    """Take away what a worker holds that is known to be dead, without waiting for leases."""
    held = select(JobRow).where(JobRow.state.in_(HELD), JobRow.worker == worker)
    return _take_away(list(session.scalars(held)))


def abandon(session: Session, kind: Kind, detail: str) -> list[Ended]:
    """End all jobs of a kind as failed, whether they wait or run; `detail` says why."""
    going_on = JobRow.state.in_(("queued", *HELD))
    ended = []
    for job in session.scalars(select(JobRow).where(JobRow.kind == kind, going_on)):
        _end(job, "failed")
        job.private_detail = detail
        ended.append(Ended(job.id, job.kind, job.subject_id, "failed"))
    return ended


def holders(session: Session) -> list[str]:
    """Names of the workers that hold a job."""
    held = select(JobRow.worker).where(JobRow.state.in_(HELD)).distinct()
    return [name for name in session.scalars(held) if name is not None]


def tally(session: Session) -> list[tuple[str, str, int]]:
    """(kind, state, number of jobs), for every kind and state that there is."""
    counted = select(JobRow.kind, JobRow.state, func.count()).group_by(JobRow.kind, JobRow.state)
    return [(kind, state, number) for kind, state, number in session.execute(counted)]


def cancel(session: Session, subject_id: str) -> CancelOutcome:
    """Cancel the newest job of a subject; asking again gives the same answer.

    A job that waits ends at once. One that runs is asked to stop, and its worker ends it.
    """
    job = session.scalar(
        select(JobRow)
        .where(JobRow.subject_id == subject_id)
        .order_by(JobRow.created_at.desc(), JobRow.id)
        .limit(1)
    )
    if job is None:
        return CancelOutcome("finished")
    if job.state == "queued":
        _end(job, "cancelled")
        # `claims` never goes down, so a job that was claimed once and queued again stays
        # non-refundable.
        return CancelOutcome("cancelled", refundable=job.claims == 0)
    if job.state in HELD:
        job.state = "cancelling"
        return CancelOutcome("cancelling")
    return CancelOutcome("finished")


def waiting_or_running(session: Session, dataset_id: str, kind: str) -> list[str]:
    """Subjects of the jobs of a kind on a dataset that have not ended."""
    going_on = JobRow.state.in_(("queued", *HELD))
    query = select(JobRow.subject_id).where(
        JobRow.dataset_id == dataset_id, JobRow.kind == kind, going_on
    )
    return list(session.scalars(query))


def record_progress(session: Session, claim: Claim, fraction: float, stage: str) -> None:
    """Show how far the job is; `stage` is public."""
    session.execute(
        update(JobRow).where(JobRow.id == claim.job_id).values(progress=fraction, stage=stage)
    )


def _owned(session: Session, claim: Claim) -> JobRow:
    # Read again in this transaction: a row loaded earlier could hide that the fence was raised.
    job = session.get(JobRow, claim.job_id, populate_existing=True)
    if job is None or job.fence != claim.fence or job.state not in HELD:
        raise LeaseLost
    return job


def _take_away(jobs: list[JobRow]) -> list[Ended]:
    ended = []
    for job in jobs:
        job.losses += 1
        if job.state == "cancelling":
            _end(job, "cancelled")
            ended.append(Ended(job.id, job.kind, job.subject_id, "cancelled"))
        elif job.losses > MOST_RERUNS:
            _end(job, "failed")
            job.private_detail = "The job's worker was lost too often."
            ended.append(Ended(job.id, job.kind, job.subject_id, "failed"))
        else:
            _requeue(job)
    return ended


def _requeue(job: JobRow) -> None:
    job.state = "queued"
    _let_go(job)


def _end(job: JobRow, state: End) -> None:
    job.state = state
    job.stage = "done" if state == "succeeded" else state
    job.finished_at = now()
    if state == "succeeded":
        job.progress = 1.0
    _let_go(job)


def _let_go(job: JobRow) -> None:
    job.fence += 1
    job.worker = None
    job.lease_s = None
