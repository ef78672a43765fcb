"""Queries on releases, their journal and their samples."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    and_,
    cast,
    delete,
    insert,
    null,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.orm import Session

from app.datasets.models import DatasetRow
from app.ledger.models import AccountRow, GrantRow
from app.pages import Place, created_after
from app.queue.models import JobRow
from app.releases.models import JournalRow, ReleaseRow, SampleRow
from app.security.principals import Principal
from app.storage.models import ChunkRow

_ADD = insert(ReleaseRow.__table__)  # type: ignore[arg-type]

# Values bound in one statement.
_MOST_IDS = 50
ACTIVE = ("queued", "running", "cancelling")
# Samples that are shown with a release; further ones are on the pages of its list of samples.
MOST_SHOWN = 100
_RELEASES_AT_ONCE = 20


def add(session: Session, release: ReleaseRow) -> None:
    """Store a new release at once; the session does not keep it."""
    stated = {name: getattr(release, name) for name in _ADD.table.c.keys()}  # noqa: SIM118
    session.execute(_ADD, {name: value for name, value in stated.items() if value is not None})


def release(session: Session, release_id: str) -> ReleaseRow:
    """A release that is known to exist."""
    return session.get_one(ReleaseRow, release_id)


def sample(session: Session, sample_id: str) -> SampleRow:
    """A sample that is known to exist."""
    return session.get_one(SampleRow, sample_id)


def account(session: Session, account_id: str) -> AccountRow:
    return session.get_one(AccountRow, account_id)


def dataset(session: Session, dataset_id: str) -> DatasetRow | None:
    return session.get(DatasetRow, dataset_id)


def visible_release(
    session: Session, principal: Principal, release_id: str
) -> tuple[ReleaseRow, DatasetRow] | None:
    """The release and its dataset, for those who may see it."""
    found = session.execute(_visible(principal).where(ReleaseRow.id == release_id)).first()
    return None if found is None else (found[0], found[1])


def certified_release(
    session: Session, principal: Principal, release_id: str
) -> tuple[ReleaseRow, DatasetRow] | None:
    """The release and its dataset, for those who may read its certificate."""
    query = _joined().where(_sees_certificate(principal), ReleaseRow.id == release_id)
    found = session.execute(query).first()
    return None if found is None else (found[0], found[1])


def visible_among(session: Session, principal: Principal, release_ids: Collection[str]) -> set[str]:
    """Those of these releases that the principal may see."""
    ids = sorted(release_ids)
    found: set[str] = set()
    for first in range(0, len(ids), _MOST_IDS):
        some = ReleaseRow.id.in_(ids[first : first + _MOST_IDS])
        query = _visible(principal).with_only_columns(ReleaseRow.id)
        found.update(session.scalars(query.where(some)))
    return found


def visible_releases(
    session: Session,
    principal: Principal,
    *,
    dataset_id: str | None,
    state: str | None,
    before: Place | None,
    limit: int,
) -> list[tuple[ReleaseRow, DatasetRow]]:
    """Newest first, from beyond `before`."""
    query = _visible(principal)
    if dataset_id is not None:
        query = query.where(ReleaseRow.dataset_id == dataset_id)
    if state is not None:
        query = query.where(ReleaseRow.state == state)
    if before is not None:
        moment, last_id = before
        # Two releases can have the same time; the id decides then, so that pages neither repeat nor
        # skip.
        older = and_(ReleaseRow.created_at == moment, ReleaseRow.id < last_id)
        query = query.where(or_(ReleaseRow.created_at < moment, older))
    query = query.order_by(ReleaseRow.created_at.desc(), ReleaseRow.id.desc()).limit(limit)
    return [(found[0], found[1]) for found in session.execute(query)]


def active_releases(session: Session, dataset_id: str) -> list[ReleaseRow]:
    """Releases of a dataset that have not ended."""
    query = select(ReleaseRow).where(
        ReleaseRow.dataset_id == dataset_id, ReleaseRow.state.in_(ACTIVE)
    )
    return list(session.scalars(query))


def newest_job(session: Session, subject_id: str) -> JobRow | None:
    query = select(JobRow).where(JobRow.subject_id == subject_id)
    return session.scalar(query.order_by(JobRow.created_at.desc(), JobRow.id).limit(1))


def forget_details(session: Session, dataset_id: str) -> None:
    """Erase the private details of all jobs on a dataset."""
    session.execute(
        update(JobRow).where(JobRow.dataset_id == dataset_id).values(private_detail=None)
    )


def journal(session: Session, release_id: str) -> list[JournalRow]:
    """Questions and answers of a release in the order they were asked."""
    query = select(JournalRow).where(JournalRow.release_id == release_id)
    return list(session.scalars(query.order_by(JournalRow.number)))


def samples_of(session: Session, release_ids: Sequence[str]) -> dict[str, list[SampleRow]]:
    """The first `MOST_SHOWN` samples of each release of a page, oldest first, without those that
    were deleted."""
    found: dict[str, list[SampleRow]] = {release_id: [] for release_id in release_ids}
    for first in range(0, len(release_ids), _RELEASES_AT_ONCE):
        some = release_ids[first : first + _RELEASES_AT_ONCE]
        # A limit for each, so that the index gives the first ones and the rest is not looked at.
        shown = union_all(*(select(_first_samples(each).subquery().c.id) for each in some))
        query = select(SampleRow).where(SampleRow.id.in_(shown))
        for row in session.scalars(query.order_by(SampleRow.created_at, SampleRow.id)):
            found[row.release_id].append(row)
    return found


def _first_samples(release_id: str) -> Select[str]:
    return (
        select(SampleRow.id)
        .where(SampleRow.release_id == release_id, SampleRow.state != "deleted")
        .order_by(SampleRow.created_at, SampleRow.id)
        .limit(MOST_SHOWN)
    )


def collections_of(session: Session, dataset_id: str) -> list[str]:
    """Blob collections of a dataset's releases: models and samples."""
    releases = select(ReleaseRow.id).where(ReleaseRow.dataset_id == dataset_id)
    samples = (
        select(SampleRow.id)
        .join(ReleaseRow, ReleaseRow.id == SampleRow.release_id)
        .where(ReleaseRow.dataset_id == dataset_id)
    )
    return [*session.scalars(releases), *session.scalars(samples)]


def withdraw(session: Session, dataset_id: str) -> None:
    """Delete what a dataset's releases published: certificates, journals and samples.

    Nothing of them is left to share, so they are their requester's and the custodian's again.
    """
    releases = select(ReleaseRow.id).where(ReleaseRow.dataset_id == dataset_id)
    session.execute(
        update(ReleaseRow)
        .where(ReleaseRow.dataset_id == dataset_id)
        .values(
            certificate=null(),
            expected_errors=null(),
            statement=null(),
            visibility="requester",
            visibility_requested=None,
        )
    )
    session.execute(delete(JournalRow).where(JournalRow.release_id.in_(releases)))
    session.execute(
        update(SampleRow)
        .where(SampleRow.release_id.in_(releases))
        .values(state="deleted", dropped=True, size_bytes=None, repairs=null())
    )


def visible_sample(
    session: Session, principal: Principal, sample_id: str
) -> tuple[SampleRow, ReleaseRow, DatasetRow] | None:
    found = session.execute(
        select(SampleRow, ReleaseRow, DatasetRow)
        .join(ReleaseRow, ReleaseRow.id == SampleRow.release_id)
        .join(DatasetRow, DatasetRow.id == ReleaseRow.dataset_id)
        .where(SampleRow.id == sample_id, SampleRow.state != "deleted", _sees(principal))
    ).first()
    return None if found is None else (found[0], found[1], found[2])


def made_samples(session: Session, release_id: str, sample_ids: Collection[str]) -> list[SampleRow]:
    """Those of these samples of the release that were made and not deleted, oldest first."""
    query = select(SampleRow).where(
        SampleRow.id.in_(sample_ids),
        SampleRow.release_id == release_id,
        SampleRow.content_sha256.is_not(None),
        SampleRow.state != "deleted",
    )
    return list(session.scalars(query.order_by(SampleRow.created_at, SampleRow.id)))


def page_of_samples(
    session: Session, release_id: str, after: Place | None, limit: int
) -> list[SampleRow]:
    """Oldest first, from beyond `after`, without those that were deleted."""
    query = select(SampleRow).where(
        SampleRow.release_id == release_id, SampleRow.state != "deleted"
    )
    if after is not None:
        query = query.where(created_after(SampleRow, after))
    return list(session.scalars(query.order_by(SampleRow.created_at, SampleRow.id).limit(limit)))


def samples_finished_before(session: Session, moment: datetime, limit: int) -> list[SampleRow]:
    """Samples whose rows are stored since before `moment`."""
    query = select(SampleRow).where(
        SampleRow.state == "succeeded",
        SampleRow.dropped.is_(False),
        SampleRow.finished_at < moment,
    )
    return list(session.scalars(query.order_by(SampleRow.finished_at).limit(limit)))


def _visible(principal: Principal) -> Select[ReleaseRow, DatasetRow]:
    return _joined().where(_sees(principal))


def _joined() -> Select[ReleaseRow, DatasetRow]:
    return select(ReleaseRow, DatasetRow).join(DatasetRow, DatasetRow.id == ReleaseRow.dataset_id)


# Part of every query, so that a release that the caller may not see looks like one that does not
# exist (404, never 403).
def _sees(principal: Principal) -> ColumnElement[bool]:
    """Whether the principal sees a release with all that it published."""
    seen = [ReleaseRow.principal_id == principal.id, ReleaseRow.visibility == "public"]
    if principal.is_custodian:
        seen.append(DatasetRow.owner_id == principal.id)
    if principal.is_analyst:
        seen.append(and_(ReleaseRow.visibility == "grantees", _granted(principal, "analyst")))
    return or_(*seen)


def _sees_certificate(principal: Principal) -> ColumnElement[bool]:
    """Whether the principal sees a release, or audits its dataset: a certificate holds no data."""
    seen = _sees(principal)
    return or_(seen, _granted(principal, "auditor")) if principal.is_auditor else seen


def _granted(principal: Principal, role: str) -> ColumnElement[bool]:
    """Whether an active grant on the release's dataset gives the principal this role."""
    return (
        select(GrantRow.id)
        .where(
            GrantRow.dataset_id == ReleaseRow.dataset_id,
            GrantRow.principal_id == principal.id,
            GrantRow.role == role,
            GrantRow.state == "active",
        )
        .exists()
    )


def leftovers(session: Session, collection: str | None = None) -> list[str]:
    """Releases and samples, or one alone, that have chunks but were withdrawn or dropped."""
    left = select(ChunkRow.collection)
    withdrawn = select(ReleaseRow.id).where(
        ReleaseRow.state.not_in(ACTIVE),
        # A value that was taken away is JSON's null, one that never was is SQL's.
        or_(ReleaseRow.certificate.is_(None), cast(ReleaseRow.certificate, String) == "null"),
        left.where(ChunkRow.collection == ReleaseRow.id).exists(),
    )
    dropped = select(SampleRow.id).where(
        SampleRow.state.in_(("succeeded", "deleted")),
        SampleRow.dropped,
        left.where(ChunkRow.collection == SampleRow.id).exists(),
    )
    if collection is not None:
        withdrawn = withdrawn.where(ReleaseRow.id == collection)
        dropped = dropped.where(SampleRow.id == collection)
    return [*session.scalars(withdrawn), *session.scalars(dropped)]
