"""Samples: more synthetic rows from a release, at no privacy cost, and their download."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from app import erasure
from app.idempotency import Attempt
from app.publications import service as publications
from app.releases import downloads, sampling, service, views
from app.releases import samples as sample_life
from app.releases.downloads import Format, Rendering, StoredSample
from app.releases.schemas import SampleIn, SampleOut
from app.routers.data import FILE_HEADERS, TagHeader, etag_matches, file_headers
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
from app.routers.paging import Page, PageQuery, by_creation
from app.routers.paths import ReleaseId, SampleId
from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["samples"], route_class=ExactRoute)

SampleAttempt = Annotated[Attempt | None, Depends(attempt_of("samples.create"))]


@router.post(
    "/releases/{release_id}/samples",
    status_code=sampling.ACCEPTED,
    operation_id="request_sample",
    summary="Request another sample",
    responses={
        202: {"description": "Queued.", "headers": MADE_HEADERS},
        **refusing(404, 409),
    },
)
def request_sample(
    request: Request,
    response: Response,
    release_id: ReleaseId,
    form: SampleIn,
    principal: Caller,
    attempt: SampleAttempt,
    settings: SettingsDep,
    session: WriteSession,
) -> SampleOut:
    """Rows from the release's model and a seed. They are free, because no private data is read.

    Everyone who sees the release may ask, and sees all its samples. The stored bytes count as the
    caller's.
    """
    accepted = sampling.request(session, principal, release_id, form, attempt, settings)
    answer_made(request, response, f"/v1/samples/{accepted.sample_id}", replayed=accepted.replayed)
    sample, release, _ = sample_life.visible(session, principal, accepted.sample_id)
    return views.sample(sample, release.dataset_id)


@router.get(
    "/releases/{release_id}/samples",
    operation_id="list_samples",
    summary="List samples",
    responses=refusing(404),
)
def list_samples(
    release_id: ReleaseId, principal: Caller, session: ReadSession, page: PageQuery
) -> Page[SampleOut]:
    """Samples of a release, oldest first."""
    release, _ = service.visible(session, principal, release_id)
    rows = sampling.page(session, release, page.after_moment, page.fetch)
    shown, following = page.cut(rows, by_creation)
    return Page(items=[views.sample(row, release.dataset_id) for row in shown], next=following)


@router.get(
    "/samples/{sample_id}",
    operation_id="get_sample",
    summary="One sample",
    responses=refusing(404),
)
def get_sample(sample_id: SampleId, principal: Caller, session: ReadSession) -> SampleOut:
    """Its state and size; its rows are at `/v1/samples/{sample_id}/data`."""
    sample, release, _ = sample_life.visible(session, principal, sample_id)
    return views.sample(sample, release.dataset_id)


@router.delete(
    "/samples/{sample_id}",
    status_code=204,
    operation_id="delete_sample",
    summary="Delete a sample",
    responses={204: {"description": "Deleted."}, **refusing(403, 404, 409)},
)
def delete_sample(sample_id: SampleId, principal: Caller, database: DatabaseDep) -> Response:
    """The rows are permanently deleted. The same rows can be made again from the seed.

    For who asked for it and for the dataset's custodian. 409 for a sample that is part of a
    publication.
    """
    with database.write() as session:
        sample = sample_life.deletable(session, principal, sample_id)
        publications.expect_unpublished(session, sample.release_id, sample.id)
        sample_life.delete(session, sample)
    # After the commit, so that no row refers to bytes that are gone.
    erasure.purge_sample(database, sample_id)
    return Response(status_code=204)


_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The synthetic table.",
        "headers": FILE_HEADERS,
        "content": {
            "text/csv": {"schema": {"type": "string"}, "example": "shift,fare\n3,12.5\n"},
            Format.PARQUET.media_type: {"schema": {"type": "string", "format": "binary"}},
            Format.JSONL.media_type: {
                "schema": {"type": "string"},
                "example": '{"shift":3,"fare":12.5}\n',
            },
        },
    },
    304: {"description": "Unchanged since the ETag that was sent."},
    **refusing(404, 409),
}

FormatQuery = Annotated[
    Format,
    Query(
        alias="format",
        description="`csv` in the notation of the dictionary, `parquet` and `jsonl` with types.",
    ),
]
EscapeQuery = Annotated[
    bool,
    Query(
        description="CSV only: put `'` before text that a spreadsheet would run as a formula "
        "(starting with = + - @, tab or carriage return).",
    ),
]


@router.get(
    "/samples/{sample_id}/data",
    operation_id="download_sample",
    summary="Download a sample",
    response_class=StreamingResponse,
    responses=_FILE,
)
def download_sample(
    sample_id: SampleId,
    principal: Caller,
    database: DatabaseDep,
    settings: SettingsDep,
    form: FormatQuery = Format.CSV,
    escape_formulas: EscapeQuery = False,
    if_none_match: TagHeader = None,
) -> Response:
    """The table, streamed. 409 with `Retry-After` until it is made, or made again.

    HEAD gives the same headers and no body.
    """
    ready = sampling.ready(database, principal, sample_id, settings)
    rendering = Rendering(form, escape_formulas)
    return _file(ready, rendering, if_none_match, lambda: downloads.pieces(ready, rendering))


@router.head("/samples/{sample_id}/data", include_in_schema=False)
def head_sample(
    sample_id: SampleId,
    principal: Caller,
    database: DatabaseDep,
    settings: SettingsDep,
    form: FormatQuery = Format.CSV,
    escape_formulas: EscapeQuery = False,
    if_none_match: TagHeader = None,
) -> Response:
    ready = sampling.ready(database, principal, sample_id, settings)
    return _file(ready, Rendering(form, escape_formulas), if_none_match, lambda: iter(()))


def _file(
    ready: StoredSample,
    rendering: Rendering,
    if_none_match: str | None,
    body: Callable[[], Iterator[bytes]],
) -> Response:
    etag = rendering.etag(ready.content_sha256)
    headers = file_headers(f"{ready.id}.{rendering.format}", etag)
    if etag_matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    if rendering.format is Format.PARQUET:
        # Only Parquet is sent as stored; the length of text is unknown until it is written.
        headers["Content-Length"] = str(ready.size_bytes)
    return StreamingResponse(body(), media_type=rendering.format.media_type, headers=headers)
