"""Readers without a key: how often one address may ask, and how much of the service they take.

What they read is public. They must not slow down those who have a key. An address that asks too
often is refused before anything else of its request is looked at. Of the others a few are answered
at the same time, each turn is followed by a longer pause, and the rest waits or is told to come
back.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import anyio
from anyio import to_thread
from fastapi import Depends, Request, Security
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.problems import HalftoneError, NotAuthenticated, TooManyRequests, Unavailable
from app.routers import errors
from app.routers.dependencies import bearer, caller_of
from app.security.principals import Principal
from app.security.windows import Windows
from app.settings import Settings

PREFIX = "/v1/publications"
_WINDOW_S = 60.0
# Of a turn's length: with one turn at a time, readers take a third of a processor at most.
_PAUSE = 2.0
# Requests that wait for their turn; beyond them the service says at once that it is busy.
_MOST_WAITING = 200
# Downloads under way, each of which holds some megabytes until its reader has taken them.
_MOST_DOWNLOADS, _MOST_OF_ADDRESS = 64, 16
# For a reader to take one piece of up to a mebibyte.
_STALLED_S = 60.0
# Starlette tells an error of the connection, as which a timeout counts, by its own.
_ENDED = (TimeoutError, ClientDisconnect)


class AnonymousReaders:
    """Who may read without a key now; one for each process."""

    def __init__(self, settings: Settings) -> None:
        self._limit = settings.anonymous_requests
        self._is_open = settings.public_catalogue
        self._windows: Windows[str] = Windows(_WINDOW_S)
        self._turns = anyio.CapacityLimiter(settings.anonymous_at_once)
        self._downloads: Counter[str] = Counter()

    def admit(self, address: str) -> None:
        """Raises `NotAuthenticated` where the catalogue is not public, `TooManyRequests` for an
        address that asked too often, `Unavailable` while too many wait."""
        self.expect_open()
        left_s = self._windows.left_s(address, self._limit)
        if left_s:
            raise TooManyRequests(
                "Too many requests without a key came from this address.", retry_after_s=left_s
            )
        self._windows.count(address)
        if self._turns.statistics().tasks_waiting >= _MOST_WAITING:
            raise Unavailable("Many are reading publications now; ask again.", retry_after_s=2)

    def expect_open(self) -> None:
        """Raises `NotAuthenticated` where the catalogue is not public."""
        if not self._is_open:
            raise NotAuthenticated

    @contextlib.contextmanager
    def download(self, address: str) -> Iterator[None]:
        """A download that is under way. Raises `TooManyRequests` for an address that has too many,
        `Unavailable` while there are too many of all."""
        if self._downloads[address] >= _MOST_OF_ADDRESS:
            raise TooManyRequests(
                f"{_MOST_OF_ADDRESS} downloads without a key are under way from this address.",
                retry_after_s=5,
            )
        if self._downloads.total() >= _MOST_DOWNLOADS:
            raise Unavailable("Many are downloading publications now; ask again.", retry_after_s=5)
        self._downloads[address] += 1
        try:
            yield
        finally:
            self._downloads[address] -= 1
            self._downloads += Counter()  # Without the addresses that have none.

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and leave twice the time that it took to others after it."""
        async with self._turns:
            began = time.monotonic()
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(_PAUSE * (time.monotonic() - began))

    async def paced(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces, each made in a turn of its own: a reader that is slow to take one holds
        none."""
        while True:
            async with self.turn():
                piece = await to_thread.run_sync(next, pieces, None)
            if piece is None:
                return
            yield piece


class AnonymousFirst:
    """The application, behind a look at who asks for publications without a key."""

    def __init__(self, app: ASGIApp, readers: AnonymousReaders) -> None:
        self._app = app
        self._readers = readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_anonymous_reading(scope):
            try:
                self._readers.admit(_address(scope))
            except HalftoneError as refusal:
                answer = errors.problem(Request(scope), refusal)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_anonymous_reading(scope: Scope) -> bool:
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return (
        path.startswith(PREFIX)
        and scope["method"] in ("GET", "HEAD")
        and not any(name == b"authorization" for name, _ in scope["headers"])
    )


class Download(StreamingResponse):
    """A file for a reader without a key; it ends for one who takes nothing of it for long."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        readers: AnonymousReaders = scope["app"].state.anonymous

        async def sent(message: Message) -> None:
            with anyio.fail_after(_STALLED_S):
                await send(message)

        try:
            with readers.download(_address(scope)), contextlib.suppress(*_ENDED):
                await super().__call__(scope, receive, sent)
        except HalftoneError as refusal:
            await errors.problem(Request(scope), refusal)(scope, receive, send)


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


async def reader(
    request: Request, _: Annotated[Any, Security(bearer)] = None
) -> AsyncIterator[Principal | None]:
    """The caller if a key was sent, which must be valid; None for somebody without one."""
    readers: AnonymousReaders = request.app.state.anonymous
    if "authorization" in request.headers:
        yield await to_thread.run_sync(caller_of, request)
        return
    # It was admitted before, by its path; should paths ever be read in two ways, it stays closed.
    readers.expect_open()
    async with readers.turn():
        yield None


# `function` scope: the turn ends when the answer is ready to be sent, however slowly it is read.
Reader = Annotated[Principal | None, Depends(reader, scope="function")]
