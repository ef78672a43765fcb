"""Who sees a release besides its requester and the dataset's custodian.

The custodian decides, of any release of the dataset: what a release published is differentially
private whoever reads it. Its requester may ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access.permission import is_custodian_of
from app.datasets.models import DatasetRow
from app.problems import Forbidden
from app.releases import results, service
from app.releases.models import ReleaseRow
from app.releases.schemas import Visibility
from app.security import audit
from app.security.principals import Principal


@dataclass(frozen=True, slots=True)
class Settled:
    """A release after the request; `decided` unless it now waits for the custodian."""

    release: ReleaseRow
    dataset: DatasetRow
    decided: bool


def put(session: Session, principal: Principal, release_id: str, wanted: Visibility) -> Settled:
    """Set it as the custodian, or record what the requester asks for; repeating changes nothing.

    Raises `Forbidden` for others who see the release, `NotReady` or `Conflict` for a release that
    has published nothing.
    """
    release, dataset = service.visible(session, principal, release_id)
    decides = is_custodian_of(principal, dataset)
    if not decides and release.principal_id != principal.id:
        raise Forbidden("Only the release's requester and the dataset's custodian may do this.")
    results.check_published(release)
    if decides:
        decide(session, principal, release, wanted)
    else:
        _ask(session, principal, release, wanted)
    return Settled(release, dataset, decides)


def decide(session: Session, principal: Principal, release: ReleaseRow, wanted: Visibility) -> None:
    """Set the visibility of a published release as its custodian, with an entry in the audit log
    where this changes or answers anything."""
    before, asked = release.visibility, release.visibility_requested
    # Also a decision that changes nothing answers what was asked.
    release.visibility, release.visibility_requested = wanted, None
    if before != wanted or asked is not None:
        _audit(
            session,
            principal,
            "release.visibility",
            release,
            {"from": before, "to": wanted, "requested": asked},
        )


def _ask(session: Session, principal: Principal, release: ReleaseRow, wanted: Visibility) -> None:
    # To ask for what is already so takes the request back.
    asked = None if wanted == release.visibility else wanted
    if asked != release.visibility_requested:
        release.visibility_requested = asked
        _audit(session, principal, "release.visibility_requested", release, {"requested": asked})


def _audit(
    session: Session,
    principal: Principal,
    action: str,
    release: ReleaseRow,
    detail: dict[str, Any],
) -> None:
    # The dataset is the subject, as of grants and budgets, so that its custodian reads the entry.
    audit.record(
        session,
        principal_id=principal.id,
        action=action,
        subject=release.dataset_id,
        detail={"release_id": release.id, **detail},
    )
