"""Reports: how good a release is, in a public part and an exact part for the custodian alone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from fastapi.openapi.models import Example
from fastapi.responses import HTMLResponse

from app.idempotency import Attempt
from app.releases import service as releases
from app.reports import page, service, views
from app.reports.evaluation.form import EXAMPLE, ReportIn
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

# Requests to choose from on the page.
CHOICES: dict[str, Example] = {
    "chosen": {"summary": "With every choice", "value": EXAMPLE},
    "nothing chosen": {"summary": "What needs no choice", "value": {}},
}

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
    form: Annotated[ReportIn | None, Body(openapi_examples=CHOICES)] = None,
) -> ReportOut:
    """The exact part of the report is made by a job, for the dataset's custodian alone.

    It costs no budget, because only the custodian reads it, who has the table anyway: do not
    publish it. Without a body, everything is made that needs no choice. An earlier one is deleted
    at once. 409 for a release that published nothing, while a report is being made, and after the
    dataset was erased.
    """
    accepted = service.request(
        session, principal, release_id, form or ReportIn(), attempt, settings
    )
    answer_made(
        request,
        response,
        f"/v1/releases/{accepted.release_id}/report",
        replayed=accepted.replayed,
    )
    release, dataset = releases.visible(session, principal, accepted.release_id)
    return views.report(session, database, settings, principal, release, dataset)


_REPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The report.",
        "model": ReportOut,
        "content": {
            "text/html": {
                "schema": {"type": "string"},
                "example": '<!doctype html>\n<html lang="en">\n...\n</html>\n',
            }
        },
    },
    **refusing(404, 409),
}


@router.get(
    "/releases/{release_id}/report",
    operation_id="get_report",
    summary="The report of a release",
    response_model=None,
    responses=_REPORT,
)
def get_report(
    release_id: ReleaseId,
    principal: Caller,
    database: DatabaseDep,
    settings: SettingsDep,
    session: ReadSession,
    form: Annotated[
        Literal["json", "html"],
        Query(
            alias="format",
            description="`html` is a page for people, in one file that needs nothing else: pictures"
            " of columns and measured pairs, the statement, and the certificate in words. It has no"
            " exact part.",
        ),
    ] = "json",
) -> ReportOut | Response:
    """`public` is for everyone who sees the release, as soon as it has succeeded; `exact` is for
    the dataset's custodian alone, after it was requested.

    Nobody else can see whether there is an exact part. 409 for a release that published nothing.
    """
    release, dataset = releases.visible(session, principal, release_id)
    if form == "json":
        return views.report(session, database, settings, principal, release, dataset)
    html = page.render(page.facts_of(session, database, release, dataset))
    headers = {
        "Content-Security-Policy": page.CSP,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-cache",
    }
    return HTMLResponse(html, headers=headers)


@router.delete(
    "/releases/{release_id}/report",
    status_code=204,
    operation_id="delete_report",
    summary="Delete the exact part of a report",
    responses={204: {"description": "There is no exact part now."}, **refusing(403, 404)},
)
def delete_report(release_id: ReleaseId, principal: Caller, database: DatabaseDep) -> Response:
    """Stops the comparison if it is running, and erases its figures. The public part stays."""
    with database.write() as session:
        dropped = service.drop(session, principal, release_id)
    if dropped:
        # After the commit: exact figures must not stay in free pages or in the log.
        reclaim(database)
    return Response(status_code=204)
