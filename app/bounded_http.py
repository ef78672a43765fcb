"""The server's HTTP protocol: a request's head is limited in size and in time.

With this parser uvicorn limits neither. An endless header would fill the memory and slow down all
requests, and unfinished heads would keep connections open forever.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Request line and headers of one request, not counting the last part that arrives.
MOST_HEAD_BYTES = 64 * 1024
# How long a connection may take to send the head of its request.
HEAD_S = 30.0
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol with these limits."""

    _head_bytes: int | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _heads = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        heads = self._heads
        super().data_received(data)
        if self._head_bytes is None or self._heads > heads:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._heads += 1
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._stop_waiting()
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def _stop_waiting(self) -> None:
        self._head_bytes = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        """Close, unless an earlier request of the connection is still being answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)
        elif not self.transport.is_closing():
            self.transport.close()
