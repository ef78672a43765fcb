"""Bodies that stop or trickle are refused; slow ones that go on are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi import Request

from app.problems import TooSlow
from app.routers.bodies import BoundedBodies, Patience
from app.settings import Settings


def settings(**changes: float) -> Settings:
    return Settings(data=Path("unused"), **changes)


def refused_after_s(piece_bytes: int, pause_s: float, most_s: float = 10 * 24 * 3600) -> float:
    """How long the service waits for a client that sends a piece after each pause."""
    patience, waited_s = Patience(settings()), 0.0
    while waited_s < most_s:
        if pause_s > patience.left_s:
            return waited_s + patience.left_s
        patience.received(piece_bytes, pause_s)
        waited_s += pause_s
    return waited_s


def test_a_body_that_stops_is_waited_for_as_long_as_a_pause() -> None:
    assert refused_after_s(1, 31) == 30


def test_a_body_of_single_bytes_is_not_waited_for_much_longer() -> None:
    assert refused_after_s(1, 1) == pytest.approx(30, abs=1)


def test_a_slow_upload_of_many_hours_goes_on_to_the_limit_of_a_day() -> None:
    # 300 MB at 64 kbit/s takes ten hours.
    assert refused_after_s(80_000, 10, most_s=10 * 3600) >= 10 * 3600
    assert refused_after_s(80_000, 10) == pytest.approx(24 * 3600, abs=10)


def answered(receive: Any, **changes: float) -> tuple[int, dict[str, str]]:
    """Status and headers for a body that an application reads to its end."""
    found: dict[str, Any] = {}

    async def application(scope: Any, receive: Any, send: Any) -> None:
        try:
            await Request(scope, receive).body()
            status = 200
        except TooSlow as error:
            status = error.status
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def send(message: Any) -> None:
        found.update(message)

    scope = {"type": "http", "method": "PUT", "headers": [(b"content-length", b"2")]}
    anyio.run(BoundedBodies(application, settings(**changes)), scope, receive, send)
    return found["status"], {key.decode(): value.decode() for key, value in found["headers"]}


def test_the_connection_of_a_body_that_stops_is_closed() -> None:
    pieces = iter([{"type": "http.request", "body": b"x", "more_body": True}])

    async def receive() -> Any:
        piece = next(pieces, None)
        if piece is None:
            await anyio.sleep_forever()
        return piece

    assert answered(receive, body_idle_s=0.02) == (408, {"connection": "close"})


def test_a_whole_body_is_read_and_its_connection_kept() -> None:
    pieces = iter([b"x", b"y", b""])

    async def receive() -> Any:
        piece = next(pieces)
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    assert answered(receive) == (200, {})
