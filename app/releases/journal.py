"""A release's journal in the store: an entry is committed before its answer leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from sqlalchemy.orm import Session

from app.database import now
from app.engine.privacy.journal import JournalEntry
from app.engine.privacy.loss import PrivacyLoss
from app.queue.context import JobContext
from app.releases import repository
from app.releases.models import JournalRow


class StoredJournal:
    """The journal of the release that a job fits.

    Entries are written under the job's fencing number, in the transaction that checks it: a
    worker whose lease has gone stores nothing, and so learns and publishes nothing.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def entries(self) -> Sequence[JournalEntry]:
        """What earlier runs of the job were answered, in order."""
        with self._context.database.read() as session:
            return read(session, self._context.subject_id)

    def append(self, entry: JournalEntry) -> None:
        """Commit an entry. Raises `JobInterrupted` if this run may not go on."""
        # Committed before the synthesizer sees the answer: after a crash the same question gets the
        # same answer, and no noise is drawn twice for one charge.
        with self._context.fenced() as session:
            session.add(
                JournalRow(
                    release_id=self._context.subject_id,
                    number=entry.number,
                    question_hash=entry.question_hash,
                    question=entry.question,
                    answer=entry.answer,
                    loss_amount=entry.loss.amount,
                    loss_delta=entry.loss.delta,
                    at=now(),
                )
            )


def read(session: Session, release_id: str) -> tuple[JournalEntry, ...]:
    """The entries of a release, in order."""
    release = repository.release(session, release_id)
    kind = cast(Literal["pure", "zcdp"], release.loss_kind)
    return tuple(
        JournalEntry(
            row.number,
            row.question_hash,
            row.question,
            row.answer,
            PrivacyLoss(kind, row.loss_amount, row.loss_delta),
        )
        for row in repository.journal(session, release_id)
    )
