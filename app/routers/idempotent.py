"""How a route answers a POST that made something, the first time and on replays."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response

MADE_HEADERS: dict[str, Any] = {
    "Location": {"description": "Path of what was made.", "schema": {"type": "string"}},
    "Idempotent-Replayed": {
        "description": "`true` on the answer to a repeated Idempotency-Key.",
        "schema": {"type": "string", "enum": ["true"]},
    },
}


def answer_made(request: Request, response: Response, path: str, *, replayed: bool) -> None:
    """Say where the resource is, as the client reaches it, and whether it was made before."""
    root: str = request.scope.get("root_path", "")
    response.headers["Location"] = root.rstrip("/") + path
    if replayed:
        response.headers["Idempotent-Replayed"] = "true"
