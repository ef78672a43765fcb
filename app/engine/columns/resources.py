"""How much a run will count, hold and draw, from public facts."""

from __future__ import annotations

from app.engine.columns.axes import Axes
from app.engine.method import Limits, Problem
from app.engine.privacy.wire import MOST_BYTES_FROM_CHILD

# The kernel counts no more cells in one question.
MOST_QUESTION_CELLS = 2**27

# Edges and merges of so many cells fit a message's header.
MOST_COLUMN_CELLS = 500_000

_MOST_MESSAGE_BYTES = MOST_BYTES_FROM_CHILD * 3 // 4

# The kernel counts histograms in batches of no more exact cells, if none has more by itself.
_CELLS_AT_ONCE = 2**20

# The most exact cells that the kernel keeps for later questions.
_CELLS_KEPT = 2**23

# The process that samples holds two of 8 bytes a value (of 680,000 and of 1,360,000 rows of 35
# columns 2.04 were measured), the worker less than one.
_COPIES_OF_A_TABLE = 3

# Sampled cells, their stored codes, and the copy through the pipe.
_COPIES_OF_A_COLUMN = 3

# Exact discrete noise by OpenDP 0.16: 40 microseconds a cell on a busy two-core machine.
_SECONDS_PER_CELL = 5e-5

# Of the first sample: drawn, checked and written.
_SECONDS_PER_VALUE = 1e-6

# Of three: the worker with a chunk of the table, the process that runs the synthesizer with its
# compiled loops, and the one that waits for the next. Together 520 MB were measured for Adult.
_PROCESS_BYTES = 560 * 2**20

# Cells and bytes are stated up to here: the product of many columns has no end.
LARGEST_FORECAST = 2**62


def bounded(forecast: int) -> int:
    return min(forecast, LARGEST_FORECAST)


def counting_bytes(cells: int, largest: int = 0) -> int:
    """Memory of the kernel for a question over `cells` cells, `largest` in one histogram."""
    return 8 * (max(min(cells, _CELLS_AT_ONCE), largest) + min(cells, _CELLS_KEPT))


def table_bytes(columns: int, limits: Limits) -> int:
    """Memory of the processes, and of the first sample at both ends of the pipe: `columns` and the
    entity numbers, 8 bytes a value."""
    held = _COPIES_OF_A_TABLE * columns + 1 + _COPIES_OF_A_COLUMN
    return _PROCESS_BYTES + _rows(limits) * 8 * held


def _rows(limits: Limits) -> int:
    return limits.max_total_rows if limits.rows is None else limits.rows


def run_problems(
    memory_bytes: int, cells: int, limits: Limits, columns: int
) -> tuple[Problem, ...]:
    """A run that would need too much memory, or over half its time for `cells` draws of noise and
    a first sample of `columns`."""
    return _memory_problems(memory_bytes, limits) + _time_problems(cells, limits, columns)


def _memory_problems(memory_bytes: int, limits: Limits) -> tuple[Problem, ...]:
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


def _time_problems(cells: int, limits: Limits, columns: int) -> tuple[Problem, ...]:
    rows = _rows(limits)
    return time_problems(
        cells * _SECONDS_PER_CELL + rows * columns * _SECONDS_PER_VALUE,
        f"drawing the noise of {cells} cells and {rows} rows of {columns} columns",
        "choose fewer columns, coarser `bins`, or ask for fewer rows",
        limits,
        "/params",
    )


def time_problems(
    seconds: float, doing: str, remedy: str, limits: Limits, pointer: str = "/params/columns"
) -> tuple[Problem, ...]:
    """A step that would take over half the time of a run."""
    if seconds <= limits.time_s / 2:
        return ()
    message = (
        f"{doing} would take about {seconds:.0f} seconds, over half of the {limits.time_s:.0f}"
        " seconds that a run may take"
    )
    return (Problem(pointer, message, remedy),)


def message_problems(axes: Axes, size_bytes: int = 0) -> tuple[Problem, ...]:
    """What the pipe would not carry: groupings of the columns and their sub-bins, or a message of
    this size."""
    sub_bins = sum(grouping.cells for grouping in axes.sub_bins.values())
    if sum(axes.shape) + sub_bins > MOST_COLUMN_CELLS:
        message = f"the columns have over {MOST_COLUMN_CELLS} cells in all"
    elif size_bytes > _MOST_MESSAGE_BYTES:
        message = f"{size_bytes // 2**20} MiB would be sent at once, which is too much"
    else:
        return ()
    return (Problem("/params/columns", message, "choose fewer columns, or coarser `bins`"),)


def question_problems(cells: int, pointer: str, remedy: str) -> tuple[Problem, ...]:
    if cells <= MOST_QUESTION_CELLS:
        return ()
    message = f"{cells} cells would be counted at once; {MOST_QUESTION_CELLS} are the most"
    return (Problem(pointer, message, remedy),)
