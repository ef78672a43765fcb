"""Budgets and ledgers of datasets."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from app.access import permission, reading
from app.engine.privacy.loss import Accountant
from app.integrity import ledgers
from app.ledger import budgets, export, snapshot, statement
from app.ledger.schemas import (
    AccountStatementOut,
    BudgetChangeIn,
    BudgetOut,
    LedgerLine,
    VerificationOut,
)
from app.problems import PreconditionFailed, PreconditionRequired
from app.routers.data import FILE_HEADERS, TagHeader, etag_matches, file_headers, gathered
from app.routers.dependencies import Caller, DatabaseDep, ReadSession, WriteSession
from app.routers.description import refusing
from app.routers.paging import Page, PageQuery
from app.routers.paths import DatasetId
from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["ledger"], route_class=ExactRoute)

_ETAG = {"ETag": {"description": "Hash of the body.", "schema": {"type": "string"}}}


def _etag(budget: BudgetOut) -> str:
    return f'"{hashlib.sha256(budget.model_dump_json().encode()).hexdigest()[:32]}"'


@router.get(
    "/datasets/{dataset_id}/budget",
    operation_id="get_budget",
    summary="The budget: total, spent, remaining, or your allowance",
    responses={200: {"headers": _ETAG}, **refusing(404)},
)
def get_budget(
    dataset_id: DatasetId, principal: Caller, session: ReadSession, response: Response
) -> BudgetOut:
    """The custodian and auditors see the totals. An analyst sees their own allowance, and the
    totals if the grant shows them. Send its ETag as `If-Match` to change the budget."""
    access = permission.open_dataset(session, principal, dataset_id)
    shown = BudgetOut.of(reading.budget(session, access))
    response.headers["ETag"] = _etag(shown)
    return shown


@router.put(
    "/datasets/{dataset_id}/budget",
    operation_id="set_budget",
    summary="Change the budget, with a reason (custodian)",
    description="Absolute values. Send the ETag of the budget as you saw it in `If-Match`, so"
    " that you decide on the current spending. The change is recorded in the ledger; the account's"
    " guarantee becomes the one of the highest cap so far.",
    responses={200: {"headers": _ETAG}, **refusing(403, 404, 409, 412, 428)},
)
def set_budget(
    dataset_id: DatasetId,
    change: BudgetChangeIn,
    principal: Caller,
    session: WriteSession,
    response: Response,
    if_match: Annotated[
        str | None, Header(alias="If-Match", description="ETag of the budget that you saw.")
    ] = None,
) -> BudgetOut:
    permission.own_dataset(session, principal, dataset_id)
    access = permission.open_dataset(session, principal, dataset_id)
    # In the write transaction, so that no release can be charged between the check and the change.
    _expect_match(if_match, _etag(BudgetOut.of(reading.budget(session, access))))
    budgets.change(
        session,
        reading.account_of(access),
        dataset_id=dataset_id,
        principal_id=principal.id,
        epsilon=change.epsilon,
        delta=change.delta,
        delta_for_approximate=change.delta_for_approximate,
        reason=change.reason,
    )
    shown = BudgetOut.of(reading.budget(session, access))
    response.headers["ETag"] = _etag(shown)
    return shown


def _expect_match(if_match: str | None, etag: str) -> None:
    if if_match is None:
        raise PreconditionRequired("Send `If-Match` with the ETag from GET of this budget.")
    if if_match.strip() != "*" and etag not in [tag.strip() for tag in if_match.split(",")]:
        raise PreconditionFailed(
            "The budget or its spending changed since you read it. Read it again, then decide."
        )


@router.get(
    "/datasets/{dataset_id}/ledger",
    operation_id="list_ledger",
    summary="Entries of the ledger, oldest first",
    description="The custodian and auditors read the whole ledger of the dataset's account,"
    " including the entries of its other datasets. An analyst reads the lines of their own releases"
    " on this dataset.",
    responses=refusing(404),
)
def list_ledger(
    dataset_id: DatasetId, principal: Caller, session: ReadSession, page: PageQuery
) -> Page[LedgerLine]:
    access = permission.open_dataset(session, principal, dataset_id)
    accountant = Accountant(reading.account_of(access).accountant)
    rows, following = page.cut(
        reading.entries(session, principal, access, after=page.after_number, limit=page.fetch),
        key=lambda row: str(row.sequence),
    )
    lines = [LedgerLine.of(row, accountant, shows_totals=access.shows_budget) for row in rows]
    return Page(items=lines, next=following)


@router.get(
    "/datasets/{dataset_id}/ledger/verification",
    operation_id="verify_ledger",
    summary="Whether the ledger is intact: chain, sums, caps, grants",
    description="Reads every entry of the account. An analyst whose grant does not show the"
    " budget reads only the result.",
    responses=refusing(404),
)
def verify_ledger(
    dataset_id: DatasetId, principal: Caller, session: ReadSession
) -> VerificationOut:
    access = permission.open_dataset(session, principal, dataset_id)
    found = ledgers.verify(session, reading.account_of(access).id)
    return VerificationOut.of(
        found,
        shows_totals=access.shows_budget,
        shows_problems=access.reads_account,
    )


_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The ledger as JSON Lines: the account, then each entry with its hashes.",
        "headers": FILE_HEADERS,
        "content": {"application/jsonl": {"schema": {"type": "string"}}},
    },
    304: {"description": "Unchanged since the ETag that was sent."},
    **refusing(403, 404, 409),
}


@router.head("/datasets/{dataset_id}/ledger/export", include_in_schema=False)
@router.get(
    "/datasets/{dataset_id}/ledger/export",
    operation_id="export_ledger",
    summary="The ledger in a form that can be verified by itself (custodian, auditors)",
    response_class=StreamingResponse,
    responses=_EXPORT,
)
def export_ledger(
    request: Request,
    dataset_id: DatasetId,
    principal: Caller,
    session: ReadSession,
    database: DatabaseDep,
    if_none_match: TagHeader = None,
) -> Response:
    """The whole account, as `halftone export` writes it; `halftone verify --file` checks it.

    HEAD gives the same headers and no body.
    """
    access = permission.accountable(session, principal, dataset_id)
    taken = snapshot.take(session, reading.account_of(access).id)
    etag = export.etag(taken)
    headers = file_headers(f"{taken.account.id}-ledger.jsonl", etag)
    if etag_matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    pieces = iter(()) if request.method == "HEAD" else export.pieces(database, taken)
    return StreamingResponse(gathered(pieces), media_type="application/jsonl", headers=headers)


_STATEMENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The statement: a page to read and print, or JSON.",
        "model": AccountStatementOut,
        "content": {"text/html": {"schema": {"type": "string"}}},
    },
    **refusing(403, 404, 409),
}


@router.get(
    "/datasets/{dataset_id}/ledger/statement",
    operation_id="get_account_statement",
    summary="The account in plain words, to be printed (custodian, auditors)",
    response_class=StreamingResponse,
    responses=_STATEMENT,
)
def get_account_statement(
    dataset_id: DatasetId,
    principal: Caller,
    session: ReadSession,
    database: DatabaseDep,
    form: Annotated[
        Literal["html", "json"], Query(alias="format", description="`html` is one page to print.")
    ] = "html",
) -> Response:
    """Opening budget, every charge and refund with its running total, what remains, and whether it
    adds up. People are named by their ids alone."""
    access = permission.accountable(session, principal, dataset_id)
    account = reading.account_of(access)
    taken = snapshot.take(session, account.id)
    head = statement.head(
        taken,
        reading.budget(session, access),
        ledgers.verify(session, account.id),
        dataset_id=access.dataset.id,
        dataset_name=access.dataset.name,
        unit=access.dataset.unit,
    )
    links = snapshot.links(database, taken)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if form == "json":
        pieces, media_type = statement.as_json(head, links), "application/json"
    else:
        pieces, media_type = statement.as_page(head, links), "text/html; charset=utf-8"
        headers["Content-Security-Policy"] = statement.PAGE_CSP
    return StreamingResponse(gathered(pieces), media_type=media_type, headers=headers)
