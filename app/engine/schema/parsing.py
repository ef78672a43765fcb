"""Reading a dictionary's wire form, with every problem told at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, cast

from app.engine.schema.column import (
    MOST_CELLS,
    Column,
    EntityColumn,
    LeftOut,
    TextFormat,
    Undeclared,
)
from app.engine.schema.constraints import Constraint
from app.engine.schema.problems import ProblemLog
from app.engine.schema.rules import parse_constraints
from app.engine.schema.scale import MOST_CODES, Categories, Linear, Scale, default_step
from app.engine.schema.values import TYPES, TypeName, Value, from_wire, is_text, tick

Field = Column | EntityColumn | LeftOut

MOST_COLUMNS = 2000
MOST_ENUM_VALUES = 1_000_000
MOST_BINS_LISTED = 100_000
LONGEST_NAME = 200
LONGEST_TEXT = 10_000

_TABLE_KEYS = {"fields", "missingValues", "constraints", "title", "description", "$schema"}
_FIELD_KEYS = {
    "name",
    "type",
    "format",
    "title",
    "description",
    "constraints",
    "bins",
    "special",
    "other",
    "undeclared",
    "values",
    "role",
    "step",
    "column",
    "proposed",
    "missingValues",
    "decimalChar",
    "groupChar",
    "bareNumber",
    "trueValues",
    "falseValues",
}
_CONSTRAINT_KEYS = {"required", "enum", "minimum", "maximum"}
_UNSUPPORTED = {
    "any",
    "array",
    "duration",
    "geojson",
    "geopoint",
    "list",
    "object",
    "yearmonth",
}
_FREE_TEXT = "free text: no categories are declared"
_BOUGHT = "bought dictionaries are not available in this version"
_DIRECTIVES = {
    "date": set("dmyYbB%"),
    "datetime": set("dmyYbBHIpMS%"),
    "time": set("HIpMS%"),
}


def parse_table(
    wire: Any,
) -> tuple[tuple[Field, ...], tuple[str, ...], tuple[Constraint, ...]]:
    """Fields, the table's spellings of null, and its constraints; raises `SchemaError`."""
    log = ProblemLog()
    if not isinstance(wire, Mapping):
        log.add("a dictionary is an object", 'write {"fields": [...]}')
        log.raise_if_any()
    _check_keys(wire, _TABLE_KEYS, log)
    missing = _spellings(wire, "missingValues", log)
    raw = wire.get("fields")
    if not isinstance(raw, list) or not 1 <= len(raw) <= MOST_COLUMNS:
        log.add(f"`fields` lists 1 to {MOST_COLUMNS} columns", "describe each column", "fields")
        log.raise_if_any()
    fields = [_FieldReader(item, log.below("fields", i)).read() for i, item in enumerate(raw or [])]
    kept = tuple(field for field in fields if field is not None)
    _check_names(raw or [], log)
    if not log.found and not any(isinstance(field, Column) for field in kept):
        log.add(
            "no column is left to make data from",
            "declare a range or categories for at least one column besides the entity's",
            "fields",
        )
    constraints: tuple[Constraint, ...] = ()
    if wire.get("constraints") is not None and not log.found:
        usable = {field.name: field for field in kept if isinstance(field, Column)}
        constraints = parse_constraints(wire["constraints"], usable, log.below("constraints"))
    log.raise_if_any()
    return kept, ("",) if missing is None else missing, constraints


def _check_keys(wire: Mapping[str, Any], known: set[str], log: ProblemLog) -> None:
    for key in wire:
        if key not in known:
            log.add("unknown key", f"use one of {', '.join(sorted(known))}", str(key))


def _check_names(raw: list[Any], log: ProblemLog) -> None:
    seen: dict[Any, int] = {}
    positions: dict[Any, int] = {}
    entities: list[int] = []
    for index, item in enumerate(raw):
        if not isinstance(item, Mapping):
            continue
        name, position = item.get("name"), item.get("column")
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            log.add("two columns have this name", "rename one", "fields", index, "name")
        if isinstance(position, int) and positions.setdefault(position, index) != index:
            log.add("two fields read this column", "correct one", "fields", index, "column")
        if item.get("role") == "entity":
            entities.append(index)
    for index in entities[1:]:
        log.add("a table has one entity column", "take one role away", "fields", index, "role")


def _spellings(wire: Mapping[str, Any], key: str, log: ProblemLog) -> tuple[str, ...] | None:
    """A list of distinct short texts, None where absent or wrong."""
    if key not in wire:
        return None
    raw = wire[key]
    short = isinstance(raw, list) and len(raw) <= 1000
    if not short or not all(is_text(item) and len(item) <= LONGEST_NAME for item in raw):
        log.add("expected a list of texts", "list the spellings", key)
        return None
    return tuple(dict.fromkeys(raw))


class _FieldReader:
    """Reads one field; each part that is wrong is logged and left at None."""

    def __init__(self, wire: Any, log: ProblemLog) -> None:
        self.wire: Mapping[str, Any] = wire if isinstance(wire, Mapping) else {}
        self.log = log
        self.is_object = isinstance(wire, Mapping)

    def read(self) -> Field | None:
        if not self.is_object:
            self.log.add("a field is an object", 'write {"name": ..., "type": ...}')
            return None
        before = len(self.log.found)
        _check_keys(self.wire, _FIELD_KEYS, self.log)
        name, kind, position = self._name(), self._type(), self._position()
        self._refuse_bought()
        self._refuse_unconfirmed()
        if len(self.log.found) > before or name is None or kind is None:
            return None
        if kind in _UNSUPPORTED:
            return LeftOut(name, kind, f"columns of type {kind} are not used", position)
        self.kind = cast(TypeName, kind)
        return self._usable(name, position, before)

    def _usable(self, name: str, position: int | None, before: int) -> Field | None:
        text_format = self._text_format()
        shown = {"title": self._prose("title"), "description": self._prose("description")}
        is_entity = self._is_entity()
        if is_entity:
            self._refuse_column_keys()
            return EntityColumn(name, self.kind, text_format, position, **shown)
        limits = self._limits()
        if self.kind == "string" and "enum" not in limits:
            self._check_free_text(limits)
            return LeftOut(name, self.kind, _FREE_TEXT, position)
        scale = self._scale(limits, text_format)
        if scale is None:
            return None
        nullable = not self._required(limits)
        parts = self._treatments(scale, text_format, nullable)
        if len(self.log.found) > before:
            return None
        column_parts: dict[str, Any] = {**parts, **shown}
        return self._column(
            lambda: Column(
                name=name,
                type=self.kind,
                scale=scale,
                nullable=nullable,
                text_format=text_format,
                position=position,
                **column_parts,
            )
        )

    def _column(self, make: Callable[[], Column]) -> Column | None:
        """The column, or the problem that its own validation finds."""
        try:
            return make()
        except ValueError as error:
            self.log.add(str(error), f"declare `bins`, at most {MOST_CELLS} cells", "bins")
            return None

    def _name(self) -> str | None:
        name = self.wire.get("name")
        if not is_text(name) or not 1 <= len(str(name)) <= LONGEST_NAME or "\0" in str(name):
            self.log.add(
                f"a column has a name of 1 to {LONGEST_NAME} characters",
                "give the name that the file's header has",
                "name",
            )
            return None
        return str(name)

    def _type(self) -> str | None:
        kind = self.wire.get("type")
        if not isinstance(kind, str) or kind not in {*TYPES, *_UNSUPPORTED}:
            self.log.add("unknown type", f"use one of {', '.join(TYPES)}", "type")
            return None
        return kind

    def _position(self) -> int | None:
        position = self.wire.get("column")
        if position is None:
            return None
        whole = isinstance(position, int) and not isinstance(position, bool)
        if not whole or not 1 <= position <= 100_000:
            self.log.add(
                "`column` is the column's place in the file, counted from 1",
                "give a whole number from 1, or leave it out to match by name",
                "column",
            )
            return None
        return cast(int, position)

    def _prose(self, key: str) -> str | None:
        prose = self.wire.get(key)
        if prose is not None and not (is_text(prose) and len(prose) <= LONGEST_TEXT):
            self.log.add(f"expected text of at most {LONGEST_TEXT} characters", "shorten it", key)
            return None
        return prose

    def _refuse_bought(self) -> None:
        if "values" in self.wire:
            if self.wire["values"] == "discover":
                self.log.add(_BOUGHT, "list the public values in `constraints/enum`", "values")
            else:
                self.log.add('`values` can only be "discover"', "leave it out", "values")
        if self.wire.get("bins") == "quantiles":
            self.log.add(_BOUGHT, "give a number of bins or public edges", "bins")

    def _refuse_unconfirmed(self) -> None:
        if self.wire.get("proposed") not in (None, False):
            self.log.add(
                "this field was read off the file and is not confirmed as public knowledge",
                "check it against public documentation, then take `proposed` away",
                "proposed",
            )

    def _is_entity(self) -> bool:
        role = self.wire.get("role")
        if role not in (None, "entity"):
            self.log.add('the only role is "entity"', "leave `role` out", "role")
        return role == "entity"

    def _refuse_column_keys(self) -> None:
        for key in ("bins", "special", "other", "undeclared", "step"):
            if key in self.wire:
                self.log.add("ids are never stored or counted", f"leave `{key}` out", key)

    def _limits(self) -> Mapping[str, Any]:
        limits = self.wire.get("constraints", {})
        if not isinstance(limits, Mapping):
            self.log.add("expected an object", 'write {"minimum": ...}', "constraints")
            return {}
        _check_keys(limits, _CONSTRAINT_KEYS, self.log.below("constraints"))
        return limits

    def _check_free_text(self, limits: Mapping[str, Any]) -> None:
        for key in ("other", "special", "bins"):
            if key in self.wire:
                self.log.add(
                    "a string column without categories is left out",
                    f"list the categories in `constraints/enum`, or leave `{key}` out",
                    key,
                )
        self._required(limits)

    def _required(self, limits: Mapping[str, Any]) -> bool:
        required = limits.get("required", False)
        if not isinstance(required, bool):
            self.log.add("`required` is true or false", "choose one", "constraints", "required")
            return False
        return required

    def _value(self, raw: Any, formats: tuple[str, ...], *steps: str | int) -> Value | None:
        try:
            return from_wire(self.kind, raw, formats)
        except ValueError as error:
            self.log.add(str(error), f"write a value of type {self.kind}", *steps)
            return None

    def _values(self, raw: Any, formats: tuple[str, ...], *steps: str | int) -> list[Value] | None:
        """Distinct values of a list, None if any is wrong."""
        if not isinstance(raw, list) or not raw:
            self.log.add("expected a list of values, at least one", "list them", *steps)
            return None
        if len(raw) > MOST_ENUM_VALUES:
            self.log.add(f"at most {MOST_ENUM_VALUES} values", "group them first", *steps)
            return None
        before, seen = len(self.log.found), dict[Value, int]()
        for index, item in enumerate(raw):
            value = self._value(item, formats, *steps, index)
            if value is not None and seen.setdefault(value, index) != index:
                self.log.add("this value is listed twice", "take one away", *steps, index)
        return list(seen) if len(self.log.found) == before else None

    def _scale(self, limits: Mapping[str, Any], text_format: TextFormat) -> Scale | None:
        if self.kind == "boolean":
            for key in ("enum", "minimum", "maximum"):
                if key in limits:
                    self.log.add(
                        "a boolean is false or true", f"leave `{key}` out", "constraints", key
                    )
            return Categories((False, True))
        if "enum" in limits:
            return self._categories(limits, text_format)
        return self._range(limits, text_format)

    def _categories(self, limits: Mapping[str, Any], text_format: TextFormat) -> Scale | None:
        for key in ("minimum", "maximum"):
            if key in limits:
                self.log.add(
                    "`enum` already lists every value", f"leave `{key}` out", "constraints", key
                )
        if "bins" in self.wire:
            self.log.add("a column of categories has a cell for each", "leave `bins` out", "bins")
        values = self._values(limits["enum"], text_format.formats, "constraints", "enum")
        return None if values is None else Categories(tuple(values))

    def _range(self, limits: Mapping[str, Any], text_format: TextFormat) -> Scale | None:
        ends = self._ends(limits, text_format)
        step = self._step()
        if ends is None:
            return None
        minimum, maximum = ends
        if maximum < minimum:
            self.log.add(
                "the maximum lies below the minimum", "swap them", "constraints", "maximum"
            )
            return None
        if self.kind != "number":
            step = Decimal(1)
        elif step is None:
            step = default_step(minimum, maximum)
        if (maximum - minimum) // step >= MOST_CODES:
            self.log.add(
                "the range has more than 2^32 - 1 points",
                "narrow it" if self.kind != "number" else "narrow it or declare a larger `step`",
                "constraints",
                "maximum",
            )
            return None
        return Linear(self.kind, minimum, maximum, step)

    def _ends(
        self, limits: Mapping[str, Any], text_format: TextFormat
    ) -> tuple[Decimal, Decimal] | None:
        ends: list[Decimal] = []
        for key, natural in (("minimum", 0), ("maximum", 86_399)):
            if key in limits:
                value = self._value(limits[key], text_format.formats, "constraints", key)
                ends += [] if value is None else [tick(value)]
            elif self.kind == "time":
                ends.append(Decimal(natural))
            else:
                self.log.add(
                    f"a column of type {self.kind} needs a public {key}",
                    "give `minimum` and `maximum`, or list its values in `enum`",
                    "constraints",
                    key,
                )
        return (ends[0], ends[1]) if len(ends) == 2 else None

    def _step(self) -> Decimal | None:
        if "step" not in self.wire:
            return None
        if self.kind != "number":
            self.log.add("only a number has a `step`", "leave it out", "step")
            return None
        step = self._value(self.wire["step"], (), "step")
        if step is not None and tick(step) <= 0:
            self.log.add("a step is positive", "give the distance between two values", "step")
            return None
        return None if step is None else tick(step)

    def _treatments(self, scale: Scale, text_format: TextFormat, nullable: bool) -> dict[str, Any]:
        other = None
        if self.wire.get("other") is not None:
            other = self._value(self.wire["other"], text_format.formats, "other")
        return {
            "special": self._special(scale, text_format),
            "other": other,
            "undeclared": self._undeclared(scale, nullable),
            "bins": self._bins(scale, text_format),
        }

    def _special(self, scale: Scale, text_format: TextFormat) -> tuple[Value, ...]:
        if "special" not in self.wire:
            return ()
        if not isinstance(scale, Linear):
            self.log.add("each category has a cell of its own", "leave `special` out", "special")
            return ()
        return tuple(self._values(self.wire["special"], text_format.formats, "special") or ())

    def _undeclared(self, scale: Scale, nullable: bool) -> Undeclared:
        has_other = self.wire.get("other") is not None
        choice = self.wire.get("undeclared", "other" if has_other else "reject")
        problem = None
        if choice not in ("other", "null", "clip", "reject"):
            problem = ("unknown treatment", "use other, null, clip or reject")
        elif choice == "other" and not has_other:
            problem = ("undeclared values have nowhere to go", "declare `other`")
        elif choice == "null" and not nullable:
            problem = ("a required column has no null", 'choose another, or "required": false')
        elif choice == "clip" and not isinstance(scale, Linear):
            problem = ("only a range can be clipped to", "use other, null or reject")
        if problem:
            self.log.add(*problem, "undeclared")
            return "reject"
        return cast(Undeclared, choice)

    def _bins(self, scale: Scale, text_format: TextFormat) -> int | tuple[Value, ...] | None:
        raw = self.wire.get("bins")
        if raw is None or not isinstance(scale, Linear):
            if raw is not None and self.kind == "boolean":
                self.log.add("a boolean has a cell for each value", "leave `bins` out", "bins")
            return None
        if isinstance(raw, list):
            return self._edges(raw, scale, text_format)
        if not isinstance(raw, int) or isinstance(raw, bool) or not 1 <= raw <= MOST_CELLS:
            self.log.add(
                f"`bins` is a count from 1 to {MOST_CELLS}, or a list of edges",
                "give one of the two",
                "bins",
            )
            return None
        return raw

    def _edges(
        self, raw: list[Any], scale: Linear, text_format: TextFormat
    ) -> tuple[Value, ...] | None:
        if not raw or len(raw) > MOST_BINS_LISTED:
            self.log.add(f"expected 1 to {MOST_BINS_LISTED} edges", "list them or count", "bins")
            return None
        values = [self._value(edge, text_format.formats, "bins", i) for i, edge in enumerate(raw)]
        edges = [value for value in values if value is not None]
        if len(edges) != len(raw):
            return None
        places = [tick(edge) for edge in edges]
        for index, place in enumerate(places):
            if not scale.minimum <= place <= scale.maximum:
                self.log.add("an edge lies between minimum and maximum", "move it", "bins", index)
            if index and place <= places[index - 1]:
                self.log.add("edges rise strictly", "sort them", "bins", index)
        return tuple(edges)

    def _text_format(self) -> TextFormat:
        plain = TextFormat()
        trues, falses = (
            _spellings(self.wire, key, self.log) for key in ("trueValues", "falseValues")
        )
        if trues and falses and set(trues) & set(falses):
            self.log.add("a spelling is both true and false", "choose", "falseValues")
        group = self._mark("groupChar", None)
        decimal = self._mark("decimalChar", plain.decimal_char)
        if self.kind == "number" and group is not None and group == decimal:
            self.log.add("decimalChar and groupChar differ", "declare both", "groupChar")
        bare = self.wire.get("bareNumber", True)
        if not isinstance(bare, bool):
            self.log.add("`bareNumber` is true or false", "choose one", "bareNumber")
        return TextFormat(
            formats=self._formats(),
            decimal_char=decimal or plain.decimal_char,
            group_char=group,
            bare_number=bare is True,
            true_values=plain.true_values if trues is None else trues,
            false_values=plain.false_values if falses is None else falses,
            missing=_spellings(self.wire, "missingValues", self.log),
        )

    def _mark(self, key: str, default: str | None) -> str | None:
        mark = self.wire.get(key)
        if mark is None:
            return default
        if not isinstance(mark, str) or len(mark) != 1 or mark.isdigit() or mark in "+-":
            self.log.add("expected a single mark", 'such as "." or ","', key)
            return default
        if self.kind not in ("integer", "number"):
            self.log.add("only numbers have marks", f"leave `{key}` out", key)
        return mark

    def _formats(self) -> tuple[str, ...]:
        raw = self.wire.get("format", "default")
        listed = raw if isinstance(raw, list) else [raw]
        if raw in ("default", "any") or (self.kind == "string" and isinstance(raw, str)):
            return ()
        if self.kind not in _DIRECTIVES:
            self.log.add(f"a {self.kind} has no format", "leave `format` out", "format")
            return ()
        for index, form in enumerate(listed):
            steps = ("format", index) if isinstance(raw, list) else ("format",)
            if not isinstance(form, str) or not _format_is_known(self.kind, form):
                allowed = " ".join(f"%{mark}" for mark in sorted(_DIRECTIVES[self.kind]))
                self.log.add("unknown format", f"use strptime marks among {allowed}", *steps)
                return ()
        return tuple(listed)


def _format_is_known(kind: str, form: str) -> bool:
    marks = re.findall(r"%(.?)", form)
    return 0 < len(form) <= LONGEST_NAME and bool(marks) and set(marks) <= _DIRECTIVES[kind]
