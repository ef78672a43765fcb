"""Reading a whole dictionary from JSON, with all problems reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.engine.schema.column import Column
from app.engine.schema.constraints import Constraint
from app.engine.schema.fields import Field, FieldReader
from app.engine.schema.problems import ProblemLog
from app.engine.schema.rules import parse_constraints
from app.engine.schema.scalars import check_keys, read_spellings
from app.engine.schema.scale import Categories

MOST_COLUMNS = 2000
_TABLE_KEYS = {"fields", "missingValues", "constraints", "title", "description", "$schema"}


def parse_table(
    wire: Any,
) -> tuple[tuple[Field, ...], tuple[str, ...], tuple[Constraint, ...]]:
    """Fields, spellings of missing values, and constraints of a table.

    Raises `SchemaError` with every problem found.
    """
    log = ProblemLog()
    if not isinstance(wire, Mapping):
        log.add("a dictionary must be an object", 'write {"fields": [...]}')
        log.raise_if_any()
    check_keys(wire, _TABLE_KEYS, log)
    missing = read_spellings(wire, "missingValues", log)
    raw = wire.get("fields")
    if not isinstance(raw, list) or not 1 <= len(raw) <= MOST_COLUMNS:
        log.add(f"`fields` must list 1 to {MOST_COLUMNS} columns", "describe each column", "fields")
        log.raise_if_any()
    fields = [FieldReader(item, log.below("fields", i)).read() for i, item in enumerate(raw or [])]
    kept = tuple(field for field in fields if field is not None)
    _check_names(raw or [], log)
    _check_categories(fields, ("",) if missing is None else missing, log)
    if not log.found and not any(isinstance(field, Column) for field in kept):
        log.add(
            "the dictionary has no usable column",
            "declare a range or categories for at least one column besides the entity's",
            "fields",
        )
    # Constraints are read last: they name columns and values of the fields, so that their problems
    # would only repeat those of a wrong field.
    constraints: tuple[Constraint, ...] = ()
    if wire.get("constraints") is not None and not log.found:
        usable = {
            field.name: field
            for field in kept
            if isinstance(field, Column) and field.discovers is None
        }
        constraints = parse_constraints(wire["constraints"], usable, log.below("constraints"))
    log.raise_if_any()
    return kept, ("",) if missing is None else missing, constraints


def _check_categories(
    fields: list[Field | None], missing: tuple[str, ...], log: ProblemLog
) -> None:
    """A category that is also a spelling of null would always be read as null."""
    for index, field in enumerate(fields):
        if not isinstance(field, Column) or not isinstance(field.scale, Categories):
            continue
        own = field.text_format.missing
        for spelling in missing if own is None else own:
            place = field.scale.code(spelling)
            if place is not None:
                log.add(
                    "this category is also a spelling of null (a missing value)",
                    "remove it here or in `missingValues`",
                    *("fields", index, "constraints", "enum", place),
                )


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
        log.add(
            "a table can have only one entity column", "remove one role", "fields", index, "role"
        )
