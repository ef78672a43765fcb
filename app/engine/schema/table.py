"""The dictionary of a whole table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.schema.column import Column, EntityColumn, LeftOut
from app.engine.schema.constraints import Constraint
from app.engine.schema.parsing import parse_table
from app.engine.schema.problems import ProblemLog
from app.engine.schema.unit import PrivacyUnit
from app.engine.schema.writing import write_field

Field = Column | EntityColumn | LeftOut


@dataclass(frozen=True)
class Schema:
    """A data dictionary: fields in declared order, spellings of null, cross-column constraints."""

    fields: tuple[Field, ...]
    missing_values: tuple[str, ...] = ("",)
    constraints: tuple[Constraint, ...] = ()

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The usable columns, in declared order, without the entity column."""
        return tuple(field for field in self.fields if isinstance(field, Column))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all fields, in declared order."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def entity(self) -> EntityColumn | None:
        found = [field for field in self.fields if isinstance(field, EntityColumn)]
        return found[0] if found else None

    @cached_property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Fields that are declared but not used (free text, unsupported types)."""
        return tuple(field for field in self.fields if isinstance(field, LeftOut))

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> Column:
        """A usable column; `KeyError` for any other name."""
        return self._by_name[name]

    def with_values(self, name: str, found: Sequence[str]) -> Schema:
        """The dictionary with these discovered values of a column."""
        known = self.column(name).with_values(found)
        fields = tuple(known if field.name == name else field for field in self.fields)
        return replace(self, fields=fields)

    def violations(self, codes: Mapping[str, NDArray[Any]]) -> list[NDArray[np.bool_]]:
        """For each constraint a mask of the rows that break it, shape (rows,)."""
        return [constraint.violations(codes) for constraint in self.constraints]

    def check_unit(self, unit: PrivacyUnit) -> None:
        """Raises `SchemaError` unless exactly the unit's column has the role of entity."""
        log = ProblemLog()
        declared = None if self.entity is None else self.entity.name
        if unit.column != declared and declared is None:
            log.add(
                f"no field named `{unit.column}` has the role of entity",
                f'give the field `{unit.column}` the key "role": "entity"',
                "fields",
            )
        elif unit.column != declared:
            names = [field.name for field in self.fields]
            log.add(
                f"`{declared}` has the role of entity, but "
                + (
                    "no unit names it" if unit.column is None else f"the unit names `{unit.column}`"
                ),
                f'let the unit name `{declared}`, or remove the key "role"',
                "fields",
                names.index(str(declared)),
                "role",
            )
        log.raise_if_any()

    @classmethod
    def parse(cls, wire: Mapping[str, Any]) -> Schema:
        """Reads the wire form; raises `SchemaError` with every problem found."""
        return cls(*parse_table(wire))

    def to_wire(self) -> dict[str, Any]:
        """The canonical wire form, which `parse` reads back as an equal schema."""
        wire: dict[str, Any] = {
            "fields": [write_field(field) for field in self.fields],
            "missingValues": list(self.missing_values),
        }
        if self.constraints:
            wire["constraints"] = [constraint.to_wire() for constraint in self.constraints]
        return wire
