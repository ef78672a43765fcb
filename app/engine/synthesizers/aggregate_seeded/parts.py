"""Columns whose declared texts are lists: `red;blue` has the parts red and blue."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.json_pointer import pointer
from app.engine.method import Problem
from app.engine.privacy.queries import Parts
from app.engine.schema import Column, Schema

# Rows that are compared at once: their distances to all cells are held in memory.
_ROWS_AT_ONCE = 2**16


def parts_of(column: Column, separator: str) -> Parts:
    """The parts of each code's text, null having none; raises `ValueError` if there are none."""
    sets = [{part.strip() for part in text.split(separator)} - {""} for text in _texts(column)]
    names = tuple(sorted(set().union(*sets)))
    number = {name: place for place, name in enumerate(names)}
    return Parts(names, tuple(tuple(sorted(number[name] for name in each)) for each in sets))


def _texts(column: Column) -> list[str]:
    codes = np.arange(column.codes)
    return [value or "" for value in column.decode(codes).to_pylist()]


def cells_of_sets(parts: Parts, held: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each row of `held`, shape (rows, parts), the cell nearest to its set of parts: of the
    cells with the fewest parts that the row lacks, the one with most of those it has."""
    has = np.zeros((len(parts.of_cell), len(parts.names)), dtype=np.float32)
    for cell, numbers in enumerate(parts.of_cell):
        has[cell, list(numbers)] = 1
    distinct, inverse = np.unique(held, axis=0, return_inverse=True)
    nearest = np.empty(len(distinct), dtype=np.int64)
    for begin in range(0, len(distinct), _ROWS_AT_ONCE):
        part = distinct[begin : begin + _ROWS_AT_ONCE].astype(np.float32)
        shared = part @ has.T
        lacking = has.sum(axis=1) - shared
        nearest[begin : begin + _ROWS_AT_ONCE] = np.argmin(
            lacking * (len(parts.names) + 1) - shared, axis=1
        )
    cells: NDArray[np.int64] = nearest[inverse.reshape(-1)]
    return cells


def parts_problems(
    schema: Schema, axes: Axes, separators: Mapping[str, str]
) -> tuple[Problem, ...]:
    problems = []
    for name, separator in separators.items():
        at = pointer("params", "multi_value_columns", name)
        if name not in axes.groupings:
            message = f"`{name}` is not among the chosen columns"
            problems.append(Problem(at, message, "name chosen columns only"))
        elif not _has_parts(schema.column(name), separator):
            message = f"`{name}` has no declared texts with parts"
            problems.append(Problem(at, message, "leave it out"))
    return tuple(problems)


def _has_parts(column: Column, separator: str) -> bool:
    if column.type != "string":
        return False
    return any(text.replace(separator, "").strip() for text in _texts(column))
