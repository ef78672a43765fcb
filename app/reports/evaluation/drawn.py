"""Some rows of a table in memory, drawn with a public seed, and their values as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.marginals import ChunkedTable
from app.engine.schema import Column

# Fixed and public: the same table always gives the same rows.
SEED = 20_180_117

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


class NotMade(Exception):
    """A figure that these tables do not allow; the text says why."""


class WholeTable(ChunkedTable, Protocol):
    """A table in chunks, and on an entity unit the entity of each row."""

    @property
    def rows(self) -> int: ...

    def owners(self) -> Iterator[NDArray[np.int64]]: ...


@dataclass(frozen=True)
class DrawnRows:
    """Codes of some rows, in the columns' own types; owner: the number of each row's entity."""

    codes: Mapping[str, NDArray[Any]]
    rows: int
    owner: NDArray[np.int64] | None

    def at(self, places: Places | NDArray[np.bool_]) -> DrawnRows:
        """These rows alone."""
        codes = {name: column[places] for name, column in self.codes.items()}
        owner = None if self.owner is None else self.owner[places]
        rows = int(places.sum()) if places.dtype == np.bool_ else len(places)
        return DrawnRows(codes, rows, owner)

    def matrix(self, columns: Sequence[Column]) -> Floats:
        """Shape (rows, columns): numbers as such, values of a list by their code, NaN for null."""
        made = np.empty((self.rows, len(columns)))
        for place, column in enumerate(columns):
            made[:, place] = numbers(column, self.codes[column.name])
        return made


def drawn(table: WholeTable, columns: Sequence[str], most: int, *, entities: bool) -> DrawnRows:
    """At most `most` rows in the table's order; whole entities where the unit is one.

    Of entities at least one is drawn, however many rows it has.
    """
    rng = generator()
    owner = all_owners(table) if entities else None
    if owner is None:
        places = np.arange(table.rows)
        if table.rows > most:
            places = np.sort(rng.choice(table.rows, most, replace=False))
    else:
        sizes = np.bincount(owner)
        order = rng.permutation(len(sizes))
        kept = np.zeros(len(sizes), dtype=np.bool_)
        kept[order[np.cumsum(sizes[order]) <= most]] = True
        kept[order[:1]] = True
        places = np.flatnonzero(kept[owner])
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in columns}
    first = 0
    for chunk in table.chunks(columns):
        end = first + len(chunk[columns[0]])
        here = places[slice(*np.searchsorted(places, (first, end)))] - first
        for name in columns:
            parts[name].append(chunk[name][here])
        first = end
    codes = {
        name: np.concatenate(part) if part else np.zeros(0, dtype=np.int64)
        for name, part in parts.items()
    }
    return DrawnRows(codes, len(places), None if owner is None else owner[places])


def all_owners(table: WholeTable) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *table.owners()])


def first_half(rows: int, owner: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """A random half of the rows, or the rows of a random half of the entities; shape (rows,)."""
    rng = generator()
    if owner is None:
        return _half_of(rows, rng)
    entities, number = np.unique(owner, return_inverse=True)
    return _half_of(len(entities), rng)[number.reshape(-1)]


def _half_of(number: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    half = np.zeros(number, dtype=np.bool_)
    half[rng.permutation(number)[: number // 2]] = True
    return half


def generator() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(SEED))


def numbers(column: Column, codes: NDArray[Any]) -> Floats:
    """Places on the number line, or codes for text; NaN for null."""
    if column.has_numbers:
        places, null = column.places(codes)
        return np.where(null, np.nan, places.astype(np.float64))
    values = codes.astype(np.float64)
    if column.null_code is not None:
        values[codes == column.null_code] = np.nan
    return values
