"""Turns of readers without a key: few at a time, and none held by who is slow."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from fastapi import FastAPI
from release_world import TestClient, world
from starlette.types import Message

from app.problems import NotAuthenticated, TooManyRequests
from app.routers import anonymous
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


# Servers state which of them they speak, and Starlette sends differently.
@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_downloads_that_nobody_takes_are_few_and_end(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anonymous, "_STALLED_S", 0.05)
    statuses: list[int] = []

    async def main() -> int:
        app = FastAPI()
        app.state.anonymous = readers = AnonymousReaders(Settings(public_catalogue=True))

        async def stalled(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            elif statuses[-1] == 200:
                await anyio.sleep_forever()

        async def read(address: str) -> None:
            scope = {
                "type": "http", "app": app, "path": "/", "headers": [], "client": (address, 1),
                "method": "GET", "asgi": {"spec_version": version},
            }  # fmt: skip
            answer = anonymous.Download(readers.paced(iter([b"a"])))
            await answer(scope, anyio.sleep_forever, stalled)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(120):
                    tasks.start_soon(read, f"192.0.2.{number // 20}")
        return readers._downloads.total()

    assert anyio.run(main) == 0
    assert statuses.count(200) == 64
    assert set(statuses) == {200, 429, 503}


def test_a_path_that_is_read_in_two_ways_stays_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        world(tmp_path, monkeypatch) as closed,
        TestClient(closed.http.app, root_path="/v") as http,
    ):
        assert http.get("/v1/publications").status_code == 401
