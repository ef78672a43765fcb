"""Erasure of a dataset: its jobs, rows, reports and, if requested, its releases.

Erasure has two steps. The first is one transaction, after which nothing of the dataset can be
read. The second deletes the bytes. If the process stops before its end, or the disk has no room to
overwrite them, the next start or a chore of the service does the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from sqlalchemy.orm import Session

from app import idempotency
from app.access import permission
from app.database import Database, now
from app.datasets import repository
from app.datasets.staging import StagingArea
from app.problems import Unavailable
from app.publications import repository as published
from app.publications import service as publications
from app.queue import jobs
from app.releases import repository as released
from app.releases import service as releases
from app.reports import service as reports
from app.security import audit
from app.security.principals import Principal
from app.settings import Settings
from app.storage.blobs import BlobStore
from app.storage.reclaim import free_bytes, reclaim

# Free pages inside the file that are returned to the system, even if nothing else was left.
RECLAIMED_BYTES = 16 * 1024**2


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
        collections += publications.withdraw_of_dataset(session, row.id, principal.id)
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
    """Delete blobs and staged files permanently; call after the erasing transaction committed.

    Raises `Unavailable` if the store takes only a part of it; `finish_interrupted` does the rest.
    """
    with _bytes_remain("The dataset is erased: nothing of it can be read any more."):
        for collection in collections:
            BlobStore(database).delete(collection)
        sweep_staging(database, settings)
        # Last: it empties the log, which still holds older images of the deleted pages.
        reclaim(database)


def purge_publication(database: Database, publication_id: str) -> None:
    """Delete the archive of a publication, after the transaction that withdrew it; raises as
    `purge`."""
    with _bytes_remain("The publication is withdrawn: its files can no longer be read."):
        BlobStore(database).delete(publication_id)


def purge_sample(database: Database, sample_id: str) -> None:
    """Delete the rows of a sample, after the transaction that deleted it; raises as `purge`."""
    with _bytes_remain("The sample is deleted: its rows can no longer be read."):
        BlobStore(database).delete(sample_id)


@contextlib.contextmanager
def _bytes_remain(what_holds: str) -> Iterator[None]:
    """Say with a fault of the store what is true already."""
    try:
        yield
    except Unavailable as fault:
        raise type(fault)(
            f"{what_holds} Some bytes remain on the disk: the service deletes them as soon as it"
            " can. Send the request again to see whether it has.",
            retry_after_s=int(fault.headers["Retry-After"]),
        ) from fault


def sweep_staging(database: Database, settings: Settings) -> None:
    def wanted() -> set[str]:
        with database.read() as session:
            return repository.staged_names(session)

    StagingArea(settings).sweep(wanted)


class _NeededAgain(Exception):
    """What was left over is being filled anew."""


def finish_interrupted(database: Database, settings: Settings) -> None:
    """Delete staged files and chunks that nothing refers to, and return the room.

    They were left by a process that was stopped, or a disk that was full, on the way. Requests and
    jobs may run meanwhile. Raises `Unavailable`.
    """
    sweep_staging(database, settings)
    with database.read() as session:
        found = _leftovers(session)
    for collection in found:
        with contextlib.suppress(_NeededAgain):
            BlobStore(database).delete(collection, unit=partial(_unneeded, database, collection))
    _forget_abandoned(database)
    if found or free_bytes(database) >= RECLAIMED_BYTES:
        reclaim(database)


def _forget_abandoned(database: Database) -> None:
    """Drop the publications that a stopped process left half made; their bytes are gone."""
    with database.read() as session:
        found = published.abandoned(session)
    if found:
        with database.write() as session:
            for publication_id in found:
                published.forget_unfinished(session, publication_id)


@contextlib.contextmanager
def _unneeded(database: Database, collection: str) -> Iterator[Session]:
    """A unit of work as long as nothing refers to the collection."""
    with database.write() as session:
        if not _leftovers(session, collection):
            raise _NeededAgain
        yield session


def _leftovers(session: Session, collection: str | None = None) -> list[str]:
    return [
        *repository.leftovers(session, collection),
        *released.leftovers(session, collection),
        *published.leftovers(session, collection),
    ]
