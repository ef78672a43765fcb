"""Waiting for background jobs, by asking again at a growing distance."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from halftone_client import wire
from halftone_client.errors import JobFailed, Timeout, UploadRejected, retry_after_s
from halftone_client.progress import ProgressBar, Report
from halftone_client.protocol import Call, Flow, Pause, Service
from halftone_client.records import Dataset, Job

J = TypeVar("J", bound=Job)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


def wait(
    service: Service,
    job: J,
    *,
    timeout_s: float | None = None,
    progress: bool | Report = True,
) -> Flow[J]:
    """Wait until a dataset is ready, or a release or sample has succeeded; returns its last state.

    With nothing but an id in hand, fetch the record first: `wait(get_release("rl_..."))`.
    `progress` draws a bar on a terminal, or is called with (fraction, stage). Raises
    `JobFailed` (of a dataset `UploadRejected`) when the job ends otherwise, and `Timeout` after
    `timeout_s`, in which case the job goes on.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    bar = ProgressBar(f"{job.collection[:-1]} {job.id}")
    report: Callable[[float, str], object] = bar if progress is True else progress or _ignore
    pause_s = _FIRST_PAUSE_S
    try:
        while True:
            response = yield from service.call(Call("GET", job.path))
            job = type(job)(wire.decode(response))
            report(_fraction(job), str(job.get("stage") or job.state))
            if isinstance(job, Dataset) and job.state == "rejected":
                found = yield from service.get(f"{job.path}/ingest-report")
                raise UploadRejected(job, found)
            if job.is_finished:
                return _succeeded(job)
            pause_s = retry_after_s(response) or min(pause_s * 1.5, _LONGEST_PAUSE_S)
            if deadline is not None and time.monotonic() + pause_s > deadline:
                raise Timeout(f"{job.id} is still {job.state} after {timeout_s:g} s", job)
            yield Pause(pause_s)
    finally:
        bar.close()


def _succeeded(job: J) -> J:
    if job.has_failed:
        reason = job.get("private_detail") or job.get("failure")
        raise JobFailed(f"{job.id} is {job.state}" + (f": {reason}" if reason else ""), job)
    return job


def _fraction(job: Job) -> float:
    if job.is_finished:
        return 1.0
    return float(job.get("progress") or 0.0)


def _ignore(_fraction: float, _stage: str) -> None:
    """Progress nobody watches."""
