"""Reading a whole dictionary from the wire, with every problem reported at once."""

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
    """Fields, the table's spellings of null, and its constraints; raises `SchemaError`."""
    log = ProblemLog()
    if not isinstance(wire, Mapping):
        log.add("a dictionary is an object", 'write {"fields": [...]}')
        log.raise_if_any()
    check_keys(wire, _TABLE_KEYS, log)
    missing = read_spellings(wire, "missingValues", log)
    raw = wire.get("fields")
    if not isinstance(raw, list) or not 1 <= len(raw) <= MOST_COLUMNS:
        log.add(f"`fields` lists 1 to {MOST_COLUMNS} columns", "describe each column", "fields")
        log.raise_if_any()
    fields = [FieldReader(item, log.below("fields", i)).read() for i, item in enumerate(raw or [])]
    kept = tuple(field for field in fields if field is not None)
    _check_names(raw or [], log)
    _check_categories(fields, ("",) if missing is None else missing, log)
    if not log.found and not any(isinstance(field, Column) for field in kept):
        log.add(
            "no column is left to make data from",
            "declare a range or categories for at least one column besides the entity's",
            "fields",
        )
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
    """A category that is a spelling of null would never be seen."""
    for index, field in enumerate(fields):
        if not isinstance(field, Column) or not isinstance(field.scale, Categories):
            continue
        own = field.text_format.missing
        for spelling in missing if own is None else own:
            place = field.scale.code(spelling)
            if place is not None:
                log.add(
                    "this category is a spelling of null",
                    "take it away here or in `missingValues`",
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
        log.add("a table has one entity column", "take one role away", "fields", index, "role")
