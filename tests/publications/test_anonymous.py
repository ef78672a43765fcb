"""Turns of readers without a key: few at a time, and none held by who is slow."""

from __future__ import annotations

import anyio
import pytest

from app.problems import NotAuthenticated, TooManyRequests
from app.routers.anonymous import AnonymousReaders
from app.settings import Settings


def test_a_reader_that_is_slow_to_take_a_piece_holds_no_turn() -> None:
    async def main() -> list[bytes]:
        readers = AnonymousReaders(Settings(public_catalogue=True, anonymous_at_once=1))
        slow, quick = readers.paced(iter([b"a", b"b"])), readers.paced(iter([b"c", b"d"]))
        taken = [await anext(slow)]
        # The slow one has its first piece and does not ask for the next.
        with anyio.fail_after(20):
            taken += [piece async for piece in quick]
        return taken

    assert anyio.run(main) == [b"a", b"c", b"d"]


def test_only_so_many_have_a_turn_at_the_same_time() -> None:
    async def main() -> int:
        readers = AnonymousReaders(Settings(public_catalogue=True, anonymous_at_once=2))
        now, most = 0, 0

        async def read() -> None:
            nonlocal now, most
            async with readers.turn():
                now += 1
                most = max(most, now)
                await anyio.lowlevel.checkpoint()
                now -= 1

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(read)
        return most

    assert anyio.run(main) == 2


def test_addresses_are_counted_apart_and_a_closed_catalogue_admits_none() -> None:
    readers = AnonymousReaders(Settings(public_catalogue=True, anonymous_requests=2))
    for _ in range(2):
        readers.admit("192.0.2.1")
    with pytest.raises(TooManyRequests):
        readers.admit("192.0.2.1")
    readers.admit("192.0.2.2")
    with pytest.raises(NotAuthenticated):
        AnonymousReaders(Settings()).admit("192.0.2.1")
