"""What a store that was put back to an earlier moment must not do again.

Its releases that wait or run may have run since then, and their answers may be known. Run again,
they would draw other noise: a second loss for the same charge. So they fail, and keep their charge.
This holds for all accounts of the store, since all went back together.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.queue import jobs
from app.releases import service as releases

_DETAIL = (
    "The store was put back to an earlier moment. This release may have run since then, and would"
    " have drawn other noise for the same charge, so it was ended."
)


def end_unfinished(session: Session) -> None:
    """Fail all releases that have not ended; for the moment at which a fault is found, before
    anything new is admitted."""
    for job in jobs.abandon(session, "fit", _DETAIL):
        releases.failed(session, job.subject_id)
