"""Bodies arrive within limits of time, and a body that is not read ends its connection.

The limits count only the time in which the service waits for the client, so that neither a slow
disk nor a busy store ends an upload. What a slow client may occupy is a connection and little
memory: bodies of unknown callers are not read at all.
"""

from __future__ import annotations

import time

import anyio
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.problems import TooSlow
from app.settings import Settings


class BoundedBodies:
    """The application, with the limits of the settings on the time that a body may take."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive, send, self._settings)
        await self._app(scope, body.receive, body.send)


class Patience:
    """How long the next part of a body may take, given the bytes received and the time waited."""

    def __init__(self, settings: Settings) -> None:
        self._idle_s = settings.body_idle_s
        self._bytes_per_s = settings.body_bytes_per_s
        self._limit_s = settings.body_limit_s
        self._received_bytes = 0
        self._waited_s = 0.0

    @property
    def left_s(self) -> float:
        allowed_s = min(self._idle_s + self._received_bytes / self._bytes_per_s, self._limit_s)
        return min(self._idle_s, allowed_s - self._waited_s)

    def received(self, size_bytes: int, waited_s: float) -> None:
        self._received_bytes += size_bytes
        self._waited_s += waited_s


class _Body:
    """One request's body on its way in."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, settings: Settings) -> None:
        self._receive = receive
        self._send = send
        self._patience = Patience(settings)
        self._is_complete = not _is_announced(scope)
        self._is_answered = False

    async def receive(self) -> Message:
        if self._is_complete or self._is_answered:
            return await self._receive()
        began = time.monotonic()
        with anyio.move_on_after(self._patience.left_s) as waiting:
            message = await self._receive()
        if waiting.cancelled_caught:
            raise TooSlow
        self._patience.received(len(message.get("body", b"")), time.monotonic() - began)
        self._is_complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_answered = True
            if not self._is_complete:
                # Otherwise the server would wait for the rest, for as long as the client likes.
                MutableHeaders(scope=message)["Connection"] = "close"
        await self._send(message)


def _is_announced(scope: Scope) -> bool:
    """Whether the request's headers say that a body follows (RFC 9112, section 6.3)."""
    headers = dict(scope["headers"])
    return (
        b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""
    )
