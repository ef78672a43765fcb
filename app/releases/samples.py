"""The life of a sample: synthetic rows made from a fitted model and a seed, free of charge."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from sqlalchemy.orm import Session

from app.access.permission import is_custodian_of
from app.database import new_id, now
from app.datasets.models import DatasetRow
from app.engine.constraints.stream import Repairs
from app.problems import Conflict, Forbidden, Invalid, NotFound
from app.queue import jobs
from app.releases import repository
from app.releases.models import ReleaseRow, SampleRow
from app.security.principals import Principal
from app.settings import Settings
from app.storage.blobs import own, owned_bytes

LARGEST_SEED = 2**63 - 1
# Seeds drawn here have 16 digits and survive JSON readers that hold numbers as doubles.
_LEAST_DRAWN, _DRAWN = 10**15, 8 * 10**15

Kind = Literal["rows", "counts"]


@dataclass(frozen=True, slots=True)
class Made:
    """A stored table: its rows, the bytes of its Parquet form and their SHA-256.

    repairs: what it took to keep the dictionary's rules; None where none applies.
    """

    rows: int
    size_bytes: int
    content_sha256: str
    repairs: Repairs | None = None


def new_seed() -> int:
    return _LEAST_DRAWN + secrets.randbelow(_DRAWN)


def first_id(release_id: str) -> str:
    """The id of a release's first sample: the same for every run of its job.

    A run after a lost worker overwrites what the first one left.
    """
    return f"sm_{release_id.removeprefix('rl_')}"


def first_seed(release: ReleaseRow) -> int:
    """The seed of a release's first sample, apart from the one that `fit` was given."""
    # Derived, not the same: the first sample's randomness must not repeat that of the fit.
    digest = hashlib.sha256(f"first sample {release.seed}".encode()).digest()
    return _LEAST_DRAWN + int.from_bytes(digest) % _DRAWN


def add_first(session: Session, release: ReleaseRow, made: Made) -> None:
    """Record the first sample, which is stored in full already."""
    sample = SampleRow(
        id=first_id(release.id),
        release_id=release.id,
        principal_id=release.principal_id,
        kind="rows",
        rows=None,
        seed=first_seed(release),
        state="running",
        dropped=False,
        created_at=now(),
    )
    session.add(sample)
    _store(sample, made)


def visible(
    session: Session, principal: Principal, sample_id: str
) -> tuple[SampleRow, ReleaseRow, DatasetRow]:
    """The sample, its release and dataset; `NotFound` unless the principal sees the release."""
    found = repository.visible_sample(session, principal, sample_id)
    if found is None:
        raise NotFound
    return found


def deletable(session: Session, principal: Principal, sample_id: str) -> SampleRow:
    """The sample, for who asked for it and the dataset's custodian.

    Raises `Forbidden` for others who see it, who may be using it, and `NotFound` otherwise.
    """
    sample, _, dataset = visible(session, principal, sample_id)
    if sample.principal_id != principal.id and not is_custodian_of(principal, dataset):
        raise Forbidden("Only who asked for the sample and the dataset's custodian may do this.")
    return sample


def add(
    session: Session,
    release: ReleaseRow,
    *,
    principal_id: str,
    kind: Kind,
    rows: int | None,
    seed: int | None,
    settings: Settings,
) -> SampleRow:
    """Queue another sample of a release that has published its results, for who asks for it."""
    sample = SampleRow(
        id=new_id("sm"),
        release_id=release.id,
        principal_id=principal_id,
        kind=kind,
        rows=rows,
        seed=new_seed() if seed is None else seed,
        state="queued",
        dropped=False,
        created_at=now(),
    )
    session.add(sample)
    session.flush()
    _enqueue(session, sample, release, settings)
    return sample


def check_rows(rows: int | None, most: int, settings: Settings) -> None:
    """Raise `Invalid` for more rows than one sample may have; `most` bounds the noisy count."""
    if rows is not None and rows > settings.max_sample_rows:
        raise Invalid.at(
            "/rows",
            f"A sample has at most {settings.max_sample_rows} rows.",
            "Ask for fewer rows; take several samples with different seeds for more.",
        )
    if rows is None and most > settings.max_sample_rows:
        raise Invalid.at(
            "/rows",
            f"The dataset may have more rows than the {settings.max_sample_rows} of a sample.",
            "State how many rows the sample should have.",
        )


def check_room(session: Session, principal_id: str, settings: Settings) -> None:
    """Raise `Conflict` where what the caller has stored takes all that is allowed."""
    if owned_bytes(session, principal_id) >= settings.max_stored_bytes:
        raise Conflict(
            f"Your tables, models and samples take {settings.max_stored_bytes} bytes,"
            " the most allowed. Delete samples that are not needed any more."
        )


def _enqueue(session: Session, sample: SampleRow, release: ReleaseRow, settings: Settings) -> None:
    jobs.enqueue(
        session,
        kind="sample",
        subject_id=sample.id,
        dataset_id=release.dataset_id,
        settings=settings,
    )


def started(session: Session, sample_id: str) -> None:
    """A worker claimed the sample's job."""
    sample = repository.sample(session, sample_id)
    own(session, sample.id, sample.principal_id)
    if sample.state == "queued":
        sample.state = "running"


def succeeded(session: Session, sample_id: str, made: Made) -> None:
    """The rows are stored in full and can be downloaded."""
    _store(repository.sample(session, sample_id), made)


def failed(session: Session, sample_id: str) -> None:
    """The rows could not be made."""
    sample = repository.sample(session, sample_id)
    if sample.state != "deleted":
        sample.state, sample.finished_at = "failed", now()


def delete(session: Session, sample: SampleRow) -> None:
    """Delete a sample permanently. The caller deletes its bytes afterwards."""
    # First the job, so that no worker writes bytes for a sample that is gone.
    jobs.cancel(session, sample.id)
    sample.state, sample.dropped, sample.size_bytes = "deleted", True, None
    sample.repairs = None


def remake(session: Session, sample: SampleRow, release: ReleaseRow, settings: Settings) -> None:
    """Queue a sample whose rows are gone; the same seed gives the same rows."""
    if sample.state == "succeeded":
        sample.state, sample.dropped, sample.size_bytes = "queued", True, None
        _enqueue(session, sample, release, settings)


def drop_expired(session: Session, settings: Settings, limit: int = 100) -> list[str]:
    """Mark expired samples as dropped; returns their ids, so that the caller deletes the bytes."""
    if settings.sample_ttl_s is None:
        return []
    moment = now() - timedelta(seconds=settings.sample_ttl_s)
    expired = repository.samples_finished_before(session, moment, limit)
    for sample in expired:
        sample.dropped, sample.size_bytes = True, None
    return [sample.id for sample in expired]


def _store(sample: SampleRow, made: Made) -> None:
    # Deleted while its rows were being made: the deletion stands.
    if sample.state == "deleted":
        return
    sample.rows = made.rows
    sample.size_bytes, sample.content_sha256 = made.size_bytes, made.content_sha256
    sample.repairs = None if made.repairs is None else made.repairs.to_json()
    sample.state, sample.dropped, sample.finished_at = "succeeded", False, now()
