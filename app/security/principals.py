"""Who is asking: the authenticated principal, as the rest of the service sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller. Roles add up; none implies another."""

    id: str
    name: str
    is_admin: bool
    is_custodian: bool
    is_analyst: bool
    is_auditor: bool = False
    # The API key that the request came with; None for work that no request asked for.
    key_id: str | None = None
