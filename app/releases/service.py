"""The life of a release: what its job reports, how it ends, how it is cancelled.

queued -> running -> succeeded | failed
queued -> cancelled;  queued | running -> cancelling -> cancelled | failed

A release is still queued in the moment between the claim of its job and the job's start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.access.permission import is_custodian_of
from app.database import now
from app.datasets.models import DatasetRow
from app.engine.method import ExpectedError
from app.engine.privacy.loss import Charge
from app.engine.sandbox.protocol import expected_error_to_json
from app.ledger import admission
from app.ledger.entries import AccountSuspended
from app.problems import Conflict, Forbidden, NotFound
from app.queue import jobs
from app.releases import events, repository, samples
from app.releases.models import ReleaseRow
from app.security.principals import Principal
from app.storage.blobs import own

# From each state, the states that may follow. Terminal states have no entry.
_NEXT: Mapping[str, frozenset[str]] = {
    "queued": frozenset({"running", "cancelling", "cancelled", "failed"}),
    "running": frozenset({"cancelling", "cancelled", "failed", "succeeded"}),
    "cancelling": frozenset({"cancelled", "failed"}),
}


class IllegalTransition(RuntimeError):
    """A release cannot go from its state to that one."""

    def __init__(self, state: str, to: str) -> None:
        super().__init__(f"a release does not go from {state} to {to}")


def visible(
    session: Session, principal: Principal, release_id: str
) -> tuple[ReleaseRow, DatasetRow]:
    """The release and its dataset, for those who may see it.

    These are its requester, the dataset's custodian, and those it is shared with. Raises `NotFound`
    for all others.
    """
    found = repository.visible_release(session, principal, release_id)
    if found is None:
        raise NotFound
    return found


def certified(
    session: Session, principal: Principal, release_id: str
) -> tuple[ReleaseRow, DatasetRow]:
    """The release and its dataset, for those who may read its certificate.

    These are all who see the release, and the dataset's auditors. Raises `NotFound` for others.
    """
    found = repository.certified_release(session, principal, release_id)
    if found is None:
        raise NotFound
    return found


def started(session: Session, release_id: str) -> None:
    """A worker claimed the release's job, for the first time or after another was lost."""
    release = repository.release(session, release_id)
    for collection in (release.id, samples.first_id(release.id)):
        own(session, collection, release.principal_id)
    if release.state == "queued":
        release.started_at = now()
        _enter(session, release, "running")


def progressed(session: Session, release_id: str, reports: Sequence[events.Report]) -> None:
    """Record what the run reported since the last time."""
    events.reported(session, repository.release(session, release_id), reports)


def succeeded(
    session: Session,
    release_id: str,
    *,
    certificate: Mapping[str, Any],
    sample: samples.Made,
    expected_errors: Sequence[ExpectedError] = (),
    statement: Mapping[str, Any] | None = None,
) -> None:
    """Publish: model, certificate, statement and the first sample are stored in full."""
    release = repository.release(session, release_id)
    dataset = repository.dataset(session, release.dataset_id)
    assert dataset is not None
    # A dataset can be renamed later; what was certified keeps the name that it had.
    named = {"dataset": {"id": dataset.id, "name": dataset.name}}
    release.certificate = {**named, **certificate}
    release.ledger_head = repository.account(session, release.account_id).entries
    release.expected_errors = [expected_error_to_json(each) for each in expected_errors]
    release.statement = None if statement is None else dict(statement)
    samples.add_first(session, release, sample)
    release.progress, release.stage = 1.0, "done"
    _end(session, release, "succeeded")


def failed(session: Session, release_id: str) -> None:
    """The run ended for good without a result; the charge stands."""
    release = repository.release(session, release_id)
    release.stage = "failed"
    _end(session, release, "failed")


def cancelled(session: Session, release_id: str, refunded: bool = False) -> None:
    """The run was stopped, or never began; nothing of it is published."""
    release = repository.release(session, release_id)
    release.stage, release.refunded = "cancelled", refunded
    _end(session, release, "cancelled")


def cancel(session: Session, principal: Principal, release_id: str) -> ReleaseRow:
    """Stop a release; the charge is given back only if no worker ever claimed it.

    Asking again changes nothing. Raises `Conflict` for a release that has finished, and `Forbidden`
    for those whom it is only shared with.
    """
    release, dataset = visible(session, principal, release_id)
    if release.principal_id != principal.id and not is_custodian_of(principal, dataset):
        raise Forbidden("Only the release's requester and the dataset's custodian may do this.")
    if release.state not in ("cancelling", "cancelled"):
        _stop(session, release, principal.id)
    if release.state not in ("cancelling", "cancelled"):
        raise Conflict(f"The release has {release.state}; it cannot be cancelled any more.")
    return release


def cancel_all(session: Session, dataset_id: str, principal_id: str) -> None:
    """Stop every release of a dataset that has not finished, as its custodian's cancel does."""
    for release in repository.active_releases(session, dataset_id):
        _stop(session, release, principal_id)


def forget_causes(session: Session, dataset_id: str) -> None:
    """Erase why a dataset's jobs failed, which only its custodian could read."""
    repository.forget_details(session, dataset_id)


def purge(session: Session, dataset_id: str) -> list[str]:
    """Withdraw what a dataset's releases published; the charges and the ledger stay.

    Returns the blob collections (models and samples) that the caller must delete after.
    """
    collections = repository.collections_of(session, dataset_id)
    # First the jobs, so that no worker writes bytes for a sample that is gone. Bytes go last: while
    # they still exist, no row points to them any more.
    for sample_id in jobs.waiting_or_running(session, dataset_id, "sample"):
        jobs.cancel(session, sample_id)
    repository.withdraw(session, dataset_id)
    return collections


def _stop(session: Session, release: ReleaseRow, principal_id: str) -> None:
    if release.state not in repository.ACTIVE:
        return
    outcome = jobs.cancel(session, release.id)
    if outcome.state == "cancelled":
        # Never after a claim: a worker that was killed may already have seen noisy answers.
        refunded = outcome.refundable and _refunded(session, release, principal_id)
        cancelled(session, release.id, refunded)
    elif outcome.state == "cancelling" and release.state != "cancelling":
        _enter(session, release, "cancelling")


def _refunded(session: Session, release: ReleaseRow, principal_id: str) -> bool:
    """Give the charge back, unless the account's ledger does not add up.

    Nothing is booked on such an account, but stopping a release and erasing a dataset still work.
    """
    try:
        admission.refund(
            session,
            account_id=release.account_id,
            grant_id=release.grant_id,
            dataset_id=release.dataset_id,
            release_id=release.id,
            principal_id=principal_id,
            charge=Charge(release.charge_primary, release.charge_delta),
        )
    except AccountSuspended:
        return False
    return True


def _enter(session: Session, release: ReleaseRow, state: str) -> None:
    if state not in _NEXT.get(release.state, frozenset()):
        raise IllegalTransition(release.state, state)
    release.state = state
    events.state_changed(session, release)


def _end(session: Session, release: ReleaseRow, state: str) -> None:
    _enter(session, release, state)
    release.finished_at = now()
    events.ended(session, release)
