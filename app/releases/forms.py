"""A synthesizer's form as it was sent, and what pydantic finds wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic import ValidationError

from app.engine.json_pointer import pointer
from app.problems import FieldError, Invalid, remedy_for

# A double reaches 1e308; beyond, a number would become infinity.
_LARGEST_EXPONENT = 300
# Far deeper than any form, and far from Python's recursion limit.
_DEEPEST = 32


def plain_form(form: Mapping[str, Any]) -> dict[str, Any]:
    """The form with ordinary JSON numbers.

    Raises `Invalid` for numbers out of range, and for a form that is nested too deeply.
    """
    plain: dict[str, Any] = _plain(dict(form), "/params")
    return plain


def _plain(value: Any, at: str, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise Invalid.at("/params", "The form is nested too deeply.", "Send a flatter one.")
    if isinstance(value, dict):
        return {name: _plain(item, at + pointer(name), depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, at + pointer(place), depth + 1) for place, item in enumerate(value)]
    if isinstance(value, Decimal):
        if value and abs(value.adjusted()) > _LARGEST_EXPONENT:
            raise Invalid.at(at, "The number is out of range.", "Send a smaller one.")
        return float(value)
    # Such a number fits no column type, and converting it takes time that grows with its square.
    if isinstance(value, int) and value.bit_length() > 64:
        raise Invalid.at(at, "The number is out of range.", "Send a smaller one.")
    return value


def form_faults(error: ValidationError, form: dict[str, Any], unknown: str) -> list[FieldError]:
    """Each fault with its pointer below `/params`; what was sent is never echoed.

    unknown: the remedy for a param that the form does not have.
    """
    return [
        FieldError(
            pointer("params", *_steps(fault["loc"], form)),
            fault["msg"],
            unknown
            if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1
            else remedy_for(fault["type"], "Send what the synthesizer's form asks for."),
        )
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    ]


def _steps(location: tuple[str | int, ...], form: Any) -> list[str | int]:
    """The steps that lead somewhere: pydantic also names the branch of a union it took."""
    steps: list[str | int] = []
    here = form
    for place, step in enumerate(location):
        inside = _has(here, step)
        if inside or (place == len(location) - 1 and isinstance(here, dict)):
            steps.append(step)
        here = here[step] if inside else here
    return steps


def _has(container: Any, step: str | int) -> bool:
    if isinstance(container, dict):
        return step in container
    return isinstance(container, list) and isinstance(step, int) and step < len(container)
