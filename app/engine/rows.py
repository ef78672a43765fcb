"""Problems of the rows of a file. They show private data, so only the custodian may see them.

TableError(Exception)      the file cannot be read as the declared table
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Enough to see a pattern; a report with every row would be as long as the file.
MOST_LISTED = 100
LONGEST_QUOTED = 60


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A problem of one row. `row` counts data rows from 1, `record` header and skipped rows too.

    Blank lines do not count. Both are None for a problem of the whole file. `column` is None if
    the problem is not of one column.
    """

    row: int | None
    record: int | None
    column: str | None
    message: str
    remedy: str


class TableError(Exception):
    """The file is refused. The problems are for the custodian, never for analysts."""

    def __init__(self, problems: Sequence[RowProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.message for problem in self.problems))


def refuse(message: str, remedy: str, column: str | None = None) -> TableError:
    """A `TableError` about the file as a whole."""
    return TableError([RowProblem(None, None, column, message, remedy)])


def quoted(cell: str) -> str:
    """A cell in quotes for a message, shortened if it is long."""
    shown = cell if len(cell) <= LONGEST_QUOTED else cell[:LONGEST_QUOTED] + "..."
    return f'"{shown}"'
