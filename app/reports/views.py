"""How a report is shown, and to whom which part.

What everyone but the custodian reads depends only on the release. It is the same whether an exact
part was never requested, is being made, was made, or failed.
"""

from __future__ import annotations

from typing import cast

from sqlalchemy.orm import Session

from app.access.permission import is_custodian_of
from app.database import Database
from app.datasets.models import DatasetRow
from app.releases import repository as releases
from app.releases import results, samples
from app.releases import views as release_views
from app.releases.models import ReleaseRow
from app.reports import repository, service
from app.reports.models import ReportRow
from app.reports.schemas import Exact, Expected, Public, ReportOut, ReportState
from app.security.principals import Principal
from app.settings import Settings
from app.storage.encryption import Keyring

FAILURE = "The exact part could not be made. Request it again, or read the detail."


def report(
    session: Session,
    database: Database,
    settings: Settings,
    principal: Principal,
    release: ReleaseRow,
    dataset: DatasetRow,
) -> ReportOut:
    """The report of a published release. Raises `NotReady` or `Conflict` for other releases."""
    results.check_published(release)
    made = None
    if is_custodian_of(principal, dataset):
        made = repository.of_release(session, release.id)
    # The same path for everyone else and for a custodian without an exact part: no field can
    # differ.
    if made is None:
        return _shown(session, release)
    exact = None
    if made.state == "succeeded":
        exact = service.exact_figures(database, settings, dataset, made)
    detail = release_views.private_detail(session, Keyring(settings), dataset, made.id)
    return _shown(session, release, made, exact, detail)


def _shown(
    session: Session,
    release: ReleaseRow,
    made: ReportRow | None = None,
    exact: Exact | None = None,
    private_detail: str | None = None,
) -> ReportOut:
    return ReportOut(
        release_id=release.id,
        dataset_id=release.dataset_id,
        state="succeeded" if made is None else cast(ReportState, made.state),
        public=_public(session, release),
        exact=exact,
        failure=FAILURE if made is not None and made.state == "failed" else None,
        private_detail=private_detail,
        created_at=None if made is None else made.created_at,
        finished_at=None if made is None else made.finished_at,
    )


def _public(session: Session, release: ReleaseRow) -> Public:
    first = releases.sample(session, samples.first_id(release.id))
    return Public(
        expected_errors=[
            Expected(
                columns=stated["columns"],
                distance=min(stated["distance"], 1.0),
                confidence=stated["confidence"],
            )
            for stated in release.expected_errors or []
        ],
        repairs=release_views.repairs(first),
    )
