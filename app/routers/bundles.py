"""The bundle of a release: everything that it published, in one signed archive."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from app.access import reading
from app.bundles.bundle import MEDIA_TYPE, open_bundle
from app.bundles.contents import Subject
from app.releases import service
from app.routers.data import FILE_HEADERS, TagHeader, etag_matches, file_headers
from app.routers.dependencies import Caller, DatabaseDep, KeyringDep, SettingsDep
from app.routers.description import refusing
from app.routers.paths import ReleaseId
from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["releases"], route_class=ExactRoute)

_ZIP: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The bundle.",
        "headers": FILE_HEADERS,
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "Unchanged since the ETag that was sent."},
    **refusing(403, 404, 409),
}


@router.head("/releases/{release_id}/bundle", include_in_schema=False)
@router.get(
    "/releases/{release_id}/bundle",
    operation_id="get_bundle",
    summary="Everything a release published, in one signed zip",
    response_class=StreamingResponse,
    responses=_ZIP,
)
def get_bundle(
    request: Request,
    release_id: ReleaseId,
    principal: Caller,
    database: DatabaseDep,
    keyring: KeyringDep,
    settings: SettingsDep,
    samples: Annotated[
        str | None,
        Query(
            max_length=600,
            description="Ids of the samples that it holds, with commas between them; by default the"
            " first one.",
        ),
    ] = None,
    budget: Annotated[
        bool,
        Query(
            description="With the totals of the account, in certificate and ledger proof, for those"
            " who see them."
        ),
    ] = False,
    if_none_match: TagHeader = None,
) -> Response:
    """Rows as CSV and Parquet, dictionary, noisy answers, certificate, ledger proof, metadata as
    Data Package, Croissant and DataCite, hashes and the service's signature of them.

    The same release and samples give the same bytes, until the signing key is rotated or the
    service is upgraded. The archive is written as it is sent, so it has no length and no ranges.
    HEAD gives the same headers and no body. `halftone-client verify` checks it offline.
    """

    def find(session: Session) -> Subject:
        release, dataset = service.visible(session, principal, release_id)
        if budget:
            reading.check_totals(session, principal, dataset.id)
        chosen = None if samples is None else samples.split(",")
        return Subject(release, dataset, chosen, shows_totals=budget)

    bundle = open_bundle(database, keyring, settings, find)
    headers = {**file_headers(bundle.name, bundle.etag), "Accept-Ranges": "none"}
    if etag_matches(if_none_match, bundle.etag):
        return Response(status_code=304, headers=headers)
    pieces = iter(()) if request.method == "HEAD" else bundle.pieces()
    return StreamingResponse(pieces, media_type=MEDIA_TYPE, headers=headers)
