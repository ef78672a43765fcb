"""One run of one job: start, execute under watch, record how it ended."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from sqlalchemy.orm import Session

from app.database import unavailable
from app.datasets import private_facts
from app.jobs.shutdown import Shutdown
from app.jobs.watch import LimitExceeded, ShuttingDown, Watch
from app.problems import Unavailable
from app.queue import jobs
from app.queue.context import JobContext
from app.queue.jobs import JobCancelled, JobInterrupted, LeaseLost
from app.queue.outcomes import Outcomes
from app.storage.encryption import Keyring

# Characters, from the end, where the error itself stands.
LONGEST_DETAIL = 20_000
# Between two tries to store how a job ended.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
# Exit status of a worker whose run did not stop when it had to.
STUCK = 75

log = logging.getLogger("halftone.jobs")

Execute = Callable[[JobContext], None]


def run(
    context: JobContext, execute: Execute, outcomes: Outcomes, shutdown: Shutdown
) -> Unavailable | None:
    """Run a claimed job to its end; nothing that goes wrong in it is raised here.

    A limit, an exception or the death of the synthesizer's process fails the job for good.
    Only a lost lease, a store that cannot be reached or has no room, and a shutdown let it run
    again. Returns why the store could not take what the run made, if it could not.
    """

    def give_up(reason: JobInterrupted) -> NoReturn:
        log.warning("job %s did not stop; leaving the process", context.job_id)
        try:
            _record_end(context, outcomes, reason)
        finally:
            # Not `sys.exit`: this is not the main thread, and the main thread may be stuck in C
            # code.
            os._exit(STUCK)

    with Watch(context, shutdown, give_up):
        cause = _executed(context, execute, outcomes)
        if cause is None:
            return None
        cause = _after_publication(context, cause)
    # Outside the watch, which would end a run whose lease it cannot extend: this may wait for room
    # for as long as it takes, and writes under its fence alone.
    _record_when_possible(context, outcomes, cause, shutdown)
    return cause if isinstance(cause, Unavailable) else None


def _executed(context: JobContext, execute: Execute, outcomes: Outcomes) -> Exception | None:
    """What ended the run, or None if it has succeeded."""
    try:
        with context.fenced() as session:
            outcomes.started(session, context.subject_id)
        execute(context)
        if not context.completed:
            with context.completing():
                pass
    except Exception as error:
        return context.interruption or unavailable(error) or error
    return None


def _after_publication(context: JobContext, cause: Exception) -> Exception:
    """The cause, once it may show: a failure must not show earlier than a success would, or its
    time could depend on the rows."""
    try:
        if not isinstance(cause, JobInterrupted | Unavailable):
            context.await_publication()
    except JobInterrupted as interruption:
        return interruption
    return cause


def _record_when_possible(
    context: JobContext, outcomes: Outcomes, cause: Exception, shutdown: Shutdown
) -> None:
    """Store the end, or hand the job back, as soon as the store takes it.

    So the job loses none of its reruns, which count lost workers.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return _record_end(context, outcomes, cause)
        except Unavailable as error:
            log.warning("job %s: its end waits for the store: %s", context.job_id, error.title)
        if shutdown.overdue:
            return None
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def _record_end(context: JobContext, outcomes: Outcomes, cause: Exception) -> None:
    """Store the end under the claim, or nothing at all if the claim has gone."""
    log.info("job %s (%s) ended: %s", context.job_id, context.kind, type(cause).__name__)
    # After a lost lease another run owns the job; this one must not decide how it ends.
    if context.completed or isinstance(cause, LeaseLost):
        return
    with contextlib.suppress(LeaseLost), jobs.ending(context.database, context.claim) as session:
        claim, subject = context.claim, context.subject_id
        # Progress first, so that the stored end is the last event.
        context.flush(session)
        if isinstance(cause, JobCancelled) or jobs.is_cancelling(session, claim):
            outcomes.cancelled(session, subject)
            jobs.finish(session, claim, "cancelled")
        elif isinstance(cause, ShuttingDown | Unavailable):
            jobs.hand_back(session, claim)
        else:
            outcomes.failed(session, subject)
            jobs.finish(session, claim, "failed", _stored_detail(session, context, cause))


def _stored_detail(session: Session, context: JobContext, cause: Exception) -> str | None:
    return private_facts.stored_detail(
        session,
        Keyring(context.settings),
        context.dataset_id,
        context.job_id,
        _private_detail(cause),
    )


def _private_detail(cause: Exception) -> str:
    """For the custodian: a limit in plain words, any other error with its traceback."""
    if isinstance(cause, LimitExceeded):
        return str(cause)
    text = "".join(traceback.format_exception(cause))[-LONGEST_DETAIL:]
    # SQLite takes no lone surrogates, which an exception's text may contain.
    return text.encode(errors="replace").decode()
