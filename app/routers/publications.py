"""Publications: publish a release, find, read and download what is published, withdraw it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse

from app import erasure
from app.idempotency import Attempt
from app.problems import Gone, NotFound
from app.publications import archive, linked_data, pages, repository, service, views
from app.publications.archive import ListedFile
from app.publications.schemas import PublicationIn, PublicationOut, WithdrawalIn
from app.routers.anonymous import AnonymousReaders, Download, Reader
from app.routers.data import FILE_HEADERS, TagHeader, byte_range, etag_matches, file_headers
from app.routers.dependencies import (
    Custodian,
    DatabaseDep,
    KeyringDep,
    ReadSession,
    SettingsDep,
    attempt_of,
)
from app.routers.description import refusing
from app.routers.idempotent import MADE_HEADERS, answer_made
from app.routers.paging import Page, PageQuery, by_creation
from app.routers.paths import PublicationId
from app.routers.wire import ExactRoute
from app.security.principals import Principal

router = APIRouter(prefix="/v1", tags=["publications"], route_class=ExactRoute)

Form = Literal["json", "jsonld", "html"]
_MEDIA_TYPES: dict[Form, str] = {
    "json": "application/json",
    "jsonld": "application/ld+json",
    "html": "text/html",
}
_LONGEST_SEARCH, _MOST_WORDS = 200, 10

_WITHDRAWN: dict[int | str, dict[str, Any]] = {
    410: {
        **refusing(410)[410],
        "content": {
            "text/html": {
                "schema": {"type": "string"},
                "example": '<!doctype html>\n<html lang="en">\n...\n</html>\n',
            }
        },
    }
}

FormQuery = Annotated[
    Form | None,
    Query(
        alias="format",
        description="`json`, `jsonld` (DCAT-AP) or `html`; by the `Accept` header if omitted.",
    ),
]


@router.post(
    "/publications",
    status_code=service.CREATED,
    operation_id="create_publication",
    summary="Publish a release (custodian)",
    responses={201: {"headers": MADE_HEADERS}, **refusing(403, 409)},
)
def create_publication(
    request: Request,
    response: Response,
    form: PublicationIn,
    principal: Custodian,
    attempt: Annotated[Attempt | None, Depends(attempt_of("publications.create"))],
    database: DatabaseDep,
    keyring: KeyringDep,
    settings: SettingsDep,
) -> PublicationOut:
    """Samples of a release, its statement, report and certificate, under a title and a licence.

    The release becomes visible to everybody (`visibility` is `public`). Publishing costs nothing:
    what is published was made from the answers of the kernel alone.
    """
    made = service.publish(database, keyring, settings, principal, form, attempt)
    answer_made(
        request, response, f"/v1/publications/{made.publication_id}", replayed=made.replayed
    )
    with database.read() as session:
        return views.publication(session, service.published(session, made.publication_id))


_LISTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "What is published.",
        "content": {
            "application/ld+json": {"schema": {"type": "object"}},
            "text/html": {"schema": {"type": "string"}},
        },
        "headers": {"ETag": FILE_HEADERS["ETag"]},
    },
    304: {"description": "Unchanged since the ETag that was sent."},
}


@router.head("/publications", include_in_schema=False)
@router.get(
    "/publications",
    operation_id="list_publications",
    summary="The catalogue of publications",
    response_model=Page[PublicationOut],
    responses=_LISTED,
)
def list_publications(
    request: Request,
    _: Reader,
    session: ReadSession,
    settings: SettingsDep,
    page: PageQuery,
    q: Annotated[
        str | None,
        Query(
            max_length=_LONGEST_SEARCH,
            description="Words, each of which is in title, abstract, creators or keywords.",
        ),
    ] = None,
    series: Annotated[
        str | None,
        Query(max_length=64, description="Every version of this series, not the newest alone."),
    ] = None,
    form: FormQuery = None,
    if_none_match: TagHeader = None,
) -> Response:
    """The newest version of each, newest first. No key is needed where the operator has made the
    catalogue public (`HALFTONE_PUBLIC_CATALOGUE`)."""
    rows = repository.page(
        session,
        words=(q or "").casefold().split()[:_MOST_WORDS],
        series_id=series,
        before=page.after_moment,
        limit=page.fetch,
    )
    found, following = page.cut(rows, lambda row: by_creation(row[0]))
    shown = views.publications(session, found)
    match chosen := _form(request, form):
        case "jsonld":
            body = _json(
                linked_data.catalogue(
                    shown,
                    base=_base(request),
                    title=settings.catalogue_title,
                    publisher=settings.catalogue_publisher,
                    following=_following(request, following),
                )
            )
        case "html":
            title = settings.catalogue_title
            body = pages.catalogue(shown, title=title, q=q, following=following).encode()
        case "json":
            body = Page(items=shown, next=following).model_dump_json().encode()
    return _answer(body, chosen, if_none_match)


@router.head("/publications/{publication_id}", include_in_schema=False)
@router.get(
    "/publications/{publication_id}",
    operation_id="get_publication",
    summary="One publication",
    response_model=PublicationOut,
    responses={**_LISTED, **refusing(404), **_WITHDRAWN},
)
def get_publication(
    request: Request,
    publication_id: PublicationId,
    _: Reader,
    session: ReadSession,
    form: FormQuery = None,
    if_none_match: TagHeader = None,
) -> Response:
    """What it is, how to cite it, and its files; as a page with schema.org in its head, too.

    410 once it was withdrawn, with its title, the dates and the reason.
    """
    chosen = _form(request, form)
    try:
        found = service.published(session, publication_id)
    except Gone as gone:
        if chosen != "html":
            raise
        headers = {"Content-Security-Policy": pages.CSP, "Cache-Control": "no-cache"}
        return HTMLResponse(pages.withdrawn(gone.extra), gone.status, headers=headers)
    out = views.publication(session, found)
    match chosen:
        case "jsonld":
            body = _json(linked_data.entry(out, base=_base(request)))
        case "html":
            body = pages.publication(out, base=_base(request)).encode()
        case "json":
            body = out.model_dump_json().encode()
    return _answer(body, chosen, if_none_match)


def _answers(content: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """How a file is answered that has this content, by media type."""
    return {
        200: {"description": "The bytes of the file.", "headers": FILE_HEADERS, "content": content},
        206: {
            "description": "The part of the file that `Range` asks for.",
            "headers": {
                "Content-Range": {
                    "description": "Which bytes these are, and of how many.",
                    "schema": {"type": "string"},
                }
            },
            "content": content,
        },
        304: {"description": "Unchanged since the ETag that was sent."},
        **refusing(404, 410, 416),
    }


RangeHeader = Annotated[
    str | None, Header(alias="Range", description="One range of bytes: `bytes=0-1023`.")
]
IfRangeHeader = Annotated[
    str | None, Header(alias="If-Range", description="The ETag that the range is of.")
]


@router.head("/publications/{publication_id}/bundle", include_in_schema=False)
@router.get(
    "/publications/{publication_id}/bundle",
    operation_id="get_publication_bundle",
    summary="All files of a publication, in one signed zip",
    response_class=StreamingResponse,
    responses=_answers({archive.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}),
)
def get_publication_bundle(
    request: Request,
    publication_id: PublicationId,
    reader: Reader,
    session: ReadSession,
    database: DatabaseDep,
    if_none_match: TagHeader = None,
    asked: RangeHeader = None,
    if_range: IfRangeHeader = None,
) -> Response:
    """The same bytes for as long as it is published, with ranges and a strong ETag.

    `halftone-client verify` checks it offline. HEAD gives the same headers and no body.
    """
    row = service.published(session, publication_id)[0]
    listing = service.listing_of(row)
    file = ListedFile(f"{row.id}.zip", archive.MEDIA_TYPE, listing.size_bytes, listing.sha256)
    found = service.opened(database, row.id)
    send = partial(archive.pieces, found)
    return _sent(request, reader, file, send, if_none_match, asked, if_range)


@router.head("/publications/{publication_id}/files/{name:path}", include_in_schema=False)
@router.get(
    "/publications/{publication_id}/files/{name:path}",
    operation_id="get_publication_file",
    summary="One file of a publication",
    response_class=StreamingResponse,
    # Of any form: text, JSON or bytes.
    responses=_answers({"*/*": {"schema": {}}}),
)
def get_publication_file(
    request: Request,
    publication_id: PublicationId,
    name: Annotated[
        str,
        Path(
            max_length=200,
            description="Its name, as `files` of the publication lists it.",
            examples=["README.md"],
        ),
    ],
    reader: Reader,
    session: ReadSession,
    database: DatabaseDep,
    if_none_match: TagHeader = None,
    asked: RangeHeader = None,
    if_range: IfRangeHeader = None,
) -> Response:
    """The file as it is in the archive, with ranges and a strong ETag. HEAD gives the same headers
    and no body."""
    row = service.published(session, publication_id)[0]
    for file in service.listing_of(row).files:
        if file.name == name:
            found = service.opened(database, row.id)
            send = partial(archive.pieces_of, found, name)
            return _sent(request, reader, file, send, if_none_match, asked, if_range)
    raise NotFound("The publication has no file of this name.")


@router.delete(
    "/publications/{publication_id}",
    status_code=204,
    operation_id="withdraw_publication",
    summary="Withdraw a publication (custodian)",
    response_class=Response,
    responses={204: {"description": "Withdrawn."}, **refusing(403, 404)},
)
def withdraw_publication(
    publication_id: PublicationId,
    form: Annotated[WithdrawalIn, Body()],
    principal: Custodian,
    database: DatabaseDep,
) -> None:
    """From now on it is 410 with the reason. Copies that were downloaded stay what they are."""
    with database.write() as session:
        service.withdraw(session, principal, publication_id, form.reason)
    # After the commit, so that no publication refers to bytes that are gone.
    erasure.purge_publication(database, publication_id)


def _sent(
    request: Request,
    reader: Principal | None,
    file: ListedFile,
    pieces: Callable[[slice], Iterator[bytes]],
    if_none_match: str | None,
    asked: str | None,
    if_range: str | None,
) -> Response:
    """The file, or the part of it that the request is for."""
    etag = f'"{file.sha256[:32]}"'
    headers = file_headers(file.name.rpartition("/")[2], etag) | {
        "Accept-Ranges": "bytes",
        # Pages in the archive are for reading from a disk: here they may do nothing.
        "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    }
    if etag_matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    part = byte_range(asked, if_range, etag, file.size_bytes)
    status = 200 if part is None else 206
    if part is None:
        part = slice(0, file.size_bytes)
    else:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{file.size_bytes}"
    headers["Content-Length"] = str(part.stop - part.start)
    body = iter(()) if request.method == "HEAD" else pieces(part)
    if reader is not None:
        return StreamingResponse(body, status, headers=headers, media_type=file.media_type)
    readers: AnonymousReaders = request.app.state.anonymous
    return Download(readers.paced(body), status, headers=headers, media_type=file.media_type)


def _form(request: Request, asked: Form | None) -> Form:
    """What was asked for, or what the `Accept` header names first of what there is."""
    if asked is not None:
        return asked
    accepted = request.headers.get("accept", "")
    named = [part.split(";")[0].strip().lower() for part in accepted.split(",")]
    for media_type in named:
        for form, known in _MEDIA_TYPES.items():
            if media_type == known:
                return form
    return "json"


def _following(request: Request, cursor: str | None) -> str | None:
    """The query of the next page of linked data."""
    if cursor is None:
        return None
    return urlencode({**request.query_params, "format": "jsonld", "cursor": cursor})


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


def _answer(body: bytes, form: Form, if_none_match: str | None) -> Response:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {
        "ETag": etag,
        "Vary": "Accept, Authorization",
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
    }
    if form == "html":
        headers["Content-Security-Policy"] = pages.CSP
    if etag_matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=_MEDIA_TYPES[form], headers=headers)
