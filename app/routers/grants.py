"""Grants: which analysts use a dataset, and how much of its budget; who audits it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from sqlalchemy.orm import Session

from app.access import grants, repository
from app.access.permission import own_dataset
from app.access.schemas import GrantIn, GrantOut, GrantTermsIn, allowance_of
from app.engine.privacy.loss import Accountant
from app.idempotency import Attempt, find_replay, remember
from app.ledger.models import AccountRow, GrantRow
from app.routers.dependencies import Caller, ReadSession, WriteSession, attempt_of
from app.routers.description import refusing
from app.routers.idempotent import MADE_HEADERS, answer_made
from app.routers.paging import Page, PageQuery, by_creation
from app.routers.paths import DatasetId, GrantId
from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["grants"], route_class=ExactRoute)


@router.post(
    "/datasets/{dataset_id}/grants",
    status_code=201,
    operation_id="create_grant",
    summary="Let an analyst use the dataset, or an auditor read its ledger (custodian)",
    description="Granting again after a revocation reactivates the same grant, with what it spent."
    " A principal has one grant on a dataset, in one role.",
    responses={201: {"headers": MADE_HEADERS}, **refusing(403, 404, 409)},
)
def create_grant(
    dataset_id: DatasetId,
    new: GrantIn,
    actor: Caller,
    attempt: Annotated[Attempt | None, Depends(attempt_of("create_grant"))],
    session: WriteSession,
    request: Request,
    response: Response,
) -> GrantOut:
    dataset, account = grants.granting(session, actor, dataset_id)
    replay = find_replay(session, attempt)
    if replay is not None:
        row = grants.get_grant(session, dataset, replay.resource_id)
    else:
        row = grants.create_grant(
            session,
            actor,
            dataset,
            principal_id=new.principal_id,
            role=new.role,
            allowance=allowance_of(new.allowance, Accountant(account.accountant)),
            show_budget=new.show_budget,
        )
        remember(session, attempt, 201, row.id)
    answer_made(
        request, response, f"/v1/datasets/{dataset_id}/grants/{row.id}", replayed=replay is not None
    )
    return _shown(session, account, [row])[0]


@router.get(
    "/datasets/{dataset_id}/grants",
    operation_id="list_grants",
    summary="Who may use or audit the dataset, revoked grants included (custodian)",
    responses=refusing(403, 404, 409),
)
def list_grants(
    dataset_id: DatasetId, actor: Caller, session: ReadSession, page: PageQuery
) -> Page[GrantOut]:
    """Oldest first, each with what it has spent."""
    _, account = grants.granting(session, actor, dataset_id)
    rows, following = page.cut(
        repository.grants(session, dataset_id, page.after_moment, page.fetch), key=by_creation
    )
    return Page(items=_shown(session, account, rows), next=following)


@router.get(
    "/datasets/{dataset_id}/grants/{grant_id}",
    operation_id="get_grant",
    summary="One grant (custodian)",
    responses=refusing(403, 404, 409),
)
def get_grant(
    dataset_id: DatasetId, grant_id: GrantId, actor: Caller, session: ReadSession
) -> GrantOut:
    """Its terms, and what it has spent."""
    dataset, account = grants.granting(session, actor, dataset_id)
    return _shown(session, account, [grants.get_grant(session, dataset, grant_id)])[0]


@router.patch(
    "/datasets/{dataset_id}/grants/{grant_id}",
    operation_id="change_grant",
    summary="Change terms of a grant; what is omitted stays as it is (custodian)",
    responses=refusing(403, 404, 409),
)
def change_grant(
    dataset_id: DatasetId,
    grant_id: GrantId,
    terms: GrantTermsIn,
    actor: Caller,
    session: WriteSession,
) -> GrantOut:
    """Send only the terms to change. An allowance below what was spent stops further releases, but
    does not undo any."""
    dataset, account = grants.granting(session, actor, dataset_id)
    row = grants.change_grant(
        session,
        actor,
        grants.get_grant(session, dataset, grant_id),
        allowance=allowance_of(terms.allowance, Accountant(account.accountant)),
        show_budget=terms.show_budget,
    )
    return _shown(session, account, [row])[0]


@router.put(
    "/datasets/{dataset_id}/grants/{grant_id}",
    operation_id="replace_grant",
    summary="Replace the terms; without an allowance only the budget limits (custodian)",
    responses=refusing(403, 404, 409),
)
def replace_grant(
    dataset_id: DatasetId,
    grant_id: GrantId,
    terms: GrantTermsIn,
    actor: Caller,
    session: WriteSession,
) -> GrantOut:
    """What is omitted gets its default: no allowance of its own, and no view of the totals."""
    dataset, account = grants.granting(session, actor, dataset_id)
    row = grants.replace_grant(
        session,
        actor,
        grants.get_grant(session, dataset, grant_id),
        allowance=allowance_of(terms.allowance, Accountant(account.accountant)),
        show_budget=terms.show_budget,
    )
    return _shown(session, account, [row])[0]


@router.delete(
    "/datasets/{dataset_id}/grants/{grant_id}",
    status_code=204,
    operation_id="revoke_grant",
    summary="Revoke a grant; what was charged under it stays charged (custodian)",
    response_class=Response,
    responses={204: {"description": "Revoked."}, **refusing(403, 404)},
)
def revoke_grant(
    dataset_id: DatasetId, grant_id: GrantId, actor: Caller, session: WriteSession
) -> None:
    """Its principal can no longer see the dataset. Granting again reactivates the grant."""
    dataset = own_dataset(session, actor, dataset_id)
    grants.revoke_grant(session, actor, grants.get_grant(session, dataset, grant_id))


def _shown(session: Session, account: AccountRow, rows: Sequence[GrantRow]) -> list[GrantOut]:
    most = grants.within_account(session, account, rows)
    accountant = Accountant(account.accountant)
    return [GrantOut.of(row, accountant, most[row.principal_id]) for row in rows]
