"""Principals, API keys, grants and the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from app.idempotency import Attempt, find_replay, remember
from app.problems import NotFound
from app.routers.dependencies import Admin, Caller, ReadSession, WriteSession, attempt_of
from app.routers.paging import Page, PageQuery, by_creation
from app.routers.wire import ExactRoute
from app.security import grants, repository, service
from app.security.access import own_dataset
from app.security.schemas import (
    AuditEntry,
    GrantIn,
    GrantOut,
    GrantTermsIn,
    KeyIn,
    KeyMade,
    KeyOut,
    MeOut,
    PrincipalChangeIn,
    PrincipalIn,
    PrincipalOut,
)

router = APIRouter(prefix="/v1", tags=["principals"], route_class=ExactRoute)


def _made(response: Response, location: str, *, replayed: bool) -> None:
    response.headers["Location"] = location
    if replayed:
        response.headers["Idempotent-Replayed"] = "true"


@router.get("/me", operation_id="get_me", summary="Who am I, and with which key?")
def get_me(principal: Caller, session: ReadSession) -> MeOut:
    key = repository.key(session, principal.id, principal.key_id or "")
    if key is None:
        raise NotFound
    return MeOut.holding(service.get_principal(session, principal.id), key)


@router.post(
    "/principals",
    status_code=201,
    operation_id="create_principal",
    summary="Make a principal (admin)",
)
def create_principal(
    new: PrincipalIn,
    actor: Admin,
    attempt: Annotated[Attempt | None, Depends(attempt_of("create_principal"))],
    session: WriteSession,
    response: Response,
) -> PrincipalOut:
    replay = find_replay(session, attempt)
    if replay is not None:
        row = service.get_principal(session, replay.resource_id)
    else:
        row = service.create_principal(session, actor, name=new.name, roles=new.roles)
        remember(session, attempt, 201, row.id)
    _made(response, f"/v1/principals/{row.id}", replayed=replay is not None)
    return PrincipalOut.of(row)


@router.get("/principals", operation_id="list_principals", summary="All principals (admin)")
def list_principals(actor: Admin, session: ReadSession, page: PageQuery) -> Page[PrincipalOut]:
    del actor
    rows, following = page.cut(
        repository.principals(session, page.after_moment, page.fetch), key=by_creation
    )
    return Page(items=[PrincipalOut.of(row) for row in rows], next=following)


@router.get(
    "/principals/{principal_id}",
    operation_id="get_principal",
    summary="One principal (admin, or yourself)",
)
def get_principal(principal_id: str, actor: Caller, session: ReadSession) -> PrincipalOut:
    return PrincipalOut.of(service.visible_principal(session, actor, principal_id))


@router.patch(
    "/principals/{principal_id}",
    operation_id="change_principal",
    summary="Rename, give other roles, disable or enable (admin)",
    description="409 if nobody who can administer the service would be left.",
)
def change_principal(
    principal_id: str, change: PrincipalChangeIn, actor: Admin, session: WriteSession
) -> PrincipalOut:
    row = service.change_principal(
        session, actor, principal_id, name=change.name, roles=change.roles, state=change.state
    )
    return PrincipalOut.of(row)


@router.post(
    "/principals/{principal_id}/keys",
    status_code=201,
    operation_id="create_key",
    summary="Make an API key; it is shown once (admin, or for yourself)",
    description="A key that expires cannot make one that outlives it, unless it is an admin's.",
)
def create_key(
    principal_id: str,
    new: KeyIn,
    actor: Caller,
    attempt: Annotated[Attempt | None, Depends(attempt_of("create_key"))],
    session: WriteSession,
    response: Response,
) -> KeyMade:
    replay = find_replay(session, attempt)
    if replay is not None:
        row = service.get_key(session, actor, principal_id, replay.resource_id)
        shown = KeyMade.showing(row, None)
    else:
        made = service.create_key(
            session, actor, principal_id, label=new.label or "", expires_at=new.expiry()
        )
        row, shown = made.row, KeyMade.showing(made.row, made.secret)
        remember(session, attempt, 201, row.id)
    _made(response, f"/v1/principals/{principal_id}/keys/{row.id}", replayed=replay is not None)
    response.headers["Cache-Control"] = "no-store"
    return shown


@router.get(
    "/principals/{principal_id}/keys",
    operation_id="list_keys",
    summary="A principal's API keys, without their secrets (admin, or your own)",
)
def list_keys(
    principal_id: str, actor: Caller, session: ReadSession, page: PageQuery
) -> Page[KeyOut]:
    service.visible_principal(session, actor, principal_id)
    rows, following = page.cut(
        repository.keys(session, principal_id, page.after_moment, page.fetch), key=by_creation
    )
    return Page(items=[KeyOut.of(row) for row in rows], next=following)


@router.get(
    "/principals/{principal_id}/keys/{key_id}",
    operation_id="get_key",
    summary="One API key, without its secret (admin, or your own)",
)
def get_key(principal_id: str, key_id: str, actor: Caller, session: ReadSession) -> KeyOut:
    return KeyOut.of(service.get_key(session, actor, principal_id, key_id))


@router.delete(
    "/principals/{principal_id}/keys/{key_id}",
    status_code=204,
    operation_id="revoke_key",
    summary="End an API key at once (admin, or your own)",
    description="409 for your last key, and for the last key of the last admin.",
)
def revoke_key(principal_id: str, key_id: str, actor: Caller, session: WriteSession) -> None:
    service.revoke_key(session, actor, principal_id, key_id)


@router.post(
    "/datasets/{dataset_id}/grants",
    status_code=201,
    operation_id="create_grant",
    summary="Let an analyst use the dataset (custodian)",
    description="Granting again after a revocation revives the same grant, with what it spent.",
)
def create_grant(
    dataset_id: str,
    new: GrantIn,
    actor: Caller,
    attempt: Annotated[Attempt | None, Depends(attempt_of("create_grant"))],
    session: WriteSession,
    response: Response,
) -> GrantOut:
    dataset = own_dataset(session, actor, dataset_id)
    accountant = grants.accountant_of(session, dataset)
    replay = find_replay(session, attempt)
    if replay is not None:
        row = grants.get_grant(session, dataset, replay.resource_id)
    else:
        row = grants.create_grant(
            session,
            actor,
            dataset,
            principal_id=new.principal_id,
            allowance=new.allowance.to_cap(accountant) if new.allowance else None,
            show_budget=bool(new.show_budget),
        )
        remember(session, attempt, 201, row.id)
    _made(response, f"/v1/datasets/{dataset_id}/grants/{row.id}", replayed=replay is not None)
    return GrantOut.of(row, accountant)


@router.get(
    "/datasets/{dataset_id}/grants",
    operation_id="list_grants",
    summary="Who may use the dataset, revoked grants included (custodian)",
)
def list_grants(
    dataset_id: str, actor: Caller, session: ReadSession, page: PageQuery
) -> Page[GrantOut]:
    dataset = own_dataset(session, actor, dataset_id)
    accountant = grants.accountant_of(session, dataset)
    rows, following = page.cut(
        repository.grants(session, dataset_id, page.after_moment, page.fetch), key=by_creation
    )
    return Page(items=[GrantOut.of(row, accountant) for row in rows], next=following)


@router.get(
    "/datasets/{dataset_id}/grants/{grant_id}",
    operation_id="get_grant",
    summary="One grant (custodian)",
)
def get_grant(dataset_id: str, grant_id: str, actor: Caller, session: ReadSession) -> GrantOut:
    dataset = own_dataset(session, actor, dataset_id)
    accountant = grants.accountant_of(session, dataset)
    return GrantOut.of(grants.get_grant(session, dataset, grant_id), accountant)


@router.patch(
    "/datasets/{dataset_id}/grants/{grant_id}",
    operation_id="change_grant",
    summary="Change terms of a grant; what is omitted stays (custodian)",
)
def change_grant(
    dataset_id: str, grant_id: str, terms: GrantTermsIn, actor: Caller, session: WriteSession
) -> GrantOut:
    dataset = own_dataset(session, actor, dataset_id)
    accountant = grants.accountant_of(session, dataset)
    row = grants.change_grant(
        session,
        actor,
        grants.get_grant(session, dataset, grant_id),
        allowance=terms.allowance.to_cap(accountant) if terms.allowance else None,
        show_budget=terms.show_budget,
    )
    return GrantOut.of(row, accountant)


@router.put(
    "/datasets/{dataset_id}/grants/{grant_id}",
    operation_id="replace_grant",
    summary="Put other terms in force; without an allowance only the budget limits (custodian)",
)
def replace_grant(
    dataset_id: str, grant_id: str, terms: GrantTermsIn, actor: Caller, session: WriteSession
) -> GrantOut:
    dataset = own_dataset(session, actor, dataset_id)
    accountant = grants.accountant_of(session, dataset)
    row = grants.replace_grant(
        session,
        actor,
        grants.get_grant(session, dataset, grant_id),
        allowance=terms.allowance.to_cap(accountant) if terms.allowance else None,
        show_budget=bool(terms.show_budget),
    )
    return GrantOut.of(row, accountant)


@router.delete(
    "/datasets/{dataset_id}/grants/{grant_id}",
    status_code=204,
    operation_id="revoke_grant",
    summary="Take a grant back; what was charged under it stays charged (custodian)",
)
def revoke_grant(dataset_id: str, grant_id: str, actor: Caller, session: WriteSession) -> None:
    dataset = own_dataset(session, actor, dataset_id)
    grants.revoke_grant(session, actor, grants.get_grant(session, dataset, grant_id))


@router.get(
    "/audit",
    operation_id="list_audit",
    summary="The audit log, newest first (admin; custodians for grants and budgets of their own)",
)
def list_audit(actor: Caller, session: ReadSession, page: PageQuery) -> Page[AuditEntry]:
    rows, following = page.cut(
        repository.audit_entries(
            session,
            page.after_number,
            page.fetch,
            owner_id=service.expect_audit_reader(actor),
        ),
        key=lambda row: str(row.id),
    )
    return Page(items=[AuditEntry.of(row) for row in rows], next=following)
