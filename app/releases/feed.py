"""Event streams of releases, all of them fed by one poller of the store."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio
from anyio import to_thread
from anyio.streams.memory import MemoryObjectSendStream

from app.database import Database
from app.releases import events, repository
from app.releases.models import EventRow
from app.security.authentication import owners_of_keys
from app.security.principals import Principal

# One query for all readers, so a short interval costs the store little.
POLL_S = 0.25
# A stream ends within a second after its key was revoked: at the second poll at the latest.
CHECK_S = 0.4
# Below the 30 to 60 seconds after which proxies usually close an idle connection.
KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": keep-alive\n\n"
_WAITING_EVENTS = 64

log = logging.getLogger("halftone.events")


@dataclass(eq=False)
class _Stream:
    """One reader: by which key it follows which release, and the last event that it was sent."""

    release_id: str
    key_id: str
    seen: int
    out: MemoryObjectSendStream[EventRow]
    refused: bool = False

    def hand(self, row: EventRow) -> None:
        """Hand over the next event; a slow reader gets it at a later poll."""
        if row.release_id == self.release_id and row.sequence == self.seen + 1:
            with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                self.out.send_nowait(row)
                self.seen += 1

    def refuse(self) -> None:
        """End the stream; what was handed over and not yet sent is not sent any more."""
        self.refused = True
        self.out.close()


class Feed:
    """Follows releases for any number of readers with one query each quarter of a second.

    Twice a second it looks whether the readers may still read: one query for all their keys, and
    one for each of these keys that still works.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._streams: set[_Stream] = set()
        self._wanted = anyio.Event()
        self._checked = float("-inf")

    async def run(self) -> None:
        """Poll as long as there are readers, whatever happens; ends when it is cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            while self._streams:
                try:
                    await self._end_refused()
                    await self._feed()
                except Exception as error:
                    # Types only: the text of an error could hold rows or keys.
                    log.warning("the event poll met %s", type(error).__name__)
                with anyio.move_on_after(POLL_S):
                    await self._wanted.wait()
                    self._wanted = anyio.Event()

    async def follow(self, release_id: str, key_id: str, after: int) -> AsyncIterator[bytes]:
        """The stream of a release from beyond event `after` to its end, as text/event-stream.

        It ends early, within a second, once the key no longer opens the release.
        """
        out, into = anyio.create_memory_object_stream[EventRow](_WAITING_EVENTS)
        stream = _Stream(release_id, key_id, after, out)
        self._streams.add(stream)
        self._wanted.set()
        try:
            with out, into, contextlib.suppress(anyio.EndOfStream):
                while True:
                    row = None
                    with anyio.move_on_after(KEEP_ALIVE_S):
                        row = await into.receive()
                    if stream.refused:
                        return
                    yield KEEP_ALIVE if row is None else encoded(row)
                    if row is not None and row.type == "end":
                        return
        finally:
            self._streams.discard(stream)

    async def _end_refused(self) -> None:
        if time.monotonic() - self._checked < CHECK_S:
            return
        self._checked = time.monotonic()
        wanted = {(stream.key_id, stream.release_id) for stream in self._streams}
        allowed = await to_thread.run_sync(self._allowed, wanted)
        for stream in tuple(self._streams):
            pair = (stream.key_id, stream.release_id)
            # One that came meanwhile was allowed as it came.
            if pair in wanted and pair not in allowed:
                stream.refuse()
                self._streams.discard(stream)

    def _allowed(self, wanted: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those pairs of a key and a release of which the key still opens the release."""
        with self._database.read() as session:
            owners = owners_of_keys(session, {key_id for key_id, _ in wanted})
            asked: dict[Principal, set[str]] = {}
            for key_id, release_id in wanted:
                if key_id in owners:
                    asked.setdefault(owners[key_id], set()).add(release_id)
            open_to = {
                owner: repository.visible_among(session, owner, releases)
                for owner, releases in asked.items()
            }
        return {
            (key_id, release_id)
            for key_id, release_id in wanted
            if key_id in owners and release_id in open_to[owners[key_id]]
        }

    async def _feed(self) -> None:
        seen: dict[str, int] = {}
        for stream in self._streams:
            # Readers of one release may be at different events; the slowest decides where to start.
            seen[stream.release_id] = min(stream.seen, seen.get(stream.release_id, stream.seen))
        rows = await to_thread.run_sync(self._poll, seen)
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
