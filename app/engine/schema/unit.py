"""The privacy unit: who is hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.engine.schema.problems import ProblemLog
from app.engine.schema.scalars import check_keys

MOST_ROWS_PER_ENTITY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """What adjacent datasets differ by: one row, or all rows of one entity, added or removed.

    `max_rows` is the contribution bound k, the most rows of one unit that count. For `row` it is 1.
    """

    kind: Literal["row", "entity"]
    column: str | None = None
    max_rows: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("row", "entity"):
            raise ValueError("a unit must be a `row` or an `entity`")
        if self.kind == "row" and (self.column is not None or self.max_rows != 1):
            raise ValueError("a `row` unit must have no column and count one row")
        if self.kind == "entity" and not self.column:
            raise ValueError("an `entity` unit must name the column that holds the id")
        if not 1 <= self.max_rows <= MOST_ROWS_PER_ENTITY:
            raise ValueError(f"max_rows must be 1 to {MOST_ROWS_PER_ENTITY}")

    @property
    def repeats(self) -> bool:
        """Whether a unit can have several rows, so that there is something to measure of it."""
        return self.max_rows > 1

    def to_wire(self) -> dict[str, Any]:
        if self.kind == "row":
            return {"kind": "row"}
        return {"kind": "entity", "column": self.column, "max_rows": self.max_rows}

    @classmethod
    def parse(cls, wire: Any) -> PrivacyUnit:
        """Reads the wire form; raises `SchemaError` with pointers below `/`."""
        log = ProblemLog()
        if not isinstance(wire, Mapping):
            log.add("a privacy unit is an object", 'write {"kind": "row"}')
            log.raise_if_any()
        check_keys(wire, {"kind", "column", "max_rows"}, log)
        kind = wire.get("kind")
        if kind not in ("row", "entity"):
            log.add("`kind` is `row` or `entity`", "choose one of the two", "kind")
        elif kind == "entity":
            _check_entity(wire, log)
        elif wire.get("column") is not None or wire.get("max_rows", 1) != 1:
            log.add(
                "a `row` unit has no column and counts one row",
                'leave out `column` and `max_rows`, or choose "entity"',
                "kind",
            )
        log.raise_if_any()
        if kind == "row":
            return cls("row")
        return cls("entity", wire["column"], wire["max_rows"])


def _check_entity(wire: Mapping[str, Any], log: ProblemLog) -> None:
    column, max_rows = wire.get("column"), wire.get("max_rows")
    if not isinstance(column, str) or not column:
        log.add("an entity unit names its id column", "give the column's name", "column")
    is_whole = isinstance(max_rows, int) and not isinstance(max_rows, bool)
    if not is_whole or not 1 <= int(str(max_rows)) <= MOST_ROWS_PER_ENTITY:
        log.add(
            f"`max_rows` is a whole number from 1 to {MOST_ROWS_PER_ENTITY}",
            "give the contribution bound: the most rows of one entity that count",
            "max_rows",
        )
