"""Reading cross-column constraints from JSON.

{"kind": "sum", "total": "trip_total", "parts": ["fare", "tips"], "tolerance": 0.01}
{"kind": "at_least", "column": "trip_total", "sum_of": ["fare", "tips"], "offset": -1}
{"kind": "order", "columns": ["start", "end"], "strict": false}
{"kind": "forbidden", "when": {"age": {"maximum": 14}, "married": [true]}}
{"kind": "implied", "when": {"employed": [false]}, "then": {"industry": [null]}}
{"kind": "lookup", "columns": ["code", "name"], "rows": [["4C", "AGG. ASSAULT"]]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.engine.schema.column import Column
from app.engine.schema.constraints import (
    AtLeast,
    Condition,
    Constraint,
    Forbidden,
    Implied,
    Lookup,
    Order,
    Sum,
)
from app.engine.schema.problems import ProblemLog
from app.engine.schema.scalars import ValueReader, check_keys
from app.engine.schema.values import Value, tick

MOST_CONSTRAINTS = 1000
MOST_LOOKUP_ROWS = 100_000
MOST_JOINED = 50
LARGEST_IN_RULES = 2**53


def parse_constraints(
    wire: Any, columns: Mapping[str, Column], log: ProblemLog
) -> tuple[Constraint, ...]:
    """The constraints over usable columns. Wrong ones are logged and left out."""
    if not isinstance(wire, list) or len(wire) > MOST_CONSTRAINTS:
        log.add(f"expected a list of at most {MOST_CONSTRAINTS} constraints", "list them")
        return ()
    found = [_RuleReader(item, columns, log.below(i)).read() for i, item in enumerate(wire)]
    return tuple(constraint for constraint in found if constraint is not None)


class _RuleReader:
    def __init__(self, wire: Any, columns: Mapping[str, Column], log: ProblemLog) -> None:
        self.wire = wire
        self.columns = columns
        self.log = log

    def read(self) -> Constraint | None:
        kinds: dict[str, tuple[Callable[[], Constraint | None], set[str]]] = {
            "sum": (self._sum, {"total", "parts", "tolerance"}),
            "at_least": (self._at_least, {"column", "sum_of", "offset"}),
            "order": (self._order, {"columns", "strict"}),
            "forbidden": (self._forbidden, {"when"}),
            "implied": (self._implied, {"when", "then"}),
            "lookup": (self._lookup, {"columns", "rows"}),
        }
        kind = self.wire.get("kind") if isinstance(self.wire, Mapping) else None
        if not isinstance(kind, str) or kind not in kinds:
            self.log.add("unknown kind of constraint", f"use one of {', '.join(kinds)}", "kind")
            return None
        read, known = kinds[kind]
        check_keys(self.wire, known | {"kind", "title", "description"}, self.log)
        # A constraint with a problem is left out, even if it could be built: it is never checked.
        before = len(self.log.found)
        constraint = read()
        return constraint if len(self.log.found) == before else None

    def _column(self, name: Any, *steps: str | int) -> Column | None:
        if not isinstance(name, str) or name not in self.columns:
            self.log.add("no usable column has this name", "name a declared column", *steps)
            return None
        return self.columns[name]

    def _several(self, key: str, least: int) -> tuple[Column, ...] | None:
        names = self.wire.get(key)
        if not isinstance(names, list) or not least <= len(names) <= MOST_JOINED:
            self.log.add(f"expected {least} to {MOST_JOINED} columns", "list their names", key)
            return None
        found = [self._column(name, key, place) for place, name in enumerate(names)]
        if None in found:
            return None
        if len(set(map(str, names))) < len(names):
            self.log.add("a column is named twice", "remove one", key)
        return tuple(column for column in found if column is not None)

    def _sum(self) -> Constraint | None:
        total, parts = self._column(self.wire.get("total"), "total"), self._several("parts", 1)
        tolerance = self.wire.get("tolerance")
        if tolerance is not None:
            tolerance = self._tolerance(tolerance)
        if total is None or parts is None:
            return None
        for column in (total, *parts):
            if column.type not in ("integer", "number"):
                self.log.add(
                    f"`{column.name}` is not a number", "sum only columns of numbers", "parts"
                )
        self._check_sizes("parts", (total, *parts))
        if total in parts:
            self.log.add("the total cannot be one of its own parts", "remove it", "parts")
        return Sum(total, parts, tolerance)

    def _tolerance(self, raw: Any) -> float | None:
        tolerance = ValueReader("number", (), self.log).value(raw, "tolerance")
        if tolerance is not None and tick(tolerance) < 0:
            self.log.add("a tolerance must not be negative", "give 0 or more", "tolerance")
        return None if tolerance is None else float(tick(tolerance))

    def _at_least(self) -> Constraint | None:
        column = self._column(self.wire.get("column"), "column")
        parts, raw = self._several("sum_of", 1), self.wire.get("offset")
        offset = ValueReader("number", (), self.log).value(0 if raw is None else raw, "offset")
        if column is None or parts is None or offset is None:
            return None
        for each in (column, *parts):
            if each.type not in ("integer", "number"):
                self.log.add(
                    f"`{each.name}` is not a number", "sum only columns of numbers", "sum_of"
                )
        self._check_sizes("sum_of", (column, *parts))
        if column in parts:
            self.log.add(
                "the column cannot be one of the columns in its sum", "remove it", "sum_of"
            )
        return AtLeast(column, parts, offset)

    def _order(self) -> Constraint | None:
        columns, strict = self._several("columns", 2), self.wire.get("strict", False)
        if not isinstance(strict, bool):
            self.log.add("`strict` is true or false", "choose one", "strict")
        if columns is None:
            return None
        numeric = {"integer", "number", "year"}
        kinds = {"number" if column.type in numeric else column.type for column in columns}
        is_comparable = len(kinds) == 1 or kinds == {"date", "datetime"}
        if not is_comparable or kinds & {"string", "boolean"}:
            self.log.add("these columns cannot be compared", "choose numbers or dates", "columns")
        else:
            self._check_sizes("columns", columns)
        return Order(columns, strict is True)

    def _check_sizes(self, key: str, columns: Sequence[Column]) -> None:
        """Repair works with doubles, which hold every whole number up to 2^53."""
        for column in columns:
            if column.has_numbers and column.largest_place > LARGEST_IN_RULES:
                self.log.add(
                    f"`{column.name}` has numbers beyond 2^53, which a rule cannot compare",
                    "narrow its range, or leave it out of the rule",
                    key,
                )

    def _forbidden(self) -> Constraint | None:
        when = self._conditions("when")
        return None if when is None else Forbidden(when)

    def _implied(self) -> Constraint | None:
        when, then = self._conditions("when"), self._conditions("then")
        return None if when is None or then is None else Implied(when, then)

    def _conditions(self, key: str) -> tuple[Condition, ...] | None:
        wire = self.wire.get(key)
        if not isinstance(wire, Mapping) or not 1 <= len(wire) <= MOST_JOINED:
            self.log.add("expected conditions by column", 'write {"column": [values]}', key)
            return None
        found = [self._condition(key, name, raw) for name, raw in wire.items()]
        return tuple(condition for condition in found if condition is not None)

    def _condition(self, key: str, name: str, raw: Any) -> Condition | None:
        column = self._column(name, key, name)
        if column is None:
            return None
        if isinstance(raw, list) and raw:
            listed = tuple(self._declared(column, item, key, name, i) for i, item in enumerate(raw))
            return Condition(column, listed)
        if isinstance(raw, Mapping) and raw and set(raw) <= {"minimum", "maximum"}:
            return self._bounds(column, raw, key, name)
        self.log.add(
            "expected a list of values or bounds",
            'write [values] or {"minimum": ..., "maximum": ...}',
            key,
            name,
        )
        return None

    def _bounds(
        self, column: Column, raw: Mapping[str, Any], key: str, name: str
    ) -> Condition | None:
        if column.type in ("string", "boolean"):
            self.log.add(
                "a column of categories has no order, so it cannot have bounds",
                "list the values",
                key,
                name,
            )
            return None
        ends = {end: self._value(column, raw[end], key, name, end) for end in raw}
        return Condition(column, (), ends.get("minimum"), ends.get("maximum"))

    def _lookup(self) -> Constraint | None:
        columns, rows = self._several("columns", 2), self.wire.get("rows")
        if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_LOOKUP_ROWS:
            self.log.add(f"expected 1 to {MOST_LOOKUP_ROWS} rows", "list combinations", "rows")
            return None
        if columns is None:
            return None
        return Lookup(columns, tuple(self._row(columns, row, i) for i, row in enumerate(rows)))

    def _row(self, columns: tuple[Column, ...], row: Any, place: int) -> tuple[Value | None, ...]:
        if not isinstance(row, list) or len(row) != len(columns):
            self.log.add(f"expected {len(columns)} values", "one for each column", "rows", place)
            return ()
        pairs = zip(columns, row, strict=True)
        return tuple(
            self._declared(column, cell, "rows", place, i) for i, (column, cell) in enumerate(pairs)
        )

    def _value(self, column: Column, raw: Any, *steps: str | int) -> Value | None:
        return ValueReader(column.type, column.text_format.formats, self.log).value(raw, *steps)

    def _declared(self, column: Column, raw: Any, *steps: str | int) -> Value | None:
        """A value that the column can store; None stands for null."""
        value = None if raw is None else self._value(column, raw, *steps)
        if raw is not None and value is None:
            return None
        if column.code(value) is None:
            self.log.add(
                f"`{column.name}` does not declare this value",
                "declare it, or remove it here" if value is not None else "the column is required",
                *steps,
            )
        return value
