"""Problems of a declaration, reported all at once.

SchemaError(ValueError)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.engine.json_pointer import pointer

# A list with one mistake may repeat it for each of a million values.
MOST_REPORTED = 1000


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One problem: where it is (a JSON pointer into the declaration), what it is, how to fix it."""

    pointer: str
    message: str
    remedy: str


class SchemaError(ValueError):
    """A declaration that cannot be used. `errors` holds the first 1,000 problems."""

    def __init__(self, errors: Sequence[FieldProblem]) -> None:
        self.errors = tuple(errors[:MOST_REPORTED])
        super().__init__("; ".join(f"{error.pointer}: {error.message}" for error in self.errors))


@dataclass
class ProblemLog:
    """Collects problems below one pointer while a declaration is read."""

    pointer: str = ""
    found: list[FieldProblem] = field(default_factory=list)

    def below(self, *steps: str | int) -> ProblemLog:
        """A log for a deeper place in the declaration; it writes into the same list."""
        return ProblemLog(self.pointer + pointer(*steps), self.found)

    def add(self, message: str, remedy: str, *steps: str | int) -> None:
        self.found.append(FieldProblem(self.below(*steps).pointer, message, remedy))

    def raise_if_any(self) -> None:
        if self.found:
            raise SchemaError(self.found)
