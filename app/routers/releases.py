"""Releases: preflight, request, follow, cancel, results."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import anyio
from anyio import to_thread
from fastapi import APIRouter, Body, Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from app.access import reading
from app.access.permission import open_dataset
from app.idempotency import Attempt
from app.problems import PROBLEM_TYPE
from app.publications import service as publications
from app.releases import (
    admission,
    certificates,
    choice,
    costing,
    evaluations,
    events,
    repository,
    results,
    service,
    views,
    visibility,
)
from app.releases.catalogue import Catalogue
from app.releases.dictionaries import dictionary_of
from app.releases.downloads import Format
from app.releases.evaluations import EvaluationIn, EvaluationOut
from app.releases.facts import read_facts
from app.releases.feed import Feed
from app.releases.openapi import BUDGET_EXCEEDED, REQUESTS
from app.releases.published import CertificateOut, MeasurementsOut, StatementOut
from app.releases.refusals import HiddenRefusals
from app.releases.schemas import (
    PreflightOut,
    ProblemOut,
    ReleaseIn,
    ReleaseOut,
    ReleaseState,
    VisibilityIn,
)
from app.routers.data import FILE_HEADERS, TagHeader, etag_matches, file_headers
from app.routers.dependencies import (
    Caller,
    DatabaseDep,
    KeyringDep,
    ReadSession,
    SettingsDep,
    Writes,
    WriteSession,
    attempt_of,
)
from app.routers.description import refusing
from app.routers.idempotent import MADE_HEADERS, answer_made
from app.routers.paging import Page, PageQuery, by_creation
from app.routers.paths import DatasetId, ReleaseId
from app.routers.wire import ExactRoute
from app.routers.writing import WriteQueue
from app.security.principals import Principal
from app.settings import Settings
from app.signing import keys as signing_keys
from app.signing.canonical import signed
from app.storage.encryption import Keyring

router = APIRouter(prefix="/v1", tags=["releases"], route_class=ExactRoute)

EvaluationAttempt = Annotated[Attempt | None, Depends(attempt_of("evaluations.create"))]
ReleaseAttempt = Annotated[Attempt | None, Depends(attempt_of("releases.create"))]


async def get_catalogue(request: Request) -> Catalogue:
    catalogue: Catalogue = request.app.state.catalogue
    return catalogue


ReleaseForm = Annotated[ReleaseIn, Body(openapi_examples=REQUESTS)]
CatalogueDep = Annotated[Catalogue, Depends(get_catalogue)]


@contextlib.asynccontextmanager
async def event_feed(app: FastAPI) -> AsyncIterator[None]:
    """Run the one poller that feeds the event streams of this process."""
    feed = Feed(app.state.database)
    app.state.feed = feed
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


@router.post(
    "/datasets/{dataset_id}/releases",
    status_code=admission.ACCEPTED,
    operation_id="request_release",
    summary="Request a release",
    responses={
        202: {"description": "Admitted, charged and queued.", "headers": MADE_HEADERS},
        409: {
            "description": "The budget cannot cover it, or the dataset takes no releases.",
            "content": {PROBLEM_TYPE: {"schema": BUDGET_EXCEEDED}},
        },
        429: {
            "description": "Too many failed authentications from this address, or too many releases"
            " that a budget refused which is not shown to you.",
        },
        **refusing(404),
    },
)
async def request_release(
    request: Request,
    response: Response,
    dataset_id: DatasetId,
    form: ReleaseForm,
    principal: Caller,
    attempt: ReleaseAttempt,
    database: DatabaseDep,
    catalogue: CatalogueDep,
    settings: SettingsDep,
    keyring: KeyringDep,
    writes: Writes,
) -> ReleaseOut:
    """Charge the budget and queue a run of one synthesizer under one guarantee.

    The charge follows from public facts and is fixed here. If the remaining budget cannot cover
    it, the refusal states what is left and the largest epsilon that would fit, to those who may see
    the budget. Others are refused at most ten times an hour by a budget that is not shown to them.
    """
    # Everything slow first, outside the queue of writes, which serves all requests in turn.
    prepared = await to_thread.run_sync(
        admission.prepare, database, catalogue, principal, dataset_id, form, attempt, settings
    )

    return await _admitted(
        request, response, principal, prepared, attempt, settings, keyring, writes
    )


async def _admitted(
    request: Request,
    response: Response,
    principal: Principal,
    prepared: admission.Prepared | None,
    attempt: Attempt | None,
    settings: Settings,
    keyring: Keyring,
    writes: WriteQueue,
) -> ReleaseOut:
    def accept(session: Session) -> tuple[ReleaseOut, bool]:
        refusals: HiddenRefusals = request.app.state.refusals
        accepted = admission.admit(session, principal, prepared, attempt, refusals, settings)
        shown = views.release(
            session, keyring, principal, accepted.release, accepted.dataset, accepted.account
        )
        return shown, accepted.replayed

    shown, replayed = await writes.run(accept)
    answer_made(request, response, f"/v1/releases/{shown.id}", replayed=replayed)
    return shown


@router.post(
    "/datasets/{dataset_id}/releases/preflight",
    operation_id="preflight_release",
    summary="What would a release cost and need?",
    responses=refusing(404, 409),
)
def preflight(
    dataset_id: DatasetId,
    form: ReleaseForm,
    principal: Caller,
    database: DatabaseDep,
    catalogue: CatalogueDep,
    settings: SettingsDep,
) -> PreflightOut:
    """Nothing is charged, and no private data is read: public facts only.

    What would be refused with 422 is listed under `problems` instead.
    """
    with database.read() as session:
        access = open_dataset(session, principal, dataset_id)
        facts = read_facts(session, access, principal, form, database, settings)
    costed = choice.cost(facts, catalogue, form, settings)
    preview = None
    if costed.terms is not None:
        with database.read() as session:
            access = open_dataset(session, principal, dataset_id)
            preview = costing.preview(session, access, costed.terms)
    needs = costed.preflight
    return PreflightOut(
        fits=preview is not None and preview.fits and not costed.problems,
        synthesizer=None if costed.entry is None else costed.entry.name,
        why=costed.why,
        charge=costed.charge,
        charge_as_epsilon=costed.charge_as_epsilon,
        remaining_after=None if preview is None else preview.remaining_after,
        remaining_after_as_epsilon=None if preview is None else preview.remaining_after_as_epsilon,
        cells=None if needs is None else needs.cells,
        memory_bytes=None if needs is None else needs.memory_bytes,
        expected_error=costed.expected_error,
        expected_error_at_least=costed.least_expected_error,
        refusal=None if preview is None else views.refusal(preview.refusal),
        problems=[
            ProblemOut(pointer=fault.pointer, message=fault.message, remedy=fault.remedy)
            for fault in costed.problems
        ],
    )


@router.post(
    "/releases/{release_id}/evaluations",
    status_code=admission.ACCEPTED,
    operation_id="request_evaluation",
    summary="Measure how far a release is from the private table",
    responses={
        202: {"description": "Admitted, charged and queued.", "headers": MADE_HEADERS},
        409: {
            "description": "The budget cannot cover it, or the release cannot be evaluated.",
            "content": {PROBLEM_TYPE: {"schema": BUDGET_EXCEEDED}},
        },
        429: {
            "description": "Too many failed authentications from this address, or too many releases"
            " that a budget refused which is not shown to you.",
        },
        **refusing(404),
    },
)
async def request_evaluation(
    request: Request,
    response: Response,
    release_id: ReleaseId,
    form: EvaluationIn,
    principal: Caller,
    attempt: EvaluationAttempt,
    database: DatabaseDep,
    settings: SettingsDep,
    keyring: KeyringDep,
    writes: Writes,
) -> ReleaseOut:
    """Charge the budget and queue the measurement of the first sample's distances.

    The evaluation is a release of its own, with certificate and measurements, whose rows are the
    evaluated ones again. It is admitted, refused and cancelled as every release is.
    """
    prepared = await to_thread.run_sync(
        admission.prepare_evaluation, database, principal, release_id, form, attempt, settings
    )
    return await _admitted(
        request, response, principal, prepared, attempt, settings, keyring, writes
    )


@router.get(
    "/releases/{release_id}/evaluation",
    operation_id="get_evaluation",
    summary="The distances that an evaluation measured",
    responses=refusing(404, 409),
)
def get_evaluation(release_id: ReleaseId, principal: Caller, session: ReadSession) -> EvaluationOut:
    """Of every column and the pairs that were asked for, with their error. 404 for a release that
    is no evaluation."""
    release, dataset = service.visible(session, principal, release_id)
    return evaluations.figures(session, release, dictionary_of(dataset))


@router.get("/releases", operation_id="list_releases", summary="List releases")
def list_releases(
    principal: Caller,
    session: ReadSession,
    keyring: KeyringDep,
    page: PageQuery,
    dataset: Annotated[str | None, Query(max_length=64, description="Of this dataset.")] = None,
    state: Annotated[ReleaseState | None, Query(description="In this state.")] = None,
) -> Page[ReleaseOut]:
    """Your own releases, those shared with you, and as a custodian all releases of your datasets;
    newest first."""
    rows = repository.visible_releases(
        session,
        principal,
        dataset_id=dataset,
        state=state,
        before=page.after_moment,
        limit=page.fetch,
    )
    shown, following = page.cut(rows, lambda row: by_creation(row[0]))
    return Page(items=views.releases(session, keyring, principal, shown), next=following)


@router.get(
    "/releases/{release_id}",
    operation_id="get_release",
    summary="One release",
    responses=refusing(404),
)
def get_release(
    release_id: ReleaseId, principal: Caller, session: ReadSession, keyring: KeyringDep
) -> ReleaseOut:
    """Its progress, and the ids of its samples once it has `succeeded`."""
    release, dataset = service.visible(session, principal, release_id)
    return views.release(session, keyring, principal, release, dataset)


@router.post(
    "/releases/{release_id}/cancel",
    operation_id="cancel_release",
    summary="Cancel a release",
    responses=refusing(403, 404, 409),
)
def cancel_release(
    release_id: ReleaseId, principal: Caller, session: WriteSession, keyring: KeyringDep
) -> ReleaseOut:
    """Stop the release; `refunded` says whether the charge was given back.

    For its requester and the dataset's custodian.
    The charge is given back only if no worker ever claimed the release. A running one stops
    within seconds, keeps its charge and publishes nothing. Cancelling again changes nothing; for a
    finished release the response is 409.
    """
    release = service.cancel(session, principal, release_id)
    _, dataset = service.visible(session, principal, release_id)
    return views.release(session, keyring, principal, release, dataset)


@router.put(
    "/releases/{release_id}/visibility",
    operation_id="set_visibility",
    summary="Who sees a release (custodian; its requester may ask)",
    responses={
        200: {"description": "Set by the custodian."},
        202: {"model": ReleaseOut, "description": "Recorded as the requester's request."},
        **refusing(403, 404, 409),
    },
)
def set_visibility(
    release_id: ReleaseId,
    form: VisibilityIn,
    principal: Caller,
    session: WriteSession,
    keyring: KeyringDep,
    response: Response,
) -> ReleaseOut:
    """Share a release that succeeded, or take it back.

    Those who see it list it, read what it published and take samples, which cost nothing. A request
    stands in `visibility_requested` until the custodian sets a visibility, this one or another.
    """
    settled = visibility.put(session, principal, release_id, form.visibility)
    if settled.decided and form.visibility != "public":
        publications.expect_unpublished(session, settled.release.id)
    response.status_code = 200 if settled.decided else 202
    return views.release(session, keyring, principal, settled.release, settled.dataset)


_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events `state`, `progress` and `end`, each with an id and one line of "
        "JSON. The stream ends after `end`.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "type": "object",
                    "description": "One event of the stream.",
                    "required": ["id", "event", "data"],
                    "properties": {
                        "id": {"type": "string", "description": "Increases by one."},
                        "event": {
                            "enum": ["state", "progress", "end"],
                            "description": "`end` is the last one.",
                        },
                        "data": {
                            "type": "string",
                            "description": "JSON: `state`, or `progress` and `stage`.",
                        },
                    },
                },
                "example": 'id: 2\nevent: progress\ndata: {"progress":0.05,"stage":"counting"}\n\n',
            }
        },
    },
    204: {"description": "The release has ended and every event was seen: do not reconnect."},
    **refusing(404),
}


@router.get(
    "/releases/{release_id}/events",
    operation_id="follow_release",
    summary="Follow a release",
    response_class=StreamingResponse,
    responses=_STREAM,
)
def follow_release(
    request: Request,
    release_id: ReleaseId,
    principal: Caller,
    session: ReadSession,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            description="Continue after this event.",
            pattern="^[0-9]{1,9}$",
        ),
    ] = None,
) -> Response:
    """Server-sent events; a comment is sent every 15 seconds to keep the connection open.

    The stream ends early, within a second, once the key is revoked or the release is no longer
    visible to the caller.
    """
    release, _ = service.visible(session, principal, release_id)
    # A number beyond the last event would make the stream wait for an event that never comes.
    seen = min(int(last_event_id or 0), events.latest(session, release.id))
    has_ended = release.state not in repository.ACTIVE
    # 204 tells an EventSource to stop; without it the browser would reconnect forever.
    if has_ended and not events.after(session, release.id, seen):
        return Response(status_code=204)
    # The session ends before the stream starts: a long stream must not keep a snapshot of the
    # store.
    feed: Feed = request.app.state.feed
    assert principal.key_id is not None
    return StreamingResponse(
        feed.follow(release.id, principal.key_id, seen),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


_MEASUREMENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The noisy answers.",
        "headers": FILE_HEADERS,
        "model": MeasurementsOut,
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            Format.PARQUET.media_type: {"schema": {"type": "string", "format": "binary"}},
        },
    },
    304: {"description": "Unchanged since the ETag that was sent."},
    **refusing(404, 409),
}


@router.head("/releases/{release_id}/measurements", include_in_schema=False)
@router.get(
    "/releases/{release_id}/measurements",
    operation_id="get_measurements",
    summary="The noisy answers of a release",
    response_class=StreamingResponse,
    responses=_MEASUREMENTS,
)
def get_measurements(
    request: Request,
    release_id: ReleaseId,
    principal: Caller,
    session: ReadSession,
    form: Annotated[
        Literal["json", "csv", "parquet"],
        Query(
            alias="format",
            description="`csv` and `parquet` have a row for each noisy cell or quantile.",
        ),
    ] = "json",
    if_none_match: TagHeader = None,
) -> Response:
    """Every noisy answer that the release measured, with its error and cost.

    HEAD gives the same headers and no body.
    """
    release, dataset = service.visible(session, principal, release_id)
    results.check_published(release)
    records = results.records(session, release)
    schema = results.modelled(session, release, dictionary_of(dataset))
    # From the stored answers: writing the whole body to hash it would cost as much as sending it.
    etag = results.etag(records, form)
    headers = file_headers(f"{release.id}-measurements.{form}", etag)
    if etag_matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    if form == "json":
        pieces, media_type = results.as_json(release.id, records, schema), "application/json"
    else:
        pieces = results.as_long_form(records, schema, Format(form))
        media_type = Format(form).media_type
    if request.method == "HEAD":
        pieces = iter(())
    return StreamingResponse(pieces, media_type=media_type, headers=headers)


@router.get(
    "/releases/{release_id}/certificate",
    operation_id="get_certificate",
    summary="The privacy certificate of a release",
    response_model=None,
    responses={200: {"model": CertificateOut}, **refusing(403, 404, 409)},
)
def get_certificate(
    release_id: ReleaseId,
    principal: Caller,
    session: ReadSession,
    keyring: KeyringDep,
    budget: Annotated[
        bool, Query(description="With its position in the budget, for those who see the totals.")
    ] = False,
) -> dict[str, Any]:
    """Release, dataset and first sample by name and hash; unit, adjacent datasets, guarantee,
    sensitivity and scale of each mechanism, versions; signed by the service.

    The signature is over the canonical form of all the rest: JSON in ASCII with sorted keys,
    without spaces.
    """
    release, dataset = service.certified(session, principal, release_id)
    if budget:
        reading.check_totals(session, principal, dataset.id)
    made = certificates.certificate(session, release, dataset, shows_totals=budget)
    return signed(made, signing_keys.current(session, keyring))


@router.get(
    "/releases/{release_id}/statement",
    operation_id="get_statement",
    summary="How good a release is",
    response_model=None,
    responses={200: {"model": StatementOut}, **refusing(404, 409)},
)
def get_statement(release_id: ReleaseId, principal: Caller, session: ReadSession) -> dict[str, Any]:
    """For each column and pair of columns how far the first sample is from the private table, and
    where means, quantiles and correlations lie: intervals of 90 % confidence.

    Made of the noisy answers, the law of their noise and the sample, so it costs nothing. A
    release that was made before there were statements has none: 404.
    """
    release, _ = service.visible(session, principal, release_id)
    return results.statement(release)
