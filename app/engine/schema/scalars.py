"""Reading the smallest parts of a dictionary: keys, spellings, values and lists of values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from app.engine.schema.problems import ProblemLog
from app.engine.schema.values import TypeName, Value, from_wire, is_text

MOST_ENUM_VALUES = 1_000_000
MOST_SPELLINGS = 1000
LONGEST_NAME = 200


def check_keys(wire: Mapping[str, Any], known: Collection[str], log: ProblemLog) -> None:
    for key in wire:
        if key not in known:
            log.add("unknown key", f"use one of {', '.join(sorted(known))}", str(key))


def read_spellings(wire: Mapping[str, Any], key: str, log: ProblemLog) -> tuple[str, ...] | None:
    """A list of distinct short texts; None if it is absent or wrong."""
    if key not in wire:
        return None
    raw = wire[key]
    short = isinstance(raw, list) and len(raw) <= MOST_SPELLINGS
    if not short or not all(is_text(item) and len(item) <= LONGEST_NAME for item in raw):
        log.add("expected a list of texts", "list the spellings", key)
        return None
    return tuple(dict.fromkeys(raw))


@dataclass(frozen=True)
class ValueReader:
    """Reads values of one type, in ISO 8601 or one of `formats`. Wrong values are logged."""

    kind: TypeName
    formats: tuple[str, ...]
    log: ProblemLog

    def value(self, raw: Any, *steps: str | int) -> Value | None:
        try:
            return from_wire(self.kind, raw, self.formats)
        except ValueError as error:
            self.log.add(str(error), f"write a value of type {self.kind}", *steps)
            return None

    def values(
        self, raw: Any, *steps: str | int, most: int = MOST_ENUM_VALUES
    ) -> tuple[Value, ...] | None:
        """The distinct values of a list; None if any is wrong."""
        if not isinstance(raw, list) or not raw:
            self.log.add("expected a list of values, at least one", "list them", *steps)
            return None
        if len(raw) > most:
            self.log.add(f"at most {most} values", "group them first", *steps)
            return None
        before, seen = len(self.log.found), dict[Value, int]()
        for index, item in enumerate(raw):
            value = self.value(item, *steps, index)
            if value is not None and seen.setdefault(value, index) != index:
                self.log.add("this value is listed twice", "remove one", *steps, index)
        return tuple(seen) if len(self.log.found) == before else None
