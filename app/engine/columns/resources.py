"""What a run over some columns needs, held against its limits one need at a time."""

from __future__ import annotations

from app.engine.columns.axes import Axes
from app.engine.method import Limits, Problem
from app.engine.method.needs import Needs, Step, bounded, message_faults, step_faults, table_bytes

__all__ = [
    "bounded",
    "counting_bytes",
    "header_cells",
    "message_problems",
    "run_problems",
    "table_bytes",
    "time_problems",
]

# The kernel counts histograms in batches of no more exact cells, if none has more by itself.
_CELLS_AT_ONCE = 2**20

# The most exact cells that the kernel keeps for later questions.
_CELLS_KEPT = 2**23


def counting_bytes(cells: int, largest: int = 0) -> int:
    """Memory of the kernel for a question over `cells` cells, `largest` in one histogram."""
    return 8 * (max(min(cells, _CELLS_AT_ONCE), largest) + min(cells, _CELLS_KEPT))


def header_cells(axes: Axes) -> int:
    """Cells whose edges a message about these columns describes."""
    return sum(axes.shape) + sum(grouping.cells for grouping in axes.sub_bins.values())


def run_problems(
    memory_bytes: int, cells: int, limits: Limits, columns: int
) -> tuple[Problem, ...]:
    """A run that would need too much memory, or over half its time for `cells` draws of noise and
    a first sample of `columns`."""
    needs = Needs(memory_bytes=memory_bytes, draws=cells, columns=columns)
    return needs.preflight(limits).problems


def time_problems(
    seconds: float, doing: str, remedy: str, limits: Limits, pointer: str = "/params/columns"
) -> tuple[Problem, ...]:
    """A step that would take over half the time of a run."""
    return tuple(step_faults([Step(seconds, doing, remedy, pointer)], limits))


def message_problems(axes: Axes, size_bytes: int = 0) -> tuple[Problem, ...]:
    """What the pipe would not carry: groupings of the columns and of their sub-bins, or a message
    of this size."""
    return message_faults(header_cells(axes), size_bytes)
