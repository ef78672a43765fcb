"""What is asked of a store: its statements, and how many values each binds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import event

from app.database import Database


class Statement(NamedTuple):
    text: str
    variables: int


@contextmanager
def statements(database: Database) -> Iterator[list[Statement]]:
    """Every statement of the block, in order; BEGIN counts, COMMIT does not."""
    seen: list[Statement] = []

    def executed(
        _connection: Any, _cursor: Any, text: str, parameters: Any, _context: Any, is_many: bool
    ) -> None:
        bound = max(map(len, parameters), default=0) if is_many else len(parameters)
        seen.append(Statement(" ".join(text.split()), bound))

    engines = (database.read_engine, database.write_engine)
    for engine in engines:
        event.listen(engine, "before_cursor_execute", executed)
    try:
        yield seen
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", executed)
