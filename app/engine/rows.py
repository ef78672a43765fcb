"""Problems of the rows of a file. They show private data, so only the custodian may see them.

TableError(Exception)      the file cannot be read as the declared table
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest

# Enough to see a pattern; a report with every row would be as long as the file.
MOST_LISTED = 100
# Problems of one column and cause are alike, so a few show the pattern.
MOST_EXAMPLES = 5
# A dictionary of another table has problems in each column.
MOST_GROUPS = 300
LONGEST_QUOTED = 60


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A problem of one row. `row` counts data rows from 1, `record` header and skipped rows too.

    Blank lines do not count. Both are None for a problem of the whole file. `column` is None if
    the problem is not of one column. `cause` is `missing`, `unreadable`, `undeclared` or `not_text`
    for a cell, `row` for a row that cannot be cut into cells, and `file`.
    """

    row: int | None
    record: int | None
    column: str | None
    message: str
    remedy: str
    cause: str = ""

    def __post_init__(self) -> None:
        if not self.cause:
            object.__setattr__(self, "cause", "file" if self.row is None else "row")


class TableError(Exception):
    """The file is refused. The problems are for the custodian, never for analysts.

    `count` is the number of problems, of which some are listed.
    """

    def __init__(self, problems: Sequence[RowProblem], count: int | None = None) -> None:
        self.problems = tuple(problems)
        self.count = len(self.problems) if count is None else count
        super().__init__("; ".join(problem.message for problem in self.problems))


@dataclass
class ProblemGroup:
    """The problems of one column and cause: how many, and the first few."""

    count: int = 0
    examples: list[RowProblem] = field(default_factory=list)

    @property
    def room(self) -> int:
        return MOST_EXAMPLES - len(self.examples)


@dataclass
class ProblemTally:
    """Problems by column and cause, so that one bad column does not hide the others."""

    groups: dict[tuple[str | None, str], ProblemGroup] = field(default_factory=dict)
    count: int = 0

    def group(self, column: str | None, cause: str) -> ProblemGroup:
        return self.groups.setdefault((column, cause), ProblemGroup())

    def add(self, column: str | None, cause: str, count: int) -> None:
        self.group(column, cause).count += count
        self.count += count

    def with_problems(self, problems: Iterable[RowProblem], count: int) -> ProblemTally:
        """These problems first, of which there are `count` in all, then those counted here."""
        joined = ProblemTally()
        listed = list(problems)
        for problem in listed:
            joined.add(problem.column, problem.cause, 1)
            group = joined.group(problem.column, problem.cause)
            group.examples += [problem][: max(group.room, 0)]
        if listed and count > len(listed):
            last = listed[-1]
            joined.add(last.column, last.cause, count - len(listed))
        for (column, cause), group in self.groups.items():
            joined.add(column, cause, group.count)
            own = joined.group(column, cause)
            own.examples += group.examples[: max(own.room, 0)]
        return joined

    def listed(self) -> list[RowProblem]:
        """At most `MOST_LISTED` examples, the first of each group before the second of any; in
        the order of rows, those of the whole file first."""
        turns = zip_longest(*(group.examples for group in self.groups.values()))
        found = (problem for problem in chain.from_iterable(turns) if problem is not None)
        return sorted(islice(found, MOST_LISTED), key=lambda problem: problem.row or 0)


def refuse(message: str, remedy: str, column: str | None = None) -> TableError:
    """A `TableError` about the file as a whole."""
    return TableError([RowProblem(None, None, column, message, remedy)])


def quoted(cell: str) -> str:
    """A cell in quotes for a message, shortened if it is long."""
    shown = cell if len(cell) <= LONGEST_QUOTED else cell[:LONGEST_QUOTED] + "..."
    return f'"{shown}"'
