"""Reports: how good a release is, in a public part and one for the custodian's eyes alone."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from app.idempotency import Attempt
from app.releases import service as releases
from app.reports import service, views
from app.reports.schemas import ReportOut
from app.routers.dependencies import (
    Caller,
    DatabaseDep,
    ReadSession,
    SettingsDep,
    WriteSession,
    attempt_of,
)
from app.routers.description import refusing
from app.routers.idempotent import MADE_HEADERS, answer_made
from app.routers.paths import ReleaseId
from app.routers.wire import ExactRoute
from app.storage.reclaim import reclaim

router = APIRouter(prefix="/v1", tags=["reports"], route_class=ExactRoute)

ReportAttempt = Annotated[Attempt | None, Depends(attempt_of("reports.create"))]


@router.post(
    "/releases/{release_id}/report",
    status_code=service.ACCEPTED,
    operation_id="request_report",
    summary="Compare a release with the real table",
    responses={
        202: {"description": "Queued.", "headers": MADE_HEADERS},
        **refusing(403, 404, 409),
    },
)
def request_report(
    request: Request,
    response: Response,
    release_id: ReleaseId,
    principal: Caller,
    attempt: ReportAttempt,
    database: DatabaseDep,
    settings: SettingsDep,
    session: WriteSession,
) -> ReportOut:
    """The exact part of the report is made by a job, for the dataset's custodian alone.

    It costs no budget, since nobody but the custodian, who holds the table, reads it: do not
    publish it. An earlier one is dropped at once. 409 for a release that published nothing, while
    one is being made, and once the dataset is erased.
    """
    accepted = service.request(session, principal, release_id, attempt, settings)
    answer_made(
        request,
        response,
        f"/v1/releases/{accepted.release_id}/report",
        replayed=accepted.replayed,
    )
    release, dataset = releases.visible(session, principal, accepted.release_id)
    return views.report(session, database, settings, principal, release, dataset)


@router.get(
    "/releases/{release_id}/report",
    operation_id="get_report",
    summary="The report of a release",
    responses=refusing(404, 409),
)
def get_report(
    release_id: ReleaseId,
    principal: Caller,
    database: DatabaseDep,
    settings: SettingsDep,
    session: ReadSession,
) -> ReportOut:
    """`public` for everyone who sees the release, from the moment that it has succeeded; `exact`
    for the dataset's custodian alone, once it was asked for.

    Nobody else can see whether there is an exact part. 409 for a release that published nothing.
    """
    release, dataset = releases.visible(session, principal, release_id)
    return views.report(session, database, settings, principal, release, dataset)


@router.delete(
    "/releases/{release_id}/report",
    status_code=204,
    operation_id="delete_report",
    summary="Drop the exact part of a report",
    responses={204: {"description": "There is no exact part now."}, **refusing(403, 404)},
)
def delete_report(release_id: ReleaseId, principal: Caller, database: DatabaseDep) -> Response:
    """Stops the comparison, if it runs, and erases what it found. The public part stays."""
    with database.write() as session:
        dropped = service.drop(session, principal, release_id)
    if dropped:
        reclaim(database)
    return Response(status_code=204)
