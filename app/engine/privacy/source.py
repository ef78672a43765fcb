"""Where the kernel reads private codes: a protocol, and a table held in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.schema import PrivacyUnit, Schema

# The private number of a row without a text that could be found: it is null, the text of
# `other`, or too long.
NO_TEXT = 2**32 - 1


class CodeSource(Protocol):
    """Stored codes of one table, chunk by chunk, always in the same row order.

    `chunks` and `entities` cut the table at the same rows. The table holds no row without
    an entity id (those are dropped, and counted, when it is stored).
    """

    @property
    def schema(self) -> Schema: ...
    @property
    def unit(self) -> PrivacyUnit: ...

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        """For each chunk the codes of `columns` (at least one): 1-d unsigned, equal lengths."""
        ...

    def entities(self) -> Iterator[NDArray[np.uint64]]:
        """For each chunk the 128-bit digests of its rows' entity ids, shape (rows, 2)."""
        ...

    def texts(self, column: str) -> Sequence[str]:
        """The distinct texts of a column whose values are to be found, by private number."""
        ...

    def numbers(self, column: str) -> Iterator[NDArray[np.uint32]]:
        """For each chunk the private numbers of such a column, or `NO_TEXT`."""
        ...


class ArraySource:
    """A table in memory, for tests and for use as a library.

    `codes` holds one integer array for each column of the schema; `entities`, on an entity
    unit, one integer id or (rows, 2) digests; `texts`, for each column whose values are to be
    found, the text of every row, or None. Raises `ValueError` for arrays that do not fit the
    schema.
    """

    def __init__(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        codes: Mapping[str, NDArray[Any]],
        entities: NDArray[Any] | None = None,
        chunk_size: int = 2**16,
        texts: Mapping[str, Sequence[str | None]] | None = None,
    ) -> None:
        if set(codes) != {column.name for column in schema.columns}:
            raise ValueError("the codes name exactly the columns of the schema")
        lengths = {len(array) for array in codes.values()}
        if len(lengths) != 1:
            raise ValueError("all columns have the same number of rows")
        self.schema = schema
        self.unit = unit
        self.rows = lengths.pop()
        self._chunk_size = chunk_size
        self._codes = {
            column.name: _stored(codes[column.name], column.codes).astype(column.dtype)
            for column in schema.columns
        }
        if (unit.kind == "entity") != (entities is not None):
            raise ValueError("an entity unit, and only an entity unit, has entity ids")
        self._entities = None if entities is None else _digests(entities)
        if self._entities is not None and len(self._entities) != self.rows:
            raise ValueError("expected one entity id for each row")
        self._numbered = {name: _numbered(rows) for name, rows in (texts or {}).items()}
        if any(len(numbers) != self.rows for _, numbers in self._numbered.values()):
            raise ValueError("expected one text for each row")

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        for part in self._parts():
            yield {name: self._codes[name][part] for name in columns}

    def entities(self) -> Iterator[NDArray[np.uint64]]:
        if self._entities is None:
            raise ValueError("a row unit has no entities")
        for part in self._parts():
            yield self._entities[part]

    def texts(self, column: str) -> Sequence[str]:
        return self._numbered[column][0]

    def numbers(self, column: str) -> Iterator[NDArray[np.uint32]]:
        for part in self._parts():
            yield self._numbered[column][1][part]

    def _parts(self) -> Iterator[slice]:
        for first in range(0, self.rows, self._chunk_size):
            yield slice(first, min(first + self._chunk_size, self.rows))


def _stored(codes: NDArray[Any], limit: int) -> NDArray[Any]:
    array = np.asarray(codes)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError("codes are one-dimensional arrays of integers")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < limit:
        raise ValueError("a code is outside its column")
    return array


def _numbered(rows: Sequence[str | None]) -> tuple[tuple[str, ...], NDArray[np.uint32]]:
    texts = tuple(dict.fromkeys(text for text in rows if text is not None))
    places = {text: number for number, text in enumerate(texts)}
    numbers = [NO_TEXT if text is None else places[text] for text in rows]
    return texts, np.array(numbers, dtype=np.uint32)


def _digests(entities: NDArray[Any]) -> NDArray[np.uint64]:
    array = np.asarray(entities)
    if array.ndim == 1:
        array = np.stack([array, np.zeros_like(array)], axis=1)
    if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError("entity ids are integers, or digests of shape (rows, 2)")
    return array.astype(np.uint64)
