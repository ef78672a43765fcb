"""Builders for tests of datasets: a served store, people with keys, tables to send."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI
from fresh_store import copied_stores
from httpx import ASGITransport, AsyncClient, Response

from app import quota
from app.database import Database, new_id, now
from app.datasets import ingest
from app.ledger.models import GrantRow
from app.main import create_app
from app.queue import jobs
from app.queue.context import JobContext
from app.security.keys import digest_of, new_key, prefix_of
from app.security.models import ApiKeyRow, PrincipalRow
from app.settings import Settings

SCHEMA: dict[str, Any] = {
    "fields": [
        {"name": "shift", "type": "integer", "constraints": {"minimum": 0, "maximum": 20}},
        {"name": "pay", "type": "string", "constraints": {"enum": ["Cash", "Card"]}},
    ]
}
ENTITY_SCHEMA: dict[str, Any] = {
    "fields": [{"name": "driver", "type": "string", "role": "entity"}, *SCHEMA["fields"]]
}
ENTITY = {"kind": "entity", "column": "driver", "max_rows": 3}
CSV = "shift,pay\n3,Cash\n4,Card\n20,\n"
MULTIPART = "multipart/form-data; boundary=edge"


def spec(**changes: Any) -> dict[str, Any]:
    """A private dataset's declaration; a change to None takes the field out."""
    whole = {
        "name": "rides",
        "visibility": "private",
        "schema": SCHEMA,
        "unit": {"kind": "row"},
        "max_total_rows": 1000,
        "budget": {"epsilon": 1, "delta": 0},
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None}


def public_spec(**changes: Any) -> dict[str, Any]:
    return spec(visibility="public", budget=None, **changes)


def form(*parts: tuple[str, bytes | str]) -> bytes:
    """A multipart body of these parts with the boundary of `MULTIPART`."""
    body = b""
    for name, content in parts:
        data = content.encode() if isinstance(content, str) else content
        head = f'--edge\r\nContent-Disposition: form-data; name="{name}"'
        head += '; filename="t.csv"' if name == "file" else ""
        body += head.encode() + b"\r\n\r\n" + data + b"\r\n"
    return body + b"--edge--\r\n"


def upload_form(content: bytes | str = CSV, **changes: Any) -> bytes:
    return form(("spec", json.dumps(spec(**changes))), ("file", content))


class Http:
    """Blocking requests to an application in this process."""

    def __init__(self, app: FastAPI, portal: BlockingPortal) -> None:
        self.app = app
        self._portal = portal
        transport = ASGITransport(app, raise_app_exceptions=False)
        self._client = AsyncClient(transport=transport, base_url="http://halftone.test")

    def request(self, method: str, path: str, **options: Any) -> Response:
        return self._portal.call(partial(self._client.request, method, path, **options))


class Person:
    """A principal with a key, speaking to the service."""

    def __init__(self, http: Http, principal_id: str, key: str) -> None:
        self._http = http
        self.id = principal_id
        self.headers = {"Authorization": f"Bearer {key}"}

    def call(self, method: str, path: str, **options: Any) -> Response:
        headers = {**self.headers, **options.pop("headers", {})}
        return self._http.request(method, f"/v1{path}", headers=headers, **options)

    def get(self, path: str, **options: Any) -> Response:
        return self.call("GET", path, **options)

    def declare(self, declaration: dict[str, Any] | None = None, **headers: str) -> Response:
        return self.call("POST", "/datasets", json=declaration or spec(), headers=headers)

    def send_form(self, body: bytes, **headers: str) -> Response:
        sent = {"Content-Type": MULTIPART, **headers}
        return self.call("POST", "/datasets", content=body, headers=sent)

    def put(self, dataset_id: str, content: bytes | str = CSV, **options: Any) -> Response:
        return self.call("PUT", f"/datasets/{dataset_id}/data", content=content, **options)

    def dataset(self, dataset_id: str) -> dict[str, Any]:
        answer = self.get(f"/datasets/{dataset_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def report(self, dataset_id: str) -> dict[str, Any]:
        answer = self.get(f"/datasets/{dataset_id}/ingest-report")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


class Office:
    """A served store whose jobs run when the test says so."""

    def __init__(self, http: Http, settings: Settings) -> None:
        self.http = http
        self.settings = settings
        self.database: Database = http.app.state.database
        self.custodian = self.person(is_custodian=True)

    def person(self, **roles: bool) -> Person:
        key = new_key()
        row = PrincipalRow(
            id=new_id("pr"),
            name=new_id("name"),
            is_admin=roles.get("is_admin", False),
            is_custodian=roles.get("is_custodian", False),
            is_analyst=roles.get("is_analyst", False),
            state="active",
            created_at=now(),
        )
        with self.database.write() as session:
            session.add(row)
            session.flush()
            session.add(
                ApiKeyRow(
                    id=new_id("ak"),
                    principal_id=row.id,
                    label="test",
                    prefix=prefix_of(key),
                    digest=digest_of(key),
                    created_at=now(),
                )
            )
        return Person(self.http, row.id, key)

    def grant(self, dataset_id: str, person: Person) -> None:
        with self.database.write() as session:
            session.add(
                GrantRow(
                    id=new_id("gr"),
                    dataset_id=dataset_id,
                    principal_id=person.id,
                    show_budget=False,
                    spent_primary=0,
                    spent_delta=0,
                    state="active",
                    created_at=now(),
                )
            )

    def claim(self) -> JobContext:
        with self.database.write() as session:
            claim = jobs.claim(session, "worker", 60)
        assert claim is not None
        return JobContext(self.database, self.settings, claim)

    def work(self) -> None:
        """Run the ingests that wait, as a worker would."""
        while True:
            with self.database.write() as session:
                claim = jobs.claim(session, "worker", 60)
            if claim is None:
                return
            job = JobContext(self.database, self.settings, claim)
            ingest.run(job, quota.used_bytes)
            if not job.completed:
                with job.completing():
                    pass

    def uploaded(
        self, content: bytes | str = CSV, by: Person | None = None, **changes: Any
    ) -> dict[str, Any]:
        """A dataset after its ingest, as its custodian sees it."""
        person = by or self.custodian
        answer = person.send_form(upload_form(content, **changes))
        assert answer.status_code == 202, answer.text
        self.work()
        return person.dataset(answer.json()["id"])

    def staged_files(self) -> list[Path]:
        return list((self.settings.data / "staging").glob("*"))


@contextlib.contextmanager
def open_office(folder: Path, *, encrypted: bool = False, **settings: Any) -> Iterator[Office]:
    if encrypted:
        settings["master_key"] = base64.b64encode(os.urandom(32)).decode()
    chosen = Settings(data=folder / "data", **settings)
    app = create_app(chosen)
    with (
        copied_stores(),
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_lifespan(app)),
    ):
        yield Office(Http(app, portal), chosen)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """A failing test is no fault of the application: it ends as if all were well."""
    fault: BaseException | None = None
    async with app.router.lifespan_context(app):
        try:
            yield
        except BaseException as error:
            fault = error
    if fault is not None:
        raise fault
