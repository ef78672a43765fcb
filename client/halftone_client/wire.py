"""JSON as the service reads and writes it: no amount passes through a binary fraction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import httpx

Amount = int | float | str | Decimal
"""Epsilon, rho or delta. A float stands for the shortest decimal that reads as it."""


def amounts(values: Mapping[str, Amount | None]) -> dict[str, str]:
    """A guarantee, budget or allowance as decimal text; entries that are None are left out."""
    return {name: amount(value) for name, value in values.items() if value is not None}


def amount(value: Amount) -> str:
    """Decimal text of one amount: `1e-6` is sent as written, not as the nearest binary number."""
    if isinstance(value, bool):
        raise TypeError("an amount is a number or decimal text, not a truth value")
    return repr(float(value)) if isinstance(value, float) else str(value)


def with_amounts_as_text(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A dataset's spec, its budget exact."""
    wire = dict(spec)
    if wire.get("budget") is not None:
        wire["budget"] = amounts(wire["budget"])
    if wire.get("delta_for_approximate") is not None:
        wire["delta_for_approximate"] = amount(wire["delta_for_approximate"])
    return wire


def encode(value: Any) -> bytes:
    """UTF-8 JSON. NaN and infinities raise `ValueError`; numpy scalars are numbers."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, default=_plain).encode()


def decode(response: httpx.Response) -> Any:
    """The body, fractions as `Decimal`."""
    return json.loads(response.content, parse_float=Decimal)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _number(value: Decimal) -> int | float | str:
    """A JSON number, so that what `decode` read can be sent back; text where one would round."""
    if not value.is_finite():
        raise ValueError(f"{value} has no JSON form")
    if value == value.to_integral_value():
        return int(value)
    nearest = float(value)
    return nearest if Decimal(repr(nearest)) == value else str(value)
