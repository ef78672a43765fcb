"""What a run needs at most, from public facts: parts that add up to one preflight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.engine.json_pointer import is_pointer
from app.engine.method.case import Limits
from app.engine.privacy.limits import LARGEST_SCALE
from app.engine.privacy.wire import MOST_BYTES_FROM_CHILD

# The kernel counts no more cells in one question.
MOST_QUESTION_CELLS = 2**27

# It counts histograms in batches of no more exact cells, if none has more by itself, and keeps so
# many for later questions.
_CELLS_AT_ONCE = 2**20
_CELLS_KEPT = 2**23

# Edges and merges of so many cells fit a message's header.
MOST_COLUMN_CELLS = 500_000

# A message also has a header, and the pipe a limit of its own.
_MOST_MESSAGE_BYTES = MOST_BYTES_FROM_CHILD * 3 // 4

# Exact discrete noise by OpenDP 0.16: 40 microseconds a cell on a busy two-core machine.
_SECONDS_PER_CELL = 5e-5

# Of the first sample: drawn, checked and written.
_SECONDS_PER_VALUE = 1e-6

# The process that samples holds two copies of 8 bytes a value (of 680,000 and of 1,360,000 rows of
# 35 columns 2.04 were measured), the worker less than one.
_COPIES_OF_A_TABLE = 3

# Sampled cells, their stored codes, and the copy through the pipe.
_COPIES_OF_A_COLUMN = 3

# Of three: the worker with a chunk of the table, the process that runs the synthesizer with its
# compiled loops, and the one that waits for the next. Together 520 MB were measured for Adult.
_PROCESS_BYTES = 560 * 2**20

# Cells and bytes are stated up to here: the cells of many columns pass any number.
LARGEST_FORECAST = 2**62


def bounded(forecast: int) -> int:
    return min(forecast, LARGEST_FORECAST)


def table_bytes(columns: int, limits: Limits) -> int:
    """Memory of the processes, and of the first sample at both ends of the pipe: `columns` and the
    entity numbers, 8 bytes a value."""
    held = _COPIES_OF_A_TABLE * columns + 1 + _COPIES_OF_A_COLUMN
    return _PROCESS_BYTES + sampled_rows(limits) * 8 * held


def counting_bytes(cells: int, largest: int = 0) -> int:
    """Memory of the kernel for a question over `cells` cells, `largest` in one histogram."""
    return 8 * (max(min(cells, _CELLS_AT_ONCE), largest) + min(cells, _CELLS_KEPT))


def sampled_rows(limits: Limits) -> int:
    """The most rows of the first sample."""
    return limits.max_total_rows if limits.rows is None else limits.rows


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a request, where (JSON pointer), and what to do about it.

    Raises `ValueError` for a place that is no JSON pointer.
    """

    pointer: str
    message: str
    remedy: str

    def __post_init__(self) -> None:
        if not is_pointer(self.pointer):
            raise ValueError(
                "the place of a problem is a JSON pointer: empty, or `/` before each step"
            )


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


@dataclass(frozen=True, slots=True)
class Step:
    """Work that takes some seconds, and what to do where that is too long."""

    seconds: float
    doing: str
    remedy: str
    pointer: str = "/params/columns"


@dataclass(frozen=True, slots=True)
class Question:
    """Cells that are counted at once, and what to do where they are too many."""

    cells: int
    pointer: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Needs:
    """What a part of a run needs. `+` takes two parts of one run.

    cells: what the preflight states as counted. draws: noisy numbers, which take time. columns: of
    the first sample. message_bytes: the largest message. header_cells: cells whose edges one
    message describes. noise_scale: the largest scale of noise, in the kernel's steps.
    expected_error: see `Preflight`; the first part that states one is the run's.
    """

    cells: int = 0
    memory_bytes: int = 0
    draws: int = 0
    columns: int = 0
    message_bytes: int = 0
    header_cells: int = 0
    noise_scale: float = 0.0
    expected_error: float | None = None
    least_expected_error: float | None = None
    steps: tuple[Step, ...] = ()
    questions: tuple[Question, ...] = ()
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of_table(cls, columns: int, limits: Limits) -> Needs:
        """What the processes and the first sample of any method need."""
        return cls(columns=columns, memory_bytes=table_bytes(columns, limits))

    def __add__(self, other: Needs) -> Needs:
        first = self if self.expected_error is not None else other
        return Needs(
            cells=self.cells + other.cells,
            memory_bytes=self.memory_bytes + other.memory_bytes,
            draws=self.draws + other.draws,
            columns=max(self.columns, other.columns),
            message_bytes=max(self.message_bytes, other.message_bytes),
            header_cells=max(self.header_cells, other.header_cells),
            noise_scale=max(self.noise_scale, other.noise_scale),
            expected_error=first.expected_error,
            least_expected_error=first.least_expected_error,
            steps=self.steps + other.steps,
            questions=self.questions + other.questions,
            problems=self.problems + other.problems,
        )

    def preflight(self, limits: Limits) -> Preflight:
        """All needs held against the limits of a run and of the kernel."""
        problems = (
            *self.problems,
            *_memory_problems(bounded(self.memory_bytes), limits),
            *step_faults((self._noise(limits), *self.steps), limits),
            *_message_faults(self.header_cells, self.message_bytes),
            *_question_faults(self.questions),
            *noise_faults(self.noise_scale),
        )
        error = 0.0 if self.expected_error is None else self.expected_error
        return Preflight(
            bounded(self.cells),
            bounded(self.memory_bytes),
            error,
            problems,
            self.least_expected_error,
        )

    def _noise(self, limits: Limits) -> Step:
        """Drawing all noise, and making the first sample."""
        rows = sampled_rows(limits)
        return Step(
            self.draws * _SECONDS_PER_CELL + rows * self.columns * _SECONDS_PER_VALUE,
            f"drawing the noise of {self.draws} cells and {rows} rows of {self.columns} columns",
            "choose fewer columns, coarser `bins`, or ask for fewer rows",
            "/params",
        )


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


def _message_faults(header_cells: int, message_bytes: int) -> tuple[Problem, ...]:
    """What the pipe would not carry."""
    if header_cells > MOST_COLUMN_CELLS:
        message = f"the columns have over {MOST_COLUMN_CELLS} cells in all"
    elif message_bytes > _MOST_MESSAGE_BYTES:
        message = f"{message_bytes // 2**20} MiB would be sent at once, which is too much"
    else:
        return ()
    return (Problem("/params/columns", message, "choose fewer columns, or coarser `bins`"),)


def step_faults(steps: Sequence[Step], limits: Limits) -> Iterator[Problem]:
    """A step may take half the time of a run: the rest is for what no forecast covers."""
    for step in steps:
        if step.seconds > limits.time_s / 2:
            message = (
                f"{step.doing} would take about {step.seconds:.0f} seconds, over half of the"
                f" {limits.time_s:.0f} seconds that a run may take"
            )
            yield Problem(step.pointer, message, step.remedy)


def _question_faults(questions: Sequence[Question]) -> Iterator[Problem]:
    for question in questions:
        if question.cells > MOST_QUESTION_CELLS:
            message = (
                f"{question.cells} cells would be counted at once;"
                f" {MOST_QUESTION_CELLS} are the most"
            )
            yield Problem(question.pointer, message, question.remedy)


def noise_faults(scale: float) -> tuple[Problem, ...]:
    """Noise of a scale, in the kernel's steps, that the kernel does not draw."""
    if scale <= LARGEST_SCALE:
        return ()
    return (
        Problem(
            "/guarantee",
            "the noise would pass the largest scale that can be drawn",
            "ask for a larger guarantee, or measure fewer columns",
        ),
    )
