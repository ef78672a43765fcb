"""Datasets: declaring, uploading, reading, erasing."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any, Literal

import anyio
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Header, Query, Request, Response
from sqlalchemy.orm import Session

from app import erasure, quota
from app.access import permission, views
from app.access import repository as accesses
from app.database import Database
from app.datasets import private_facts, proposals, repository, service
from app.datasets.dictionary_form import DICTIONARY
from app.datasets.draft import DatasetDraft
from app.datasets.schemas import DatasetOut, DatasetPatch, IngestReportOut, ProposalOut
from app.datasets.staging import StagedFile, StagedWriter, StagingArea
from app.idempotency import Attempt, body_hash, find_replay, remember, settle
from app.problems import NotFound, NotReady, UnsupportedMedia
from app.routers import uploads
from app.routers.dataset_docs import CREATE_BODY, DATA_BODY, PROPOSAL_BODY
from app.routers.dataset_spec import read_spec
from app.routers.dependencies import (
    Caller,
    Custodian,
    DatabaseDep,
    KeyringDep,
    ReadSession,
    SettingsDep,
    Writes,
    WriteSession,
    get_writes,
)
from app.routers.description import refusing
from app.routers.idempotent import MADE_HEADERS, answer_made
from app.routers.paging import Page, PageQuery, by_creation
from app.routers.paths import DatasetId
from app.routers.wire import ExactRoute, media_type, parse_json, read_limited
from app.security.principals import Principal
from app.settings import Settings
from app.storage.encryption import Keyring

router = APIRouter(prefix="/v1", tags=["datasets"], route_class=ExactRoute)

LONGEST_WAIT_S = 60
# Short at first for small tables, then longer, so that waiting costs the store little.
_LOOK_S = (0.02, 0.05, 0.1, 0.25)

Prefer = Annotated[
    str | None,
    Header(
        alias="Prefer",
        description=f"`wait=30` delays the response until the ingest is over, at most"
        f" {LONGEST_WAIT_S} seconds.",
        max_length=200,
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Makes the request safe to repeat: the same key and content give the first"
        " response again.",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
    ),
]
FileFormat = Annotated[
    Literal["csv", "tsv", "parquet", "jsonl"] | None,
    Query(alias="format", description="Overrides the declared format of the file."),
]

_CREATED: dict[int | str, dict[str, Any]] = {
    201: {
        "description": "Declared (`awaiting_data`), or with `Prefer: wait` ingested.",
        "headers": MADE_HEADERS,
    },
    202: {
        "description": "Uploaded; `ingesting`.",
        "model": DatasetOut,
        "headers": MADE_HEADERS,
    },
    **refusing(403),
}


@router.post(
    "/datasets",
    status_code=201,
    operation_id="create_dataset",
    summary="Declare a dataset, and upload its table",
    responses=_CREATED,
    openapi_extra=CREATE_BODY,
)
async def create_dataset(
    request: Request,
    response: Response,
    principal: Custodian,
    database: DatabaseDep,
    settings: SettingsDep,
    writes: Writes,
    key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> DatasetOut:
    """With JSON alone, the dataset waits for its data, which PUT sends. In a form, the part
    `spec` (JSON) must come before the part `file`, and a job ingests the table."""
    async with uploads.draining_before_refusal(request):
        kind = media_type(request)
        if kind in ("", "application/json"):
            body = await read_limited(request, settings.max_body_bytes)
            raw = parse_json(body)
            draft = await to_thread.run_sync(read_spec, raw, settings)
            attempt = _attempt(request, principal, key, {"spec": raw})
            made = await _create(request, principal, draft, None, attempt)
        elif kind == "multipart/form-data":
            # Before the body is read: an upload that has no room should not be sent in full first.
            await _check_room(database, principal, settings)
            made, attempt = await _create_from_form(request, principal, key)
        else:
            raise UnsupportedMedia("Send application/json, or multipart/form-data with a file.")
    status, dataset_id, replayed = made
    if status == 202 and not replayed:
        status = 201 if await _is_settled(database, dataset_id, _wait_s(prefer)) else 202
        if status == 201 and attempt is not None:
            # A repeated request gets the status that the first one got in the end.
            await writes.run(lambda session: settle(session, attempt, 201))
    response.status_code = status
    answer_made(request, response, f"/v1/datasets/{dataset_id}", replayed=replayed)
    return await _shown(request, principal, dataset_id)


@router.put(
    "/datasets/{dataset_id}/data",
    operation_id="upload_data",
    summary="Upload the table of a dataset",
    responses={
        200: {"description": "With `Prefer: wait`: the ingest is over."},
        202: {"description": "Uploaded; `ingesting`.", "model": DatasetOut},
        **refusing(403, 404, 409),
    },
    openapi_extra=DATA_BODY,
)
async def upload_data(
    request: Request,
    response: Response,
    dataset_id: DatasetId,
    principal: Caller,
    database: DatabaseDep,
    settings: SettingsDep,
    writes: Writes,
    file_format: FileFormat = None,
    prefer: Prefer = None,
) -> DatasetOut:
    """The body is the file itself, as `curl -T` sends it. A dataset accepts data as long as it is
    `awaiting_data` or `rejected`."""
    async with uploads.draining_before_refusal(request):
        # Before the body is read; checked again in the transaction, since the upload can take
        # hours.
        await to_thread.run_sync(_check_receiving, database, principal, dataset_id, settings)
        writer = await to_thread.run_sync(StagingArea(settings).writer)
        with writer:
            staged = await uploads.receive_raw(request, writer, settings.max_upload_bytes)
            await writes.run(
                lambda session: service.receive(
                    session,
                    permission.own_dataset(session, principal, dataset_id),
                    staged,
                    settings,
                    file_format,
                ),
                lambda _: writer.keep(),
            )
    settled = await _is_settled(database, dataset_id, _wait_s(prefer))
    response.status_code = 200 if settled else 202
    return await _shown(request, principal, dataset_id)


@router.get("/datasets", operation_id="list_datasets", summary="List datasets")
def list_datasets(
    principal: Caller, session: ReadSession, keyring: KeyringDep, page: PageQuery
) -> Page[DatasetOut]:
    """Your own datasets, those granted to you, and public ones; newest first."""
    rows = accesses.visible(session, principal, page.after_moment, page.fetch)
    shown, following = page.cut(rows, by_creation)
    items = [views.dataset(session, keyring, principal, row) for row in shown]
    return Page(items=items, next=following)


@router.get(
    "/datasets/{dataset_id}",
    operation_id="get_dataset",
    summary="One dataset",
    responses=refusing(404),
)
def get_dataset(
    dataset_id: DatasetId, principal: Caller, session: ReadSession, keyring: KeyringDep
) -> DatasetOut:
    """Its state, dictionary and unit. An analyst sees it after it is ready for the first time."""
    return views.seen(session, keyring, permission.open_dataset(session, principal, dataset_id))


@router.patch(
    "/datasets/{dataset_id}",
    operation_id="rename_dataset",
    summary="Rename a dataset (custodian)",
    responses=refusing(403, 404),
)
def rename_dataset(
    dataset_id: DatasetId,
    form: DatasetPatch,
    principal: Caller,
    session: WriteSession,
    keyring: KeyringDep,
) -> DatasetOut:
    """Only the name can be changed; the declared public facts cannot."""
    row = permission.own_dataset(session, principal, dataset_id)
    service.rename(row, form.name)
    return views.dataset(session, keyring, principal, row)


@router.delete(
    "/datasets/{dataset_id}",
    operation_id="erase_dataset",
    summary="Erase a dataset (custodian)",
    responses=refusing(403, 404),
)
async def erase_dataset(
    request: Request,
    dataset_id: DatasetId,
    principal: Caller,
    database: DatabaseDep,
    settings: SettingsDep,
    writes: Writes,
    with_releases: Annotated[
        bool,
        Query(alias="releases", description="Also withdraw samples, models and measurements."),
    ] = False,
) -> DatasetOut:
    """The table is permanently deleted when the response arrives, and its jobs are stopped.

    Ledger and account stay; released samples and measurements stay too, unless `releases=true`.
    """
    collections = await writes.run(
        lambda session: erasure.erase(session, principal, dataset_id, with_releases=with_releases),
    )
    # A thread of its own: it waits for the store, and must not hold one that writers need.
    await to_thread.run_sync(
        erasure.purge, database, settings, collections, limiter=CapacityLimiter(1)
    )
    return await _shown(request, principal, dataset_id)


@router.get(
    "/datasets/{dataset_id}/schema",
    operation_id="get_dictionary",
    summary="The data dictionary",
    response_model=dict[str, Any],
    responses={200: {"content": {"application/json": {"schema": DICTIONARY}}}, **refusing(404)},
)
def get_dictionary(dataset_id: DatasetId, principal: Caller, session: ReadSession) -> Any:
    """In its canonical wire form: a Frictionless Table Schema with Halftone's own keys."""
    return permission.open_dataset(session, principal, dataset_id).dataset.schema


@router.get(
    "/datasets/{dataset_id}/ingest-report",
    operation_id="get_ingest_report",
    summary="Result of the last upload (custodian)",
    responses=refusing(403, 404, 409),
)
def get_ingest_report(
    dataset_id: DatasetId, principal: Caller, session: ReadSession, keyring: KeyringDep
) -> IngestReportOut:
    """For the custodian alone: counts and faults with rows and columns. Not private."""
    row = permission.own_dataset(session, principal, dataset_id)
    if row.state == "ingesting":
        raise NotReady("The upload is still being ingested.")
    report = private_facts.readable_report(row, keyring)
    if report is None:
        raise NotFound("Nothing was uploaded, or it was erased.")
    return IngestReportOut.model_validate({"state": row.state, **report})


@router.post(
    "/dictionaries/proposals",
    operation_id="propose_dictionary",
    summary="A dictionary to start from (custodian)",
    responses=refusing(403),
    openapi_extra=PROPOSAL_BODY,
)
async def propose_dictionary(
    request: Request,
    _: Custodian,
    settings: SettingsDep,
    file_format: FileFormat = None,
    source: Annotated[
        Literal["nist", "nist-dictionary", "private-pgm"] | None,
        Query(
            alias="from",
            description="Import a JSON document: `nist` for a challenge's parameters.json,"
            " `nist-dictionary` for the data_dictionary.json of the Diverse Communities Data"
            " Excerpts, `private-pgm` for a domain.json.",
        ),
    ] = None,
    encoding: Annotated[
        str | None, Query(description="Of the text; otherwise UTF-8, or guessed and noted.")
    ] = None,
    delimiter: Annotated[
        str | None, Query(description="Between cells; otherwise read off the header.")
    ] = None,
    header: Annotated[
        bool, Query(description="False if the first row is one of data, not of names.")
    ] = True,
    missing: Annotated[
        str | None,
        Query(description="Spellings of null, with commas between; otherwise common ones."),
    ] = None,
) -> ProposalOut:
    """Made from the table in the body, which is not kept, or imported with `from`.

    A proposal from a table is private until you have checked every field against what is publicly
    known. `notes` say what in it is a guess. Of more than 256 MiB the first part is read.
    """
    async with uploads.draining_before_refusal(request):
        if source is not None:
            document = parse_json(await read_limited(request, settings.max_body_bytes))
            return await to_thread.run_sync(proposals.from_document, source, document)
        options = proposals.options_of(
            settings,
            format=file_format,
            encoding=encoding,
            delimiter=delimiter,
            header=header,
        )
        staging = StagingArea(settings)
        limit = settings.max_upload_bytes
        with await to_thread.run_sync(staging.writer) as writer:
            staged = await uploads.receive_raw(request, writer, limit)
            return await to_thread.run_sync(
                proposals.from_table,
                staging,
                staged,
                options,
                missing.split(",") if missing else (),
            )


async def _create_from_form(
    request: Request, principal: Principal, key: str | None
) -> tuple[tuple[int, str, bool], Attempt | None]:
    settings: Settings = request.app.state.settings
    writer = await to_thread.run_sync(StagingArea(settings).writer)
    with writer:
        form = await uploads.FormReader(
            request,
            writer,
            read_spec=lambda raw: read_spec(raw, settings),
            spec_bytes=settings.max_body_bytes,
            file_bytes=settings.max_upload_bytes,
        ).read()
        # The digest of the file is part of what must be equal in a repeated request.
        sent = {"spec": form.raw, "file": form.staged.sha256}
        attempt = _attempt(request, principal, key, sent)
        made = await _create(request, principal, form.spec, form.staged, attempt, writer)
    return made, attempt


async def _create(
    request: Request,
    principal: Principal,
    draft: DatasetDraft,
    staged: StagedFile | None,
    attempt: Attempt | None,
    writer: StagedWriter | None = None,
) -> tuple[int, str, bool]:
    """Status, id, and whether an earlier request with the same key created it."""
    settings: Settings = request.app.state.settings
    status = 201 if staged is None else 202

    def work(session: Session) -> tuple[int, str, bool]:
        replay = find_replay(session, attempt)
        if replay is not None:
            return replay.status, replay.resource_id, True
        row = service.create(session, principal, draft, staged, settings)
        remember(session, attempt, status, row.id)
        return status, row.id, False

    # Runs after the commit: a file that no row refers to must be deleted, and never the other way.
    def committed(made: tuple[int, str, bool]) -> None:
        if writer is not None and not made[2]:
            writer.keep()

    writes = await get_writes(request)
    return await writes.run(work, committed)


def _attempt(
    request: Request, principal: Principal, key: str | None, sent: dict[str, Any]
) -> Attempt | None:
    if key is None:
        return None
    request_key: bytes = request.app.state.request_key
    return Attempt(principal.id, "datasets.create", key, body_hash(sent, request_key))


def _check_receiving(
    database: Database, principal: Principal, dataset_id: str, settings: Settings
) -> None:
    with database.read() as session:
        service.check_receiving(permission.own_dataset(session, principal, dataset_id))
        quota.check_upload(session, principal.id, settings)


async def _check_room(database: Database, principal: Principal, settings: Settings) -> None:
    def check() -> None:
        with database.read() as session:
            quota.check_upload(session, principal.id, settings)

    await to_thread.run_sync(check)


def _wait_s(prefer: str | None) -> int:
    """Seconds of a preference such as `respond-async, wait=30` (RFC 7240); 0 without one."""
    found = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})", prefer or "", re.ASCII)
    return min(int(found[1]), LONGEST_WAIT_S) if found else 0


async def _is_settled(database: Database, dataset_id: str, wait_s: int) -> bool:
    """Whether the ingest ends within the time."""

    def look() -> bool:
        with database.read() as session:
            row = repository.get(session, dataset_id)
            return row is None or row.state != "ingesting"

    deadline = time.monotonic() + wait_s
    looks = 0
    while wait_s and time.monotonic() < deadline:
        if await to_thread.run_sync(look):
            return True
        await anyio.sleep(_LOOK_S[min(looks, len(_LOOK_S) - 1)])
        looks += 1
    return False


async def _shown(request: Request, principal: Principal, dataset_id: str) -> DatasetOut:
    database: Database = request.app.state.database
    keyring: Keyring = request.app.state.keyring

    def show() -> DatasetOut:
        with database.read() as session:
            access = permission.open_dataset(session, principal, dataset_id)
            return views.seen(session, keyring, access)

    return await to_thread.run_sync(show)
