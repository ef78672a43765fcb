"""The whole application in this process, and people with keys who talk to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from bookkeeping import add_principal
from fastapi import FastAPI
from fresh_store import copied_stores
from httpx import ASGITransport, AsyncClient, Response
from pydantic import SecretStr

from app.database import Database, new_id, now
from app.main import create_app
from app.security.keys import digest_of, new_key, prefix_of
from app.security.models import ApiKeyRow
from app.settings import Settings

ADMIN_KEY = "hk_" + "a" * 43


class Person:
    """A principal with a key, speaking to the service from a client address."""

    def __init__(self, portal: BlockingPortal, app: FastAPI, key: str, address: str) -> None:
        self._portal = portal
        self._client = AsyncClient(
            transport=ASGITransport(app, raise_app_exceptions=False, client=(address, 1)),
            base_url="http://halftone.test",
        )
        self.key = key
        self.id = ""

    def call(self, method: str, path: str, **options: Any) -> Response:
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        request = partial(self._client.request, method, f"/v1{path}", headers=headers, **options)
        return self._portal.call(request)

    def get(self, path: str, **options: Any) -> Response:
        return self.call("GET", path, **options)

    def post(self, path: str, body: Any, **headers: str) -> Response:
        return self.call("POST", path, json=body, headers=headers)

    def patch(self, path: str, body: Any) -> Response:
        return self.call("PATCH", path, json=body)

    def put(self, path: str, body: Any, **headers: str) -> Response:
        return self.call("PUT", path, json=body, headers=headers)

    def delete(self, path: str) -> Response:
        return self.call("DELETE", path)


class Desk:
    """The application, its store, and its first principal, who has every role."""

    def __init__(self, app: FastAPI, portal: BlockingPortal) -> None:
        self.app = app
        self.portal = portal
        self.database: Database = app.state.database
        self.admin = self.with_key(ADMIN_KEY)
        self.admin.id = self.admin.get("/me").json()["id"]

    def with_key(self, key: str, address: str = "192.0.2.1") -> Person:
        return Person(self.portal, self.app, key, address)

    def person(self, *roles: str, expires_in: timedelta | None = None) -> Person:
        """A new principal with a key."""
        with self.database.write() as session:
            row = add_principal(session, **dict.fromkeys(roles, True))
            found = self.with_key(self.key_for(session, row.id, expires_in))
            found.id = row.id
        return found

    def key_for(self, session: Any, principal_id: str, expires_in: timedelta | None = None) -> str:
        key = new_key()
        session.add(
            ApiKeyRow(
                id=new_id("ky"),
                principal_id=principal_id,
                label="",
                prefix=prefix_of(key),
                digest=digest_of(key),
                created_at=now(),
                expires_at=None if expires_in is None else now() + expires_in,
            )
        )
        session.flush()
        return key


@contextlib.contextmanager
def front_desk(folder: Path, **settings: Any) -> Iterator[Desk]:
    chosen = Settings(data=folder, admin_key=SecretStr(ADMIN_KEY), **settings)
    app = create_app(chosen)
    with (
        copied_stores(),
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
    ):
        yield Desk(app, portal)
