"""What `check` answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a request, where (JSON pointer), and what to do about it."""

    pointer: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a run would need and give, from public facts only.

    `expected_error` is the standard deviation of the noise in one measured cell, in counts: where
    the run is yet to choose how much an entity may count, under the rule of the largest noise that
    it may choose, and `least_expected_error` under that of the smallest (None: it is the same).
    A run with `problems` is refused before anything is charged.
    """

    cells: int
    memory_bytes: int
    expected_error: float
    problems: tuple[Problem, ...] = ()
    least_expected_error: float | None = None
