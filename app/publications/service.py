"""Use-cases of publications: publish a release, read what is published, withdraw it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from sqlalchemy.orm import Session

from app.access.permission import is_custodian_of
from app.bundles.bundle import open_bundle
from app.bundles.contents import Subject
from app.database import Database, format_time, new_id, now
from app.datasets.models import DatasetRow
from app.idempotency import Attempt, find_replay, remember
from app.problems import Conflict, Forbidden, Gone, Invalid, NotFound
from app.publications import archive, repository
from app.publications.archive import Listing
from app.publications.models import PublicationRow
from app.publications.repository import Found
from app.publications.schemas import CitationIO, PublicationIn
from app.releases import repository as releases
from app.releases import results, visibility
from app.releases.models import ReleaseRow
from app.releases.samples import check_room
from app.security import audit
from app.security.principals import Principal
from app.settings import Settings
from app.storage.blobs import BlobMissing, BlobStore, own
from app.storage.encryption import Keyring

CREATED = 201


@dataclass(frozen=True, slots=True)
class Accepted:
    """A publication, just made or (`replayed`) made by an earlier attempt."""

    publication_id: str
    replayed: bool


def publish(
    database: Database,
    keyring: Keyring,
    settings: Settings,
    principal: Principal,
    form: PublicationIn,
    attempt: Attempt | None,
) -> Accepted:
    """Publish samples of a release, for the custodian of its dataset.

    The archive is made and stored first; then the release becomes visible to everybody, and the
    publication can be read. Raises `NotFound`, `Forbidden`, `Invalid`, `NotReady` and `Conflict`.
    """
    with database.write() as session:
        replay = find_replay(session, attempt)
        if replay is not None:
            return Accepted(replay.resource_id, replayed=True)
        row = _drafted(session, principal, form)
        check_room(session, principal.id, settings)
        own(session, row.id, principal.id)
    try:
        listing = _stored(database, keyring, settings, row, bool(form.show_budget))
        with database.write() as session:
            return _completed(session, principal, row.id, listing, attempt)
    finally:
        _drop_unfinished(database, row.id)


def _stored(
    database: Database,
    keyring: Keyring,
    settings: Settings,
    row: PublicationRow,
    shows_totals: bool,
) -> Listing:
    def find(session: Session) -> Subject:
        release = releases.release(session, row.release_id)
        dataset = session.get_one(DatasetRow, release.dataset_id)
        citation = CitationIO.model_validate(row.citation).to_citation(row)
        return Subject(release, dataset, row.samples, citation, shows_totals)

    digest = hashlib.sha256()

    def hashed(pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            digest.update(piece)
            yield piece

    bundle = open_bundle(database, keyring, settings, find)
    BlobStore(database).write(row.id, archive.PART, hashed(bundle.pieces()))
    return archive.listed(archive.opened(database, row.id), digest.hexdigest())


def _completed(
    session: Session,
    principal: Principal,
    publication_id: str,
    listing: Listing,
    attempt: Attempt | None,
) -> Accepted:
    # Another try of the same request may have been faster.
    replay = find_replay(session, attempt)
    if replay is not None:
        return Accepted(replay.resource_id, replayed=True)
    row, release, _ = _found(session, publication_id)
    # While the archive was made, the dataset may have been erased with its releases.
    results.check_published(release)
    if len(releases.made_samples(session, release.id, row.samples)) < len(row.samples):
        raise Conflict("A sample was deleted while it was being published.")
    row.state, row.listing = "published", listing.to_json()
    visibility.decide(session, principal, release, "public")
    audit.record(
        session,
        principal_id=principal.id,
        action="publication.created",
        subject=release.dataset_id,
        detail={
            "publication_id": row.id,
            "release_id": release.id,
            "samples": row.samples,
            "bundle_sha256": listing.sha256,
        },
    )
    remember(session, attempt, CREATED, row.id)
    return Accepted(row.id, replayed=False)


def _drop_unfinished(database: Database, publication_id: str) -> None:
    """Whatever ended the making, half a publication must not stay."""
    with database.read() as session:
        row = session.get(PublicationRow, publication_id)
        if row is not None and row.state != "publishing":
            return
    BlobStore(database).delete(publication_id)
    with database.write() as session:
        repository.forget_unfinished(session, publication_id)


def withdraw(session: Session, principal: Principal, publication_id: str, reason: str) -> None:
    """Take a publication back, for the custodian of its dataset; a tombstone stays.

    Withdrawing again changes nothing. Copies that were downloaded stay what they are.
    """
    row, release, dataset = _found(session, publication_id)
    if row.state == "publishing":
        raise _unknown()
    if not is_custodian_of(principal, dataset):
        raise Forbidden("Only the dataset's custodian may do this.")
    if row.state == "published":
        _withdraw(session, row, release.dataset_id, reason, principal.id)


def withdraw_of_dataset(session: Session, dataset_id: str, principal_id: str) -> list[str]:
    """The dataset's releases are withdrawn, and with them all that was published of them.

    Returns the blob collections that the caller must delete after.
    """
    rows = repository.published_of_dataset(session, dataset_id)
    for row in rows:
        reason = "The dataset was erased together with its releases."
        _withdraw(session, row, dataset_id, reason, principal_id)
    return [row.id for row in rows]


def expect_unpublished(session: Session, release_id: str, sample_id: str | None = None) -> None:
    """Raises `Conflict` where the release, or the sample of it, is part of a publication."""
    for row in repository.published_of_release(session, release_id):
        if sample_id is None or sample_id in row.samples:
            what = "release" if sample_id is None else "sample"
            raise Conflict(f"The {what} is published as {row.id}. Withdraw that publication first.")


def published(session: Session, publication_id: str) -> Found:
    """A publication that can be read. Raises `NotFound`, or `Gone` once it was withdrawn."""
    row, release, dataset = _found(session, publication_id)
    if row.state == "published":
        return row, release, dataset
    if row.withdrawn_at is None:
        raise _unknown()
    ((_, newest),) = versions_beside(session, [row])
    raise Gone(
        f"The publication was withdrawn: {row.reason}",
        extra={
            "publication_title": CitationIO.model_validate(row.citation).title,
            "version": row.version,
            "published_at": format_time(row.created_at),
            "withdrawn_at": format_time(row.withdrawn_at),
            "reason": row.reason,
            "superseded_by": newest,
        },
    )


def opened(database: Database, publication_id: str) -> BinaryIO:
    """The archive of a publication that was found, seekable. Raises `Gone` where it was withdrawn
    since."""
    try:
        return archive.opened(database, publication_id)
    except BlobMissing:
        with database.read() as session:
            published(session, publication_id)
        raise


def versions_beside(
    session: Session, rows: list[PublicationRow]
) -> list[tuple[str | None, str | None]]:
    """For each publication the published version before it, and the newest of its series if that is
    a later one."""
    of_series: dict[str, list[PublicationRow]] = {}
    for each in repository.published_in(session, [row.series_id for row in rows]):
        of_series.setdefault(each.series_id, []).append(each)
    beside = []
    for row in rows:
        published = of_series.get(row.series_id, [])
        before = [each.id for each in published if each.version < row.version]
        after = [each.id for each in published if each.version > row.version]
        beside.append((before[-1] if before else None, after[-1] if after else None))
    return beside


def listing_of(row: PublicationRow) -> Listing:
    assert row.listing is not None
    return Listing.from_json(row.listing)


def _drafted(session: Session, principal: Principal, form: PublicationIn) -> PublicationRow:
    """The publication as it is being made. Its version is taken from now on."""
    seen = releases.visible_release(session, principal, form.release)
    if seen is None:
        raise Invalid.at(
            "/release",
            "There is no such release, or it is not yours.",
            "Send the id of a release of one of your datasets.",
        )
    release, dataset = seen
    if not is_custodian_of(principal, dataset):
        raise Forbidden("Only the dataset's custodian may publish a release of it.")
    results.check_published(release)
    samples = _samples(session, release, form.samples)
    publication_id = new_id("pb")
    series_id, version = _series(session, principal, form.supersedes, publication_id)
    citation = CitationIO(**{name: getattr(form, name) for name in CitationIO.model_fields})
    row = PublicationRow(
        id=publication_id,
        series_id=series_id,
        version=version,
        release_id=release.id,
        principal_id=principal.id,
        state="publishing",
        citation=citation.model_dump(mode="json"),
        words=_words(citation),
        samples=samples,
        created_at=now(),
    )
    session.add(row)
    session.flush()
    return row


def _samples(session: Session, release: ReleaseRow, wanted: list[str] | None) -> list[str]:
    """The ids of the samples to publish."""
    if wanted is None:
        first = releases.samples_of(session, [release.id])[release.id][:1]
        if not first or first[0].state != "succeeded":
            raise Conflict("The release has no sample; make one, and name it in `samples`.")
        return [first[0].id]
    made = {sample.id for sample in releases.made_samples(session, release.id, wanted)}
    for place, sample_id in enumerate(wanted):
        if sample_id not in made or sample_id in wanted[:place]:
            raise Invalid.at(
                f"/samples/{place}",
                "This is no finished sample of the release, or it is named twice.",
                "Send ids of samples of the release whose state is `succeeded`.",
            )
    return wanted


def _series(
    session: Session, principal: Principal, supersedes: str | None, publication_id: str
) -> tuple[str, int]:
    """The series that a publication belongs to, and its version there."""
    if supersedes is None:
        return publication_id, 1
    seen = repository.found(session, supersedes)
    if seen is None or seen[0].state == "publishing" or not is_custodian_of(principal, seen[2]):
        raise Invalid.at(
            "/supersedes",
            "There is no such publication, or it is not yours.",
            "Send the id of a publication of yours, or leave it out for a series of its own.",
        )
    before = seen[0]
    if before.version != repository.last_version(session, before.series_id):
        raise Invalid.at(
            "/supersedes",
            "The publication is not the newest of its series, or the next one is being made.",
            "Send the id of the newest one.",
        )
    return before.series_id, before.version + 1


def _found(session: Session, publication_id: str) -> Found:
    seen = repository.found(session, publication_id)
    if seen is None:
        raise _unknown()
    return seen


def _unknown() -> NotFound:
    return NotFound("There is no such publication.")


def _withdraw(
    session: Session, row: PublicationRow, dataset_id: str, reason: str, principal_id: str
) -> None:
    row.state, row.withdrawn_at, row.reason = "withdrawn", now(), reason
    audit.record(
        session,
        principal_id=principal_id,
        action="publication.withdrawn",
        subject=dataset_id,
        detail={"publication_id": row.id, "reason": reason},
    )


def _words(citation: CitationIO) -> str:
    creators = [creator.name for creator in citation.creators]
    return "\n".join([citation.title, citation.abstract, *creators, *citation.keywords]).casefold()
