"""Headers of the response to a POST that created something, at first and on replays."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response

MADE_HEADERS: dict[str, Any] = {
    "Location": {"description": "Path of what was created.", "schema": {"type": "string"}},
    "Idempotent-Replayed": {
        "description": "`true` on the response to a repeated Idempotency-Key.",
        "schema": {"type": "string", "enum": ["true"]},
    },
}


def answer_made(request: Request, response: Response, path: str, *, replayed: bool) -> None:
    """Set the headers: the resource's path as the client reaches it, and whether it is a replay."""
    root: str = request.scope.get("root_path", "")
    response.headers["Location"] = root.rstrip("/") + path
    if replayed:
        response.headers["Idempotent-Replayed"] = "true"
