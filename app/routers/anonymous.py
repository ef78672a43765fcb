"""Readers without a key: how often one address may ask, and how many are answered at once.

What they read is public. They must not slow down those who have a key: a few are answered at the
same time, in threads of their own, and the others wait their turn or are told to come back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
from fastapi import Depends, Request, Security

from app.problems import NotAuthenticated, TooManyRequests, Unavailable
from app.routers.dependencies import bearer, caller_of
from app.security.principals import Principal
from app.security.windows import Windows
from app.settings import Settings

_WINDOW_S = 60.0
# Requests that wait for their turn; beyond them the service says at once that it is busy.
_MOST_WAITING = 200


class AnonymousReaders:
    """Who may read without a key now; one for each process."""

    def __init__(self, settings: Settings) -> None:
        self._limit = settings.anonymous_requests
        self._is_open = settings.public_catalogue
        self._windows: Windows[str] = Windows(_WINDOW_S)
        self.turns = anyio.CapacityLimiter(settings.anonymous_at_once)

    def admit(self, address: str) -> None:
        """Raises `NotAuthenticated` where the catalogue is not public, `TooManyRequests` for an
        address that asked too often, `Unavailable` while too many wait."""
        if not self._is_open:
            raise NotAuthenticated
        left_s = self._windows.left_s(address, self._limit)
        if left_s:
            raise TooManyRequests(
                "Too many requests without a key came from this address.", retry_after_s=left_s
            )
        self._windows.count(address)
        if self.turns.statistics().tasks_waiting >= _MOST_WAITING:
            raise Unavailable("Many are reading publications now; ask again.", retry_after_s=2)


async def reader(
    request: Request, _: Annotated[Any, Security(bearer)] = None
) -> AsyncIterator[Principal | None]:
    """The caller if a key was sent, which must be valid; None for somebody without one."""
    readers: AnonymousReaders = request.app.state.anonymous
    if "authorization" in request.headers:
        yield await anyio.to_thread.run_sync(caller_of, request)
        return
    readers.admit(request.client.host if request.client else "")
    async with readers.turns:
        yield None


# `function` scope: the turn ends when the answer is ready to be sent, however slowly it is read.
Reader = Annotated[Principal | None, Depends(reader, scope="function")]
