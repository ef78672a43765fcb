"""What a worker does for each kind of job."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from app import quota
from app.datasets import ingest
from app.jobs import fit, report, sample
from app.jobs.run import Execute
from app.sandbox.child import ChildHost


def executors(host: ChildHost) -> Mapping[str, Execute]:
    """Executors by kind; a kind that nothing queues has none."""
    return {
        "ingest": partial(ingest.run, used_bytes=quota.used_bytes),
        "fit": partial(fit.run, host=host),
        "sample": partial(sample.run, host=host),
        "report": partial(report.run, host=host),
    }
