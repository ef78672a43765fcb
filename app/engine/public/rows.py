"""A public table seen through the private dictionary, and what makes one unfit.

Synthesizers learn from public rows freely: no question is asked and nothing is charged.
`conditionals` draws columns from what is read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from app.engine.method import Problem, PublicFacts
from app.engine.schema import Column, PrivacyUnit, Schema
from app.engine.schema.scale import Categories, Linear
from app.engine.schema.values import Value, tick
from app.engine.table import PublicTable

POINTER = "/public_dataset"

_WHOLE = frozenset({"integer", "year"})
_NUMERIC = _WHOLE | {"number"}

# The code of a public value that has none in the private dictionary.
NO_PLACE = -1


class PublicDataUnfit(ValueError):
    """No row of the public table has a place in the private dictionary."""


@dataclass(frozen=True, slots=True)
class PublicRows:
    """Public rows as codes of the *private* dictionary: one int64 array for each column.

    `entity` numbers the public entity of each row, 0..entities-1, each with a row at least;
    rows of a public table without entities are each one of their own.
    """

    codes: dict[str, NDArray[np.int64]]
    entity: NDArray[np.int64]
    entities: int

    @property
    def rows(self) -> int:
        return len(self.entity)

    def for_unit(self, unit: PrivacyUnit) -> PublicRows:
        """These rows as units of the private kind: on a row unit each is one of its own."""
        if unit.kind == "entity":
            return self
        return PublicRows(self.codes, np.arange(self.rows, dtype=np.int64), self.rows)

    def bounded(self, unit: PrivacyUnit, rng: np.random.Generator) -> PublicRows:
        """At most `max_rows` rows of each entity, drawn uniformly as the private ones are, and
        entity after entity."""
        # Random within an entity, so that the first `max_rows` are a uniform draw of its rows.
        order = np.lexsort((rng.random(self.rows), self.entity))
        entity = self.entity[order]
        kept = np.arange(self.rows) - np.searchsorted(entity, entity) < unit.max_rows
        codes = {name: column[order][kept] for name, column in self.codes.items()}
        return PublicRows(codes, entity[kept], self.entities)

    def rows_per_entity(self) -> NDArray[np.int64]:
        """Shape (entities,)."""
        return np.bincount(self.entity, minlength=self.entities)


def entity_starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each entity's rows begin, and those of the last one end, if entities of these sizes
    follow one another. Shape (entities + 1,)."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def read_public(public: PublicTable, schema: Schema, columns: Sequence[str]) -> PublicRows:
    """The rows that have a place in the private dictionary in all of `columns`.

    A value that `schema` does not declare is treated as its column's `undeclared` says;
    where that is `reject`, the row is left out. A number takes the nearest point of the
    private grid. Raises `PublicDataUnfit` if no row is left.
    """
    table = public.table
    codes = {
        name: translated(schema.column(name), public.schema.column(name), table.codes[name])
        for name in columns
    }
    kept = np.ones(table.rows, dtype=np.bool_)
    for column in codes.values():
        kept &= column != NO_PLACE
    if not kept.any():
        raise PublicDataUnfit("no row of the public dataset fits the private dictionary")
    # Numbered anew: an entity none of whose rows fits is no entity here.
    ids = np.arange(table.rows) if table.entity is None else table.entity
    found, entity = np.unique(ids[kept], return_inverse=True)
    return PublicRows(
        {name: column[kept] for name, column in codes.items()},
        entity.reshape(-1).astype(np.int64),
        len(found),
    )


def translated(own: Column, other: Column, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Codes of column `own` for the values that `codes` store in column `other`, -1 for none."""
    found, inverse = np.unique(codes, return_inverse=True)
    places = np.array([_code(own, _value(other, int(code))) for code in found], dtype=np.int64)
    translated: NDArray[np.int64] = places[inverse.reshape(-1)]
    return translated


def _value(column: Column, code: int) -> Value | None:
    if code < column.regular:
        return column.scale.value(code)
    return column.tail_values[code - column.regular]


def _code(column: Column, value: Value | None) -> int:
    if column.type in _WHOLE and isinstance(value, Decimal):
        value = int(value.to_integral_value())
    code = column.code(value)
    if code is None and value is not None:
        code = _undeclared(column, value)
    return NO_PLACE if code is None else code


def _undeclared(column: Column, value: Value) -> int | None:
    if column.undeclared == "other":
        return column.other_code
    if column.undeclared == "null":
        return column.null_code
    if column.undeclared == "clip" and isinstance(column.scale, Linear):
        return column.regular - 1 if tick(value) > column.scale.maximum else 0
    return None


def public_problems(
    schema: Schema,
    unit: PrivacyUnit,
    public: PublicFacts | None,
    columns: Sequence[str],
    *,
    needs_entities: bool,
) -> tuple[Problem, ...]:
    """Why a synthesizer cannot learn `columns` of `schema` from the public dataset.

    `needs_entities`: on an entity unit, the public rows must belong to entities too. Names
    that `schema` lacks are left to the check of the params.
    """
    if public is None:
        message = "this synthesizer learns from public rows, and none are named"
        return (_problem(message, "name a dataset of visibility `public` with these columns"),)
    mismatches = (_mismatch(schema, public.schema, name) for name in dict.fromkeys(columns))
    problems = [
        _problem(mismatch, "name a public dataset whose dictionary has the same columns")
        for mismatch in mismatches
        if mismatch is not None
    ]
    if public.rows == 0:
        problems.append(_problem("the public dataset has no rows", "name one that has"))
    if needs_entities and unit.kind == "entity" and public.schema.entity is None:
        message = "the public dataset has no entities, and the rows of one are learnt from it"
        problems.append(_problem(message, "name a public dataset with an `entity` unit"))
    return tuple(problems)


def _problem(message: str, remedy: str) -> Problem:
    return Problem(POINTER, message, remedy)


def _mismatch(schema: Schema, public: Schema, name: str) -> str | None:
    own = {column.name: column for column in schema.columns}.get(name)
    other = {column.name: column for column in public.columns}.get(name)
    if own is None:
        return None
    if other is None:
        return f"the public dataset has no column `{name}`"
    if own.type != other.type and not {own.type, other.type} <= _NUMERIC:
        return f"`{name}` is of type {own.type} here, {other.type} in the public dataset"
    if not _overlap(own, other):
        return f"no value that the public dataset declares for `{name}` is declared here"
    return None


def _overlap(own: Column, other: Column) -> bool:
    if own.undeclared != "reject" or (None in other.tail_values and own.nullable):
        return True
    if isinstance(own.scale, Linear) and isinstance(other.scale, Linear):
        apart = own.scale.maximum < other.scale.minimum or other.scale.maximum < own.scale.minimum
        return not apart
    one, another = (own, other) if isinstance(own.scale, Categories) else (other, own)
    assert isinstance(one.scale, Categories)
    return any(another.code(value) is not None for value in (*one.scale.values, *one.special))
