"""What the bench compares: anything that makes a synthetic table of a coded one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bench.synthesizers.caps import Caps
from bench.synthesizers.measures import Codes
from bench.synthesizers.tables import CodedTable


class RunFailed(Exception):
    """The implementation made no table; the text says why."""


@dataclass(frozen=True, slots=True)
class Made:
    """A synthetic table, and what making it took: seconds, and peak memory where it was measured.

    `child_bytes` is the part of a child process that holds no private row; `caps` were the limits.
    """

    codes: Codes
    seconds: float
    peak_bytes: int | None = None
    child_bytes: int | None = None
    caps: Caps | None = None


class Implementation(Protocol):
    """`group` is `halftone`, `peers` or `references`; `private` is False for references."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def private(self) -> bool: ...

    def make(self, table: CodedTable, epsilon: str, seed: int) -> Made:
        """Raises `RunFailed`. Privacy noise is not seeded: `seed` only distinguishes runs."""
        ...
