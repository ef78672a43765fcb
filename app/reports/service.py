"""Use-cases of reports: request the exact part, store it, delete it.

queued -> running -> succeeded | failed

The public part is available with the release. Only the dataset's custodian may request, read and
delete the exact part, and it is erased with the dataset's rows.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access.permission import is_custodian_of
from app.database import Database, new_id, now
from app.datasets.models import DatasetRow
from app.idempotency import Attempt, find_replay, remember
from app.problems import Conflict, Forbidden, NotReady
from app.queue import jobs
from app.releases import results
from app.releases import service as releases
from app.releases.dictionaries import dictionary_of
from app.releases.models import ReleaseRow
from app.reports import repository
from app.reports.evaluation import form as choices
from app.reports.evaluation.form import ReportIn
from app.reports.models import ReportRow
from app.reports.schemas import Exact
from app.security import audit
from app.security.principals import Principal
from app.settings import Settings
from app.storage.blobs import BlobCorrupt, BlobMissing, BlobStore, delete_some
from app.storage.encryption import Cipher, Keyring, StorageKeyError
from app.storage.sealed import PADDED_BYTES

ACCEPTED = 202
# Name of the blob part that holds the exact figures, in the collection of their report.
EXACT = "exact"
_UNFINISHED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A report of the release, just queued or (`replayed`) queued by an earlier attempt."""

    release_id: str
    replayed: bool


def request(
    session: Session,
    principal: Principal,
    release_id: str,
    form: ReportIn,
    attempt: Attempt | None,
    settings: Settings,
) -> Accepted:
    """Queue the comparison; an earlier one of the release is deleted at once.

    Raises `Forbidden` for everyone but the custodian, `Conflict` for a release that published
    nothing or whose rows are erased, `Invalid` for choices that do not fit it, `NotReady` while
    it, or its report, is being made.
    """
    replay = find_replay(session, attempt)
    if replay is not None:
        # Before the checks below, which the report of the first request would fail.
        return Accepted(replay.resource_id, replayed=True)
    release, dataset = _for_custodian(session, principal, release_id)
    results.check_published(release)
    if dataset.state == "erased":
        raise Conflict("The dataset is erased: there are no rows to compare the release with.")
    if form.model_fields_set:
        schema = results.modelled(session, release, dictionary_of(dataset))
        choices.check(form, schema, _sampled(release))
    earlier = repository.of_release(session, release.id)
    if earlier is not None and earlier.state in _UNFINISHED:
        raise NotReady("A report of the release is already being made.", retry_after_s=2)
    if earlier is not None:
        _drop(session, earlier)
    _queue(session, release, form, settings)
    audit.record(
        session,
        principal_id=principal.id,
        action="report.request",
        subject=release.id,
        detail={},
    )
    remember(session, attempt, ACCEPTED, release.id)
    return Accepted(release.id, replayed=False)


def drop(session: Session, principal: Principal, release_id: str) -> bool:
    """Stop the comparison if it is running, and erase its figures; whether there were any.

    Raises `Forbidden` for everyone but the custodian.
    """
    release, _ = _for_custodian(session, principal, release_id)
    report = repository.of_release(session, release.id)
    if report is None:
        return False
    _drop(session, report)
    audit.record(
        session,
        principal_id=principal.id,
        action="report.delete",
        subject=release.id,
        detail={},
    )
    return True


def forget(session: Session, dataset_id: str) -> None:
    """Stop and erase every comparison with a dataset's rows."""
    for report in repository.of_dataset(session, dataset_id):
        _drop(session, report)


def exact_figures(
    database: Database, settings: Settings, dataset: DatasetRow, report: ReportRow
) -> Exact | None:
    """The figures of the comparison; None if they were erased in the meantime.

    Raises `Conflict` if they are encrypted with a key that the service was not started with, or
    if their stored bytes are damaged.
    """
    try:
        cipher = Keyring(settings).cipher(dataset.id, dataset.wrapped_key)
        stored = BlobStore(database).read_all(report.id, EXACT, cipher=cipher)
    except BlobMissing:
        return None
    except StorageKeyError:
        raise Conflict(
            "The exact part is encrypted with another master key than the service's."
        ) from None
    except BlobCorrupt:
        raise Conflict(
            "The exact part's stored bytes are damaged. Ask for the report again; the store needs"
            " `halftone verify`."
        ) from None
    return Exact.model_validate_json(stored)


def started(session: Session, report_id: str) -> None:
    """A worker claimed the report's job."""
    report = repository.get(session, report_id)
    if report is not None:
        report.state = "running"


def succeeded(
    session: Session, database: Database, report_id: str, exact: Exact, cipher: Cipher | None
) -> None:
    """Store the figures, encrypted like the dataset, in the caller's transaction."""
    report = repository.get(session, report_id)
    if report is None:
        return
    found = exact.model_dump_json().encode()
    # Blanks after JSON mean nothing. The length of exact figures depends on them.
    found = found.ljust(-(-len(found) // PADDED_BYTES) * PADDED_BYTES)
    # The caller's session holds the store's write lock; another unit of work would wait for it
    # forever.
    BlobStore(database).write(
        report_id, EXACT, [found], unit=lambda: nullcontext(session), cipher=cipher
    )
    report.state, report.finished_at = "succeeded", now()


def failed(session: Session, report_id: str) -> None:
    """The comparison failed or was stopped; nothing is done if it was deleted."""
    report = repository.get(session, report_id)
    if report is not None:
        report.state, report.finished_at = "failed", now()


def _for_custodian(
    session: Session, principal: Principal, release_id: str
) -> tuple[ReleaseRow, DatasetRow]:
    release, dataset = releases.visible(session, principal, release_id)
    if not is_custodian_of(principal, dataset):
        raise Forbidden("Only the dataset's custodian may do this.")
    return release, dataset


def _sampled(release: ReleaseRow) -> set[str] | None:
    """The columns of its sample; None for a release of before there were statements."""
    if release.statement is None:
        return None
    return {each["column"] for each in release.statement["columns"]}


def _queue(session: Session, release: ReleaseRow, form: ReportIn, settings: Settings) -> None:
    report = ReportRow(
        id=new_id("rp"),
        release_id=release.id,
        dataset_id=release.dataset_id,
        state="queued",
        choices=form.model_dump(mode="json", exclude_none=True) or None,
        created_at=now(),
    )
    session.add(report)
    session.flush()
    jobs.enqueue(
        session,
        kind="report",
        subject_id=report.id,
        dataset_id=release.dataset_id,
        settings=settings,
    )


def _drop(session: Session, report: ReportRow) -> None:
    # First the job, so that its worker cannot store figures afterwards.
    jobs.cancel(session, report.id)
    repository.forget_details(session, report.id)
    # In one transaction, unlike other blobs: exact figures are small, and no reader may see half.
    while delete_some(session, report.id):
        pass
    session.delete(report)
    session.flush()
