"""What jobs work for, kind by kind."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from app.datasets import ingest
from app.queue.context import record_nothing
from app.queue.outcomes import Outcomes
from app.releases import samples
from app.releases import service as releases
from app.reports import service as reports


def _nothing(session: Session, subject_id: str) -> None:
    del session, subject_id


# Reached only after a claim, which ends the right to a refund.
def _release_cancelled(session: Session, release_id: str) -> None:
    releases.cancelled(session, release_id, refunded=False)


OUTCOMES: Mapping[str, Outcomes] = {
    "ingest": Outcomes(
        started=_nothing,
        progressed=record_nothing,
        failed=ingest.failed,
        cancelled=ingest.failed,
    ),
    "fit": Outcomes(
        started=releases.started,
        progressed=releases.progressed,
        failed=releases.failed,
        cancelled=_release_cancelled,
    ),
    "sample": Outcomes(
        started=samples.started,
        progressed=record_nothing,
        failed=samples.failed,
        cancelled=samples.failed,
    ),
    "report": Outcomes(
        started=reports.started,
        progressed=record_nothing,
        failed=reports.failed,
        cancelled=reports.failed,
    ),
}
