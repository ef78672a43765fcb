"""What the start, the progress and the end of a job mean for what it works for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.queue.context import Recorder
from app.queue.jobs import Ended

Report = Callable[[Session, str], None]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Functions of one kind of subject; each takes a session and the subject's id."""

    started: Report
    progressed: Recorder
    failed: Report
    cancelled: Report


def report_ends(session: Session, ended: Iterable[Ended], outcomes: Mapping[str, Outcomes]) -> None:
    """Record at the subjects that their jobs ended without a worker, in the same transaction."""
    for job in ended:
        subject = outcomes[job.kind]
        end = subject.failed if job.state == "failed" else subject.cancelled
        end(session, job.subject_id)
