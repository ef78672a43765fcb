"""JSON of the wire keeps every digit, and refuses what is not JSON or nobody means."""

from __future__ import annotations

from decimal import Decimal

import pytest

from app.problems import MalformedRequest
from app.routers.wire import parse_json


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"0.1", Decimal("0.1")),
        (b"1e400", Decimal("1e400")),
        (b"0.1000000000000000055511151231257827", Decimal("0.1000000000000000055511151231257827")),
        (b"12", 12),
        ('"é"'.encode(), "é"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\\ud800"', "\\ud800"),
    ],
)
def test_numbers_keep_every_digit(body: bytes, value: object) -> None:
    assert parse_json(body) == value


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"visibility": "private", "visibility": "public"}', "/visibility"),
        (b'{"a": [{}, {"b/c": {"x": 1, "y": 2, "x": 1}}]}', "/a/1/b~1c/x"),
        (b'{"a": {"b": 1, "b": 2}, "a": 3}', "/a"),
        (rb'{"name": 1, "n\u0061me": 2}', "/name"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_and_pointed_to(body: bytes, pointer: str) -> None:
    with pytest.raises(MalformedRequest) as refused:
        parse_json(body)
    (fault,) = refused.value.errors
    assert fault.pointer == pointer
    assert fault.remedy


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"NaN",
        b"[Infinity]",
        b'{"a": -Infinity}',
        b'"\xff"',
        b"[" * 100_000,
        b"9" * 5000,
        rb'{"name": "\ud800"}',
        rb'{"\uDFFF": 1}',
        rb'["\ude00\ud83d"]',
        b"1e1001",
        b"-1e99999999999",
        b"1e-99999999999",
        b"0e99999999999",
        b"1e99999999999999999999999",
    ],
)
def test_what_is_not_json_or_beyond_use_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        parse_json(body)
