"""Faults that a pydantic model finds in a synthesizer's form, as the wire tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from app.problems import FieldError, remedy_for


def form_faults(error: ValidationError, form: dict[str, Any], unknown: str) -> list[FieldError]:
    """Each fault with its pointer below `/params`; what was sent is never echoed.

    unknown: the remedy for a param that the form does not have.
    """
    return [
        FieldError(
            pointer(_steps(fault["loc"], form)),
            fault["msg"],
            unknown
            if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1
            else remedy_for(fault["type"], "Send what the synthesizer's form asks for."),
        )
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    ]


def pointer(steps: Sequence[str | int]) -> str:
    """JSON pointer (RFC 6901) of a place in the form."""
    return "/params" + "".join(
        f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps
    )


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
