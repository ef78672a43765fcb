"""Synthetic tables as Parquet: stored codes turned into values, one row group at a time.

Columns come in the order of the dictionary, with its types; fields it leaves out are left
out. On an entity unit the id column holds made-up ids, `e000001` or whole numbers from 1.
Equal tables give equal bytes.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from math import prod

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.engine.method import CountsTable
from app.engine.schema import Column, EntityColumn, PrivacyUnit, Schema
from app.engine.table import Table

# Bounds what is decoded at once; Parquet readers skip and stream by such groups.
ROWS_PER_GROUP = 2**16
COUNT_COLUMN = "count"
_WHOLE_IDS = ("integer", "year")


def write_rows(parts: Iterable[Table], schema: Schema, unit: PrivacyUnit) -> Iterator[bytes]:
    """The bytes, in pieces, of the Parquet file of rows that come in parts, one at least.

    A synthesizer may model some of the columns; the others are left out.
    """
    rest = iter(parts)
    first = next(rest)
    columns = _columns(schema, unit, first.codes)
    form = pa.schema([_field(column) for column in columns])
    groups = (group for part in chain([first], rest) for group in _decoded(part, columns))
    return parquet_pieces(form, _tables(form, groups))


def write_counts(table: CountsTable, schema: Schema) -> Iterator[bytes]:
    """The bytes, in pieces, of the Parquet file of a histogram, one row for each cell."""
    form = counts_schema(table, schema)
    return parquet_pieces(form, _tables(form, _counted(table, schema)))


def counts_schema(table: CountsTable, schema: Schema) -> pa.Schema:
    """Arrow schema of a histogram: the label of each column's cell, then the count."""
    names = [*table.count.columns, count_name(table.count.columns)]
    assert all(schema.column(name) for name in table.count.columns)
    labels = [pa.field(name, pa.string(), nullable=False) for name in names[:-1]]
    return pa.schema([*labels, pa.field(names[-1], pa.int64(), nullable=False)])


def count_name(columns: tuple[str, ...]) -> str:
    """`count`, set apart from a column of that name."""
    name = COUNT_COLUMN
    while name in columns:
        name += "_"
    return name


def _columns(
    schema: Schema, unit: PrivacyUnit, made: Collection[str]
) -> list[Column | EntityColumn]:
    """What the table holds, in the order of the dictionary."""
    return [
        column
        for column in schema.fields
        if (isinstance(column, Column) and column.name in made)
        or (isinstance(column, EntityColumn) and _named(unit, column))
    ]


def _named(unit: PrivacyUnit, column: EntityColumn) -> bool:
    return unit.kind == "entity" and unit.column == column.name


def _field(column: Column | EntityColumn) -> pa.Field:
    if isinstance(column, EntityColumn):
        whole = column.type in _WHOLE_IDS
        return pa.field(column.name, pa.int64() if whole else pa.string(), nullable=False)
    empty = column.decode(np.zeros(0, dtype=np.int64))
    return pa.field(column.name, empty.type, nullable=column.nullable)


def _decoded(table: Table, columns: Sequence[Column | EntityColumn]) -> Iterator[list[pa.Array]]:
    for first in range(0, table.rows, ROWS_PER_GROUP):
        part = slice(first, min(first + ROWS_PER_GROUP, table.rows))
        yield [
            _ids(column, table.entity, part)
            if isinstance(column, EntityColumn)
            else column.decode(table.codes[column.name][part])
            for column in columns
        ]


def _ids(column: EntityColumn, entity: NDArray[np.int64] | None, part: slice) -> pa.Array:
    if entity is None:
        raise ValueError("a table of an entity unit numbers the entity of each row")
    # Made-up ids: nothing of the real ids is known here.
    numbers = entity[part].astype(np.int64) + 1
    if column.type in _WHOLE_IDS:
        return pa.array(numbers)
    return pa.array([f"e{number:06d}" for number in numbers.tolist()], pa.string())


def _counted(table: CountsTable, schema: Schema) -> Iterator[list[pa.Array]]:
    names, values = table.count.columns, table.values.reshape(-1)
    labels = [
        pa.array(schema.column(name).labels(table.count.groupings.get(name)), pa.string())
        for name in names
    ]
    shape = tuple(len(cells) for cells in labels)
    if prod(shape) != values.size:
        raise ValueError("a histogram has a count for each of its cells")
    for first in range(0, values.size, ROWS_PER_GROUP):
        cells = np.arange(first, min(first + ROWS_PER_GROUP, values.size))
        places = np.unravel_index(cells, shape) if shape else ()
        columns = [
            column.take(pa.array(place)) for column, place in zip(labels, places, strict=True)
        ]
        yield [*columns, pa.array(values[cells], pa.int64())]


def parquet_pieces(schema: pa.Schema, groups: Iterable[pa.Table]) -> Iterator[bytes]:
    """A Parquet file in pieces, one row group for each table."""
    drain = _Drain()
    with pq.ParquetWriter(pa.PythonFile(drain, mode="w"), schema, compression="zstd") as writer:
        for group in groups:
            writer.write_table(group, row_group_size=max(group.num_rows, 1))
            yield drain.take()
    yield drain.take()


def _tables(schema: pa.Schema, groups: Iterator[list[pa.Array]]) -> Iterator[pa.Table]:
    return (pa.Table.from_arrays(arrays, schema=schema) for arrays in groups)


class _Drain(io.RawIOBase):
    """A file that is written once, front to back, and emptied as it goes."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._held.append(bytes(data))
        self._position += len(data)
        return len(data)

    def take(self) -> bytes:
        taken = b"".join(self._held)
        self._held.clear()
        return taken
