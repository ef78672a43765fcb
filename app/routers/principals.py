"""Principals with their API keys, and the audit log of their actions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from app.access import reading
from app.idempotency import Attempt, find_replay, remember
from app.problems import NotFound
from app.routers.dependencies import Admin, Caller, ReadSession, WriteSession, attempt_of
from app.routers.description import refusing
from app.routers.idempotent import MADE_HEADERS, answer_made
from app.routers.paging import Page, PageQuery, by_creation
from app.routers.paths import KeyId, PrincipalId
from app.routers.wire import ExactRoute
from app.security import repository, service
from app.security.schemas import (
    AuditEntry,
    KeyIn,
    KeyMade,
    KeyOut,
    MeOut,
    PrincipalChangeIn,
    PrincipalIn,
    PrincipalOut,
)

router = APIRouter(prefix="/v1", tags=["principals"], route_class=ExactRoute)


@router.get("/me", operation_id="get_me", summary="Who am I, and with which key?")
def get_me(principal: Caller, session: ReadSession) -> MeOut:
    """The principal with its roles, and the key that the request came with."""
    key = repository.key(session, principal.id, principal.key_id or "")
    if key is None:
        raise NotFound
    return MeOut.holding(service.get_principal(session, principal.id), key)


@router.post(
    "/principals",
    status_code=201,
    operation_id="create_principal",
    summary="Create a principal (admin)",
    responses={201: {"headers": MADE_HEADERS}, **refusing(403, 409)},
)
def create_principal(
    new: PrincipalIn,
    actor: Admin,
    attempt: Annotated[Attempt | None, Depends(attempt_of("create_principal"))],
    session: WriteSession,
    request: Request,
    response: Response,
) -> PrincipalOut:
    """It owns nothing and has no key yet: create one next."""
    replay = find_replay(session, attempt)
    if replay is not None:
        row = service.get_principal(session, replay.resource_id)
    else:
        row = service.create_principal(session, actor, name=new.name, roles=new.roles)
        remember(session, attempt, 201, row.id)
    answer_made(request, response, f"/v1/principals/{row.id}", replayed=replay is not None)
    return PrincipalOut.of(row)


@router.get(
    "/principals",
    operation_id="list_principals",
    summary="All principals (admin)",
    responses=refusing(403),
)
def list_principals(actor: Admin, session: ReadSession, page: PageQuery) -> Page[PrincipalOut]:
    """Oldest first, disabled ones included."""
    del actor
    rows, following = page.cut(
        repository.principals(session, page.after_moment, page.fetch), key=by_creation
    )
    return Page(items=[PrincipalOut.of(row) for row in rows], next=following)


@router.get(
    "/principals/{principal_id}",
    operation_id="get_principal",
    summary="One principal (admin, or yourself)",
    responses=refusing(404),
)
def get_principal(principal_id: PrincipalId, actor: Caller, session: ReadSession) -> PrincipalOut:
    """Name, roles and state."""
    return PrincipalOut.of(service.visible_principal(session, actor, principal_id))


@router.patch(
    "/principals/{principal_id}",
    operation_id="change_principal",
    summary="Rename, change roles, disable or enable (admin)",
    description="409 if no admin with a working key would be left.",
    responses=refusing(403, 404, 409),
)
def change_principal(
    principal_id: PrincipalId, change: PrincipalChangeIn, actor: Admin, session: WriteSession
) -> PrincipalOut:
    row = service.change_principal(
        session, actor, principal_id, name=change.name, roles=change.roles, state=change.state
    )
    return PrincipalOut.of(row)


@router.post(
    "/principals/{principal_id}/keys",
    status_code=201,
    operation_id="create_key",
    summary="Create an API key; it is shown once (admin, or for yourself)",
    description="A key that expires cannot create one that expires later, unless it is an admin's.",
    responses={201: {"headers": MADE_HEADERS}, **refusing(404, 409)},
)
def create_key(
    principal_id: PrincipalId,
    new: KeyIn,
    actor: Caller,
    attempt: Annotated[Attempt | None, Depends(attempt_of("create_key"))],
    session: WriteSession,
    request: Request,
    response: Response,
) -> KeyMade:
    replay = find_replay(session, attempt)
    if replay is not None:
        row = service.get_key(session, actor, principal_id, replay.resource_id)
        # Only the digest is stored, so a repeated request cannot show the secret again.
        shown = KeyMade.showing(row, None)
    else:
        made = service.create_key(
            session, actor, principal_id, label=new.label or "", expires_at=new.expiry()
        )
        row, shown = made.row, KeyMade.showing(made.row, made.secret)
        remember(session, attempt, 201, row.id)
    answer_made(
        request,
        response,
        f"/v1/principals/{principal_id}/keys/{row.id}",
        replayed=replay is not None,
    )
    # The response holds a secret, which no proxy or browser may keep.
    response.headers["Cache-Control"] = "no-store"
    return shown


@router.get(
    "/principals/{principal_id}/keys",
    operation_id="list_keys",
    summary="A principal's API keys, without their secrets (admin, or your own)",
    responses=refusing(404),
)
def list_keys(
    principal_id: PrincipalId, actor: Caller, session: ReadSession, page: PageQuery
) -> Page[KeyOut]:
    """Oldest first, expired and revoked ones included."""
    service.visible_principal(session, actor, principal_id)
    rows, following = page.cut(
        repository.keys(session, principal_id, page.after_moment, page.fetch), key=by_creation
    )
    return Page(items=[KeyOut.of(row) for row in rows], next=following)


@router.get(
    "/principals/{principal_id}/keys/{key_id}",
    operation_id="get_key",
    summary="One API key, without its secret (admin, or your own)",
    responses=refusing(404),
)
def get_key(
    principal_id: PrincipalId, key_id: KeyId, actor: Caller, session: ReadSession
) -> KeyOut:
    """What it is for, how it starts, and whether it works."""
    return KeyOut.of(service.get_key(session, actor, principal_id, key_id))


@router.delete(
    "/principals/{principal_id}/keys/{key_id}",
    status_code=204,
    operation_id="revoke_key",
    summary="Revoke an API key at once (admin, or your own)",
    description="409 for your last key, and for the last key of the last admin.",
    response_class=Response,
    responses={204: {"description": "It does not work any more."}, **refusing(404, 409)},
)
def revoke_key(
    principal_id: PrincipalId, key_id: KeyId, actor: Caller, session: WriteSession
) -> None:
    service.revoke_key(session, actor, principal_id, key_id)


@router.get(
    "/audit",
    operation_id="list_audit",
    summary="The audit log, newest first (admin; custodians and auditors for their datasets)",
    responses=refusing(403),
)
def list_audit(actor: Caller, session: ReadSession, page: PageQuery) -> Page[AuditEntry]:
    """Who changed what. It says nothing about the rows of a dataset.

    Custodians read what concerns their datasets, auditors what concerns those granted to them.
    """
    rows, following = page.cut(
        reading.audit_entries(session, actor, before=page.after_number, limit=page.fetch),
        key=lambda row: str(row.id),
    )
    return Page(items=[AuditEntry.of(row) for row in rows], next=following)
