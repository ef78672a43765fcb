"""The server's HTTP protocol: heads are limited in size and in time, and refusals can be read.

With this parser uvicorn limits neither. An endless header would fill the memory and slow down all
requests, and unfinished heads would keep connections open forever.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.problems import PROBLEM_TYPE, HalftoneError, HeadTooLarge, MalformedRequest

# Request line and headers of one request, not counting the last part that arrives.
MOST_HEAD_BYTES = 64 * 1024
# How long a connection may take to send the head of its request.
HEAD_S = 30.0
# What is thrown away of a body that was refused, before its connection is closed. A client that
# sends more, or takes longer, may lose the response.
LINGER_S = 3.0
LINGER_BYTES = 8 * 1024**2


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol with these limits."""

    _head_bytes: int | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _heads = 0
    _expects_more = False
    _linger_timer: asyncio.TimerHandle | None = None
    _discarded_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.is_ending:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > LINGER_BYTES:
                self.transport.close()
            return
        heads = self._heads
        super().data_received(data)
        if self._head_bytes is None or self._heads > heads:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(HeadTooLarge(MOST_HEAD_BYTES))

    def send_400_response(self, msg: str) -> None:
        """Replaces uvicorn's plain text."""
        del msg
        self._refuse(MalformedRequest("The request is not HTTP/1.1, or its head is broken."))

    def _refuse(self, error: HalftoneError) -> None:
        """Answer a request that does not reach the application."""
        body = json.dumps(error.as_wire("")).encode()
        head = f"content-type: {PROBLEM_TYPE}\r\ncontent-length: {len(body)}\r\n"
        # What is left of a broken request is unknown.
        self._expects_more = True
        self.transport.write(
            STATUS_LINE[error.status] + head.encode() + b"connection: close\r\n\r\n" + body
        )
        self.close_gently()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._heads += 1
        self._expects_more = True
        super().on_headers_complete()
        self.cycle.transport = cast(asyncio.Transport, _ClosedGently(self))

    def on_message_complete(self) -> None:
        self._expects_more = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.is_ending:
            self.pipeline.clear()
        super().on_response_complete()

    @property
    def is_ending(self) -> bool:
        """Whether the last response was sent, and only the rest of a body is waited for."""
        return self._linger_timer is not None

    def close_gently(self) -> None:
        """Close after the response, and after some of what the client is still sending.

        Closing at once would reset the connection, and the client would lose the response.
        """
        if self.transport.is_closing() or self.is_ending:
            return
        if not self._expects_more:
            self.transport.close()
            return
        self._linger_timer = self.loop.call_later(LINGER_S, self.transport.close)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

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


class _ClosedGently:
    """The part of a transport that the cycle of a request uses."""

    def __init__(self, http: BoundedHttp) -> None:
        self._http = http

    def write(self, data: bytes) -> None:
        if not self._http.is_ending:
            self._http.transport.write(data)

    def is_closing(self) -> bool:
        return self._http.transport.is_closing()

    def close(self) -> None:
        self._http.close_gently()
