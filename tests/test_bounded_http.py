"""Heads are bounded in size and in time, and every refusal reaches its client."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn

from app import bounded_http
from app.bounded_http import MOST_HEAD_BYTES, BoundedHttp

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


async def echo(scope, receive, send) -> None:
    """Answers with the length of the body, or refuses it without reading it."""
    if scope["path"] == "/refused":
        closing = [(b"connection", b"close"), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 401, "headers": closing})
        await send({"type": "http.response.body", "body": b"no"})
        return
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d bytes" % size})


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setattr(bounded_http, "HEAD_S", 0.5)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(echo, http=BoundedHttp, lifespan="off", log_level="critical")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        with socket.create_connection(listener.getsockname()) as connection:
            connection.settimeout(10)
            yield connection
    finally:
        server.should_exit = True
        thread.join()


def answer(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    said = b""
    try:
        while part := connection.recv(65536):
            said += part
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize("endless", [b"X: ", b"X: y\r\n"], ids=["one header", "many headers"])
def test_an_endless_head_is_refused(connection: socket.socket, endless: bytes) -> None:
    connection.sendall(HEAD + endless)
    filler = (b"X: y\r\n" if endless.endswith(b"\n") else b"yyyyyy") * 4096
    with pytest.raises(OSError):
        for _ in range(10_000):
            connection.sendall(filler)


def test_a_head_that_is_too_large_is_told(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"X: " + b"y" * (MOST_HEAD_BYTES + 1))
    assert problem(answer(connection))["status"] == 431


def problem(said: bytes) -> dict[str, object]:
    """The problem document of a response that ends its connection."""
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    found: dict[str, object] = json.loads(body)
    assert head.startswith(b"HTTP/1.1 %d " % found["status"])
    return found


@pytest.mark.parametrize(
    "broken",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nBad Name: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"CONNECT x HTTP/1.1\r\n\r\n",
    ],
)
def test_a_request_that_is_not_http_is_told_so_as_a_problem(
    connection: socket.socket, broken: bytes
) -> None:
    connection.sendall(broken)
    assert problem(answer(connection))["type"] == "/problems/malformed-request"


def test_a_client_that_is_still_sending_reads_its_refusal(connection: socket.socket) -> None:
    body = b"y" * 4 * 1024**2
    head = b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body)
    said = answer(connection)
    assert said.startswith(b"HTTP/1.1 401 ")
    assert said.endswith(b"no")


def test_the_rest_of_a_refused_body_is_not_waited_for(
    connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "LINGER_S", 0.05)
    connection.sendall(b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 999000\r\n\r\ny")
    assert answer(connection).startswith(b"HTTP/1.1 401 ")
    with pytest.raises(OSError):
        for _ in range(1000):
            connection.sendall(b"y" * 1000)
            threading.Event().wait(0.001)


def test_a_head_that_does_not_end_is_not_waited_for(connection: socket.socket) -> None:
    connection.sendall(HEAD)
    assert answer(connection) == b""


def test_who_sends_nothing_is_not_waited_for(connection: socket.socket) -> None:
    assert answer(connection) == b""


def test_bodies_are_not_counted_and_may_take_their_time(connection: socket.socket) -> None:
    body = b"y" * (4 * MOST_HEAD_BYTES)
    head = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body[:1000])
    threading.Event().wait(0.8)
    connection.sendall(body[1000:])
    assert b"%d bytes" % len(body) in answer(connection)


def test_requests_may_follow_one_another_at_once(connection: socket.socket) -> None:
    body = b"y" * (2 * MOST_HEAD_BYTES)
    first = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    connection.sendall(first + HEAD + b"Content-Length: 1\r\nConnection: close\r\n\r\ny")
    said = answer(connection)
    assert said.count(b"HTTP/1.1 200 ") == 2
    assert b"%d bytes" % len(body) in said
