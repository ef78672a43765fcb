"""Two bodies are one request exactly where they say the same."""

from __future__ import annotations

from decimal import Decimal

import pytest

from app.idempotency import body_hash


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
