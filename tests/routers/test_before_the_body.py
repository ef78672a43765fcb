"""What every route does before it reads a body: the key, the methods, the query's names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from front_desk import ADMIN_KEY, Desk, front_desk

from app.main import create_app
from app.settings import Settings


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with front_desk(tmp_path_factory.mktemp("desk")) as desk:
        yield desk


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    paths = create_app(Settings(data=Path("unused"))).openapi()["paths"]
    return [
        (method.upper(), path, operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]


OPERATIONS = operations()
GUARDED = [(method, path) for method, path, each in OPERATIONS if each.get("security")]


class Sent:
    """The answer to one request, of whose body nothing but `coming` may be asked for."""

    def __init__(
        self, desk: Desk, method: str, path: str, coming: Any = None, **headers: str
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        body = b""
        stated = {"content-length": "999000", "content-type": "text/html", **headers}
        plain, _, query = re.sub(r"{\w+}", "some", path).partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": plain,
            "raw_path": plain.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "server": ("test", 80),
            "client": ("192.0.2.7", 1),
            "headers": [(key.encode(), value.encode()) for key, value in stated.items()],
        }

        async def receive() -> Any:
            if coming is None:
                raise AssertionError("the body was read")
            return coming

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {key.decode(): value.decode() for key, value in message["headers"]}
            else:
                nonlocal body
                body += message.get("body", b"")

        async def ask() -> None:
            with anyio.fail_after(5):
                await desk.app(scope, receive, send)

        desk.portal.call(ask)
        self.problem: dict[str, Any] = json.loads(body)


@pytest.mark.parametrize(("method", "path"), GUARDED, ids=lambda part: part)
def test_a_stranger_is_refused_before_anything_else_is_looked_at(
    desk: Desk, method: str, path: str
) -> None:
    sent = Sent(desk, method, f"{path}?unknown=1&cursor=!&limit=x")
    assert sent.status == 401
    assert sent.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/nowhere", 404), ("PATCH", "/v1/me", 405), ("POST", "/healthz", 405)],
)
def test_what_no_route_takes_is_refused_without_its_body(
    desk: Desk, method: str, path: str, status: int
) -> None:
    sent = Sent(desk, method, path)
    assert (sent.status, sent.headers["connection"]) == (status, "close")


def test_a_caller_without_the_role_is_refused_before_the_body(desk: Desk) -> None:
    analyst = desk.person("analyst")
    key = {"authorization": f"Bearer {analyst.key}"}
    assert Sent(desk, "POST", "/v1/principals", **key).status == 403
    assert Sent(desk, "POST", "/v1/datasets", **key).status == 403


def test_a_client_that_goes_away_in_its_body_is_no_fault_of_the_service(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    key = {"authorization": f"Bearer {ADMIN_KEY}", "content-type": "application/json"}
    sent = Sent(desk, "POST", "/v1/principals", {"type": "http.disconnect"}, **key)
    assert sent.status == 400
    assert not caplog.records


def test_a_body_that_was_read_leaves_the_connection_open(desk: Desk) -> None:
    assert "connection" not in desk.admin.post("/principals", {}).headers


ALLOWED = {
    "/v1/me": "GET",
    "/v1/datasets": "GET, POST",
    "/v1/datasets/some": "GET, PATCH, DELETE",
    "/v1/datasets/some/grants/some": "GET, PUT, PATCH, DELETE",
    "/v1/releases/some/measurements": "GET, HEAD",
    "/v1/releases/some/report": "GET, POST, DELETE",
    "/v1/samples/some/data": "GET, HEAD",
    "/openapi.json": "GET, HEAD",
    "/assets/swagger-ui.css": "GET, HEAD",
}


@pytest.mark.parametrize("path", ALLOWED)
def test_a_405_names_every_method_of_the_address(desk: Desk, path: str) -> None:
    sent = Sent(desk, "TRACE", path)
    assert sent.status == 405
    assert sent.headers["allow"] == ALLOWED[path]


def test_a_405_agrees_with_the_api_description(desk: Desk) -> None:
    by_path: dict[str, set[str]] = {}
    for method, path, _ in OPERATIONS:
        by_path.setdefault(path, set()).add(method)
    for path, methods in by_path.items():
        sent = Sent(desk, "TRACE", path)
        assert methods <= set(sent.headers["allow"].split(", ")) <= {*methods, "HEAD"}, path


@pytest.mark.parametrize(
    ("method", "path"), [(method, path) for method, path, _ in OPERATIONS], ids=lambda part: part
)
def test_unknown_parameters_are_refused_everywhere(desk: Desk, method: str, path: str) -> None:
    sent = Sent(desk, method, f"{path}?limitt=1", authorization=f"Bearer {ADMIN_KEY}")
    assert sent.status == 422
    (fault,) = sent.problem["errors"]
    assert fault["pointer"] == "/query/limitt"
    assert fault["remedy"].startswith("Send ")


def test_a_parameter_is_given_once(desk: Desk) -> None:
    answer = desk.admin.get("/datasets?limit=1&limit=2")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/query/limit"


def test_a_key_that_a_body_has_twice_is_refused_on_every_route_that_takes_json(desk: Desk) -> None:
    sent = {"authorization": f"Bearer {ADMIN_KEY}", "content-type": "application/json"}
    coming = {"type": "http.request", "body": b'{"name": "a", "name": "b"}', "more_body": False}
    taking = [
        (method, f"{path}?from=nist" if path.endswith("proposals") else path)
        for method, path, each in OPERATIONS
        if "application/json" in each.get("requestBody", {}).get("content", {})
    ]
    assert len(taking) > 10
    for method, path in taking:
        answer = Sent(desk, method, path, coming, **sent)
        assert (answer.status, answer.problem["errors"][0]["pointer"]) == (400, "/name"), path
