"""Event streams of releases, all of them fed by one poller of the store."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio
from anyio import to_thread
from anyio.streams.memory import MemoryObjectSendStream
from sqlalchemy.exc import SQLAlchemyError

from app.database import Database
from app.releases import events
from app.releases.models import EventRow

# One query for all readers, so a short interval costs the store little.
POLL_S = 0.25
# Below the 30 to 60 seconds after which proxies usually close an idle connection.
KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": keep-alive\n\n"
_WAITING_EVENTS = 64

log = logging.getLogger("halftone.events")


@dataclass(eq=False)
class _Stream:
    """One reader: the release that it follows and the last event that it was sent."""

    release_id: str
    seen: int
    out: MemoryObjectSendStream[EventRow]

    def hand(self, row: EventRow) -> None:
        """Hand over the next event; a slow reader gets it at a later poll."""
        if row.release_id == self.release_id and row.sequence == self.seen + 1:
            with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                self.out.send_nowait(row)
                self.seen += 1


class Feed:
    """Follows releases for any number of readers with one query each quarter of a second."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._streams: set[_Stream] = set()
        self._wanted = anyio.Event()

    async def run(self) -> None:
        """Poll as long as there are readers; ends when it is cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            while self._streams:
                await self._feed()
                with anyio.move_on_after(POLL_S):
                    await self._wanted.wait()
                    self._wanted = anyio.Event()

    async def follow(self, release_id: str, after: int) -> AsyncIterator[bytes]:
        """The stream of a release from beyond event `after` to its end, as text/event-stream."""
        out, into = anyio.create_memory_object_stream[EventRow](_WAITING_EVENTS)
        stream = _Stream(release_id, after, out)
        self._streams.add(stream)
        self._wanted.set()
        try:
            with out, into:
                while True:
                    row = None
                    with anyio.move_on_after(KEEP_ALIVE_S):
                        row = await into.receive()
                    yield KEEP_ALIVE if row is None else encoded(row)
                    if row is not None and row.type == "end":
                        return
        finally:
            self._streams.discard(stream)

    async def _feed(self) -> None:
        seen: dict[str, int] = {}
        for stream in self._streams:
            # Readers of one release may be at different events; the slowest decides where to start.
            seen[stream.release_id] = min(stream.seen, seen.get(stream.release_id, stream.seen))
        try:
            rows = await to_thread.run_sync(self._poll, seen)
        except SQLAlchemyError as error:
            log.warning("the event poll met %s", type(error).__name__)
            return
        for row in rows:
            # A copy: readers may leave while events are sent.
            for stream in tuple(self._streams):
                stream.hand(row)

    def _poll(self, seen: dict[str, int]) -> list[EventRow]:
        with self._database.read() as session:
            return events.newest(session, seen)


def encoded(row: EventRow) -> bytes:
    """An event of the stream: id, type and one line of JSON."""
    data = json.dumps(row.data, separators=(",", ":"))
    return f"id: {row.sequence}\nevent: {row.type}\ndata: {data}\n\n".encode()
