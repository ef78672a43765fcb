"""Dependencies of routes: units of work, the caller, an idempotent attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Depends, Header, Request, Security
from fastapi.security import HTTPBearer
from sqlalchemy.orm import Session

from app.database import Database
from app.idempotency import Attempt, body_hash
from app.problems import Forbidden
from app.routers.writing import WriteQueue
from app.security.authentication import authenticate
from app.security.principals import Principal
from app.settings import Settings
from app.storage.encryption import Keyring

bearer = HTTPBearer(
    scheme_name="ApiKey",
    bearerFormat="hk_...",
    description="Paste only an API key (`hk_...`); the page adds `Bearer` itself.",
    auto_error=False,
)


async def get_database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


async def get_app_settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def read_unit(database: Annotated[Database, Depends(get_database)]) -> Iterator[Session]:
    with database.read() as session:
        yield session


async def write_unit(
    request: Request, database: Annotated[Database, Depends(get_database)]
) -> AsyncIterator[Session]:
    """Commit once, after the endpoint and before the response starts."""
    # The turn is taken before a thread: waiting writers must not occupy all threads of the pool.
    async with request.app.state.writes.turn:
        unit = database.write()
        session = await to_thread.run_sync(unit.__enter__)
        try:
            yield session
        except BaseException as error:
            await to_thread.run_sync(unit.__exit__, type(error), error, error.__traceback__)
            raise
        else:
            await to_thread.run_sync(unit.__exit__, None, None, None)


async def get_keyring(request: Request) -> Keyring:
    keyring: Keyring = request.app.state.keyring
    return keyring


async def get_writes(request: Request) -> WriteQueue:
    writes: WriteQueue = request.app.state.writes
    return writes


DatabaseDep = Annotated[Database, Depends(get_database)]
Writes = Annotated[WriteQueue, Depends(get_writes)]
KeyringDep = Annotated[Keyring, Depends(get_keyring)]
SettingsDep = Annotated[Settings, Depends(get_app_settings)]
# `function` scope: the unit ends before the response starts, so a client never reads of a change
# that did not commit.
ReadSession = Annotated[Session, Depends(read_unit, scope="function")]
WriteSession = Annotated[Session, Depends(write_unit, scope="function")]


_CALLER = "halftone.caller"


def caller_of(request: Request) -> Principal:
    """The caller, from headers alone, once for each request.

    401 without a valid key, 429 after too many failures.
    """
    known: Principal | None = request.scope.get(_CALLER)
    if known is not None:
        return known
    principal = authenticate(
        request.app.state.database,
        request.app.state.failures,
        authorization=request.headers.get("authorization"),
        # The proxy's header counts only if the operator named the proxy in `trusted_proxies`.
        client=request.client.host if request.client else "",
    )
    # In the scope, which is of this request alone; a server may share `state` among requests.
    request.scope[_CALLER] = principal
    return principal


def current_principal(request: Request, _: Annotated[Any, Security(bearer)] = None) -> Principal:
    """The caller, whom the route has found out before anything else of the request was read."""
    return caller_of(request)


Caller = Annotated[Principal, Depends(current_principal)]


def _admin(principal: Caller) -> Principal:
    if not principal.is_admin:
        raise Forbidden("This needs the admin role.")
    return principal


def _custodian(principal: Caller) -> Principal:
    if not principal.is_custodian:
        raise Forbidden("This needs the custodian role.")
    return principal


# Which callers a route takes: by their role alone, so that it can be checked before the body.
ROLE_CHECKS: tuple[Callable[[Principal], Principal], ...] = (_admin, _custodian)
Admin = Annotated[Principal, Depends(_admin)]
Custodian = Annotated[Principal, Depends(_custodian)]


def attempt_of(operation: str) -> Callable[..., Awaitable[Attempt | None]]:
    """A dependency giving the idempotent attempt of a JSON operation, if a key was sent.

    The path's parameters count as part of the body.
    """

    async def attempt(
        request: Request,
        principal: Caller,
        key: Annotated[
            str | None,
            Header(
                alias="Idempotency-Key",
                description="Makes the request safe to repeat: the same key and body give the "
                "first response again.",
                min_length=1,
                max_length=255,
                pattern=r"^[\x21-\x7e]+$",
            ),
        ] = None,
    ) -> Attempt | None:
        if key is None:
            return None
        sent = {"path": dict(request.path_params), "body": getattr(request, "_json", None)}
        hashed = body_hash(sent, request.app.state.request_key)
        return Attempt(principal.id, operation, key, hashed)

    return attempt
