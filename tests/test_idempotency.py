"""Two bodies are one request exactly where they say the same."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

import pytest

from app import idempotency


def body_hash(parsed: Any) -> str:
    return idempotency.body_hash(parsed, b"k" * 32)


@pytest.mark.parametrize(
    ("left", "right"),
    [("0.1", "0.10"), ("1e-7", "0.0000001"), ("2.50e1", "25.0"), ("0.0", "0e-9")],
)
def test_the_spelling_of_a_number_does_not_count(left: str, right: str) -> None:
    assert body_hash({"epsilon": Decimal(left)}) == body_hash({"epsilon": Decimal(right)})


@pytest.mark.parametrize(
    ("left", "right"),
    [("0.1", "0.1" + "0" * 34 + "1"), ("0.1", "0.2"), ("1e300", "1e301"), ("1e-300", "0.0")],
)
def test_every_digit_of_a_number_counts(left: str, right: str) -> None:
    assert body_hash({"epsilon": Decimal(left)}) != body_hash({"epsilon": Decimal(right)})


@pytest.mark.parametrize("spelling", ["1.0", "1e0", "10e-1"])
def test_a_whole_number_may_be_spelled_with_a_fraction(spelling: str) -> None:
    assert body_hash({"epsilon": 1}) == body_hash({"epsilon": Decimal(spelling)})


@pytest.mark.parametrize("other", ["1", True, None, [1]])
def test_a_number_is_not_what_reads_like_it(other: object) -> None:
    assert body_hash({"epsilon": 1}) != body_hash({"epsilon": other})


def test_without_the_key_no_body_can_be_tested() -> None:
    plain = hashlib.sha256(json.dumps({"file": "a"}, separators=(",", ":")).encode()).hexdigest()
    hashed = {idempotency.body_hash({"file": "a"}, key) for key in (b"k" * 32, b"l" * 32)}
    assert len(hashed | {plain}) == 3
