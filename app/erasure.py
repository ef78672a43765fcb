"""Erasure of a dataset: its jobs, rows, reports and, if requested, its releases.

Erasure has two steps. The first is one transaction, after which nothing of the dataset can be
read. The second deletes the bytes; if the process stops before its end, the next start repeats it.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from app import idempotency
from app.access import permission
from app.database import Database, now
from app.datasets import repository
from app.datasets.staging import StagingArea
from app.queue import jobs
from app.releases import service as releases
from app.reports import service as reports
from app.security import audit
from app.security.principals import Principal
from app.settings import Settings
from app.storage.blobs import BlobStore
from app.storage.reclaim import reclaim


def erase(
    session: Session, principal: Principal, dataset_id: str, *, with_releases: bool
) -> list[str]:
    """Erase the dataset: its jobs are stopped, its key and private facts are deleted at once.

    Returns the blob collections that `purge` must delete after the commit. Account, ledger and
    the keyed content digest stay. Erasing again changes nothing.
    """
    row = permission.own_dataset(session, principal, dataset_id)
    # Jobs first: a worker checks its fence in each write, so nothing is added after this commit.
    jobs.cancel(session, row.id)
    releases.cancel_all(session, row.id, principal.id)
    reports.forget(session, row.id)
    releases.forget_causes(session, row.id)
    collections = [row.id]
    if with_releases:
        collections += releases.purge(session, row.id)
    if row.state != "erased":
        row.state, row.erased_at = "erased", now()
        audit.record(
            session,
            principal_id=principal.id,
            action="dataset.erase",
            subject=row.id,
            detail={"releases": with_releases},
        )
    # The hash of the file that made it, by which a guess at the file could be tested.
    idempotency.forget(session, row.id)
    # Without its key, encrypted data is unreadable from this commit on.
    row.staged, row.wrapped_key, row.rows, row.ingest_report = None, None, None, None
    return collections


def purge(database: Database, settings: Settings, collections: list[str]) -> None:
    """Delete blobs and staged files permanently; call after the erasing transaction committed."""
    for collection in collections:
        BlobStore(database).delete(collection)
    sweep_staging(database, settings)
    # Last: it empties the log, which still holds older images of the deleted pages.
    reclaim(database)


def sweep_staging(database: Database, settings: Settings) -> None:
    def wanted() -> set[str]:
        with database.read() as session:
            return repository.staged_names(session)

    StagingArea(settings).sweep(wanted)


def finish_interrupted(database: Database, settings: Settings) -> None:
    """At start-up: delete staged files and chunks that a stopped process left behind."""
    sweep_staging(database, settings)
    with database.read() as session:
        leftovers = repository.leftovers(session)
    if leftovers:
        purge(database, settings, leftovers)
