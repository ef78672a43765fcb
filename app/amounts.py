"""Amounts of a budget in request bodies: a form field without rounding."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from app.engine.privacy.loss import AMOUNT_MAX_LENGTH, AMOUNT_PATTERN, AmountError, parse_amount


def _amount(value: object) -> Decimal:
    try:
        return parse_amount(value)  # type: ignore[arg-type]
    except AmountError as error:
        raise ValueError(str(error)) from None


Amount = Annotated[
    Decimal,
    BeforeValidator(_amount),
    WithJsonSchema(
        {
            "description": "A decimal number, or text holding one; exact, never rounded.",
            "anyOf": [
                {
                    "type": "string",
                    "pattern": f"^{AMOUNT_PATTERN}$",
                    "maxLength": AMOUNT_MAX_LENGTH,
                },
                {"type": "number", "minimum": 0},
            ],
        }
    ),
]
