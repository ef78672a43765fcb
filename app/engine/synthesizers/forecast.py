"""How much memory a run will take, from public facts."""

from __future__ import annotations

from app.engine.synthesizers.base import Limits, Problem

_COPIES_OF_A_COLUMN = 3
"""Sampled cells, their stored codes, and the copy through the pipe."""

PROCESS_BYTES = 150 * 2**20
"""An interpreter with numpy and this package."""


def table_bytes(columns: int, limits: Limits) -> int:
    """Memory of the first sample: `columns` and the entity numbers, 8 bytes a value."""
    rows = limits.max_total_rows if limits.rows is None else limits.rows
    return PROCESS_BYTES + rows * 8 * (columns + 1 + _COPIES_OF_A_COLUMN)


def memory_problems(memory_bytes: int, limits: Limits) -> tuple[Problem, ...]:
    if memory_bytes <= limits.memory_bytes:
        return ()
    needed, allowed = -(-memory_bytes // 2**20), limits.memory_bytes // 2**20
    return (
        Problem(
            "/params",
            f"the run would need {needed} MiB; {allowed} MiB are allowed",
            "choose fewer columns, coarser `bins`, or ask for fewer rows",
        ),
    )
