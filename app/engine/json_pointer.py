"""JSON pointers (RFC 6901) to a place in a document."""

from __future__ import annotations

import re

_POINTER = re.compile(r"(/([^~/]|~[01])*)*")


def is_pointer(text: str) -> bool:
    return _POINTER.fullmatch(text) is not None


def pointer(*steps: str | int) -> str:
    """From the root; `~` and `/` inside a step are escaped."""
    return "".join(f"/{escaped(str(step))}" for step in steps)


def escaped(step: str) -> str:
    # The tilde first: the other way round, it would escape the escapes.
    return step.replace("~", "~0").replace("/", "~1")
