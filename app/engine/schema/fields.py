"""Reading one field of a dictionary: a column, the entity column, or a field left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from app.engine.schema.column import (
    MOST_CELLS,
    MOST_FOUND,
    USUAL_MOST_FOUND,
    Column,
    EntityColumn,
    LeftOut,
    TextFormat,
)
from app.engine.schema.domain import DomainReader
from app.engine.schema.problems import ProblemLog
from app.engine.schema.scalars import LONGEST_NAME, ValueReader, check_keys
from app.engine.schema.scale import Categories
from app.engine.schema.spelling import SpellingReader
from app.engine.schema.values import TYPES, TypeName, is_text

Field = Column | EntityColumn | LeftOut

MOST_POSITION = 100_000
LONGEST_TEXT = 10_000

FIELD_KEYS = {
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
# Types whose values have one spelling each; ids are compared by their text.
_ID_TYPES = ("string", "integer", "year")
_FREE_TEXT = "free text: no categories are declared"


class FieldReader:
    """Reads one field. A part that is wrong is logged and becomes None."""

    def __init__(self, wire: Any, log: ProblemLog) -> None:
        self.wire: Mapping[str, Any] = wire if isinstance(wire, Mapping) else {}
        self.log = log
        self.is_object = isinstance(wire, Mapping)

    def read(self) -> Field | None:
        if not self.is_object:
            self.log.add("a field must be an object", 'write {"name": ..., "type": ...}')
            return None
        before = len(self.log.found)
        check_keys(self.wire, FIELD_KEYS, self.log)
        name, kind, position = self._name(), self._type(), self._position()
        self._refuse_unconfirmed()
        if len(self.log.found) > before or name is None or kind is None:
            return None
        if kind in _UNSUPPORTED:
            return LeftOut(name, kind, f"columns of type {kind} are not used", position)
        self.kind = cast(TypeName, kind)
        return self._usable(name, position, before)

    def _usable(self, name: str, position: int | None, before: int) -> Field | None:
        text_format = SpellingReader(self.wire, self.kind, self.log).read()
        shown = {"title": self._prose("title"), "description": self._prose("description")}
        if self._is_entity():
            self._refuse_column_keys()
            return EntityColumn(name, self.kind, text_format, position, **shown)
        limits = self._limits()
        nullable = not self._required(limits)
        if "values" in self.wire:
            return self._discovered(limits, name, position, nullable, text_format, shown)
        if self.kind == "string" and "enum" not in limits:
            self._check_free_text()
            return LeftOut(name, self.kind, _FREE_TEXT, position)
        values = ValueReader(self.kind, text_format.formats, self.log)
        domain = DomainReader(self.wire, limits, values)
        scale = domain.scale()
        if scale is None:
            return None
        treatments = domain.treatments(scale, nullable)
        if len(self.log.found) > before:
            return None
        parts: dict[str, Any] = {**treatments, **shown, "position": position}
        return self._column(
            lambda: Column(
                name, self.kind, scale, nullable=nullable, text_format=text_format, **parts
            )
        )

    def _column(self, make: Callable[[], Column]) -> Column | None:
        """The column, or None if its own validation finds a problem, which is logged."""
        try:
            return make()
        except ValueError as error:
            self.log.add(str(error), f"declare `bins`, at most {MOST_CELLS} cells", "bins")
            return None

    def _name(self) -> str | None:
        name = self.wire.get("name")
        if not is_text(name) or not 1 <= len(str(name)) <= LONGEST_NAME or "\0" in str(name):
            self.log.add(
                f"a column needs a name of 1 to {LONGEST_NAME} characters",
                "use the name in the header of the file",
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
        if not whole or not 1 <= position <= MOST_POSITION:
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

    def _discovered(
        self,
        limits: Mapping[str, Any],
        name: str,
        position: int | None,
        nullable: bool,
        text_format: TextFormat,
        shown: Mapping[str, Any],
    ) -> Column | None:
        before = len(self.log.found)
        most = self._most_found()
        if self.kind != "string" or "enum" in limits:
            self.log.add(
                "only a string column without `enum` can have discovered values",
                "leave `values` out",
                "values",
            )
        for key in ("bins", "special", "undeclared"):
            if key in self.wire:
                self.log.add(
                    "values that are not discovered are `other`", f"leave `{key}` out", key
                )
        other = None
        if self.wire.get("other") is None:
            self.log.add(
                "values that are not discovered need `other`", 'declare "other": "Other"', "other"
            )
        else:
            other = ValueReader(self.kind, (), self.log).value(self.wire["other"], "other")
        if len(self.log.found) > before:
            return None
        return Column(
            name,
            self.kind,
            Categories(()),
            other=other,
            nullable=nullable,
            discovers=most,
            undeclared="other",
            text_format=text_format,
            position=position,
            **shown,
        )

    def _most_found(self) -> int:
        asked = self.wire["values"]
        most = asked.get("discover") if isinstance(asked, Mapping) else USUAL_MOST_FOUND
        known = set(asked) == {"discover"} if isinstance(asked, Mapping) else asked == "discover"
        if known and type(most) is int and 1 <= most <= MOST_FOUND:
            return most
        self.log.add(
            f'`values` is "discover", or {{"discover": n}} for at most n values of {MOST_FOUND}',
            "write one of these, or leave it out",
            "values",
        )
        return USUAL_MOST_FOUND

    def _refuse_unconfirmed(self) -> None:
        if self.wire.get("proposed") not in (None, False):
            self.log.add(
                "this field was proposed from the file and is not confirmed as public knowledge",
                "check it against public documentation, then remove `proposed`",
                "proposed",
            )

    def _is_entity(self) -> bool:
        role = self.wire.get("role")
        if role not in (None, "entity"):
            self.log.add('the only role is "entity"', "leave `role` out", "role")
        return role == "entity"

    def _refuse_column_keys(self) -> None:
        # Values of other types have several spellings: 7, 7.0, 7e0.
        if self.kind not in _ID_TYPES:
            self.log.add(
                f"ids of type {self.kind} cannot be compared: one id has several spellings",
                "declare the id as string (compared letter by letter) or integer",
                "type",
            )
        for key in ("bins", "special", "other", "undeclared", "step"):
            if key in self.wire:
                self.log.add("ids are never stored or counted", f"leave `{key}` out", key)

    def _limits(self) -> Mapping[str, Any]:
        limits = self.wire.get("constraints", {})
        if not isinstance(limits, Mapping):
            self.log.add("expected an object", 'write {"minimum": ...}', "constraints")
            return {}
        check_keys(limits, _CONSTRAINT_KEYS, self.log.below("constraints"))
        return limits

    def _check_free_text(self) -> None:
        for key in ("other", "special", "bins"):
            if key in self.wire:
                self.log.add(
                    "a string column without categories is left out",
                    f"list the categories in `constraints/enum`, or leave `{key}` out",
                    key,
                )

    def _required(self, limits: Mapping[str, Any]) -> bool:
        required = limits.get("required", False)
        if not isinstance(required, bool):
            self.log.add("`required` is true or false", "choose one", "constraints", "required")
            return False
        return required
