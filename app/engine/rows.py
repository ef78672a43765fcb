"""What is wrong with rows of a file: data, for the custodian's eyes alone.

TableError(Exception)      the file cannot be read as the table it was said to be
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_LISTED = 100
LONGEST_QUOTED = 60


@dataclass(frozen=True, slots=True)
class RowProblem:
    """`row` counts data rows from 1; `record` counts from 1 with header and skipped rows.

    Blank lines do not count. Both are None where the whole file is meant, and `column` where no
    single column is.
    """

    row: int | None
    record: int | None
    column: str | None
    message: str
    remedy: str


class TableError(Exception):
    """The file is refused. Holds what the custodian may read; analysts never do."""

    def __init__(self, problems: Sequence[RowProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.message for problem in self.problems))


def refuse(message: str, remedy: str, column: str | None = None) -> TableError:
    """A `TableError` about the file as a whole."""
    return TableError([RowProblem(None, None, column, message, remedy)])


def quoted(cell: str) -> str:
    """A cell as shown in a message, shortened."""
    shown = cell if len(cell) <= LONGEST_QUOTED else cell[:LONGEST_QUOTED] + "..."
    return f'"{shown}"'
