"""Evaluating declared functions: a cell for each unit, from that unit's rows alone.

Statement. Between adjacent datasets, which differ by one unit added or removed, the histogram
of the cells changes by 1 in one place, so L1 = L2 = 1.
Proof. The cell of a unit is a function of its own (bounded) rows, of public constants, and of
random keys of its own where votes are tied. It is one of 0..cells-1 whatever the rows are:
a row number is at least 1 and cut at the top; a vote has a winner, or the unit is in
component 0; intervals cut the whole number line, and each combination of them has a class.
Floats are rounded in the same way in both datasets, so they cannot break this.

Nothing here is safe to publish without noise; the functions serve public tables too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.bounding import rank_within
from app.engine.privacy.declared import (
    EntityFunction,
    Feature,
    FeatureClasses,
    MixtureMode,
    RowNumber,
)
from app.engine.privacy.units import EntityCells, RandomKeys, blocks_of_units
from app.engine.schema import Schema

Codes = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]
Cells = NDArray[np.int64]


def evaluate(
    function: EntityFunction,
    codes: Codes,
    entity: NDArray[np.int64],
    schema: Schema,
    keys: RandomKeys | None = None,
) -> Cells:
    """The cell of each unit, int64, shape (units,).

    `codes` holds the stored codes of the function's columns, one for each row; `entity`
    numbers the unit of each row, 0..units-1, each with a row, in any order. `keys` break ties,
    by default those of the operating system. Raises `ValueError` for numbers with gaps.
    """
    sizes = np.bincount(entity) if len(entity) else np.zeros(0, dtype=np.int64)
    if (sizes == 0).any():
        raise ValueError("units are numbered from 0 without gaps")
    order = np.argsort(entity, kind="stable")
    sorted_codes = {name: np.asarray(codes[name])[order] for name in function.columns}
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    cells = np.empty(len(sizes), dtype=np.int64)
    for first, end in blocks_of_units(starts):
        rows = slice(int(starts[first]), int(starts[end]))
        block = {name: column[rows] for name, column in sorted_codes.items()}
        units = np.repeat(np.arange(end - first), sizes[first:end])
        cells[first:end] = cells_of_units(function, block, units, schema, keys)
    return cells


def cells_of_units(
    function: EntityFunction,
    codes: Codes,
    entity: NDArray[np.int64],
    schema: Schema,
    keys: RandomKeys | None = None,
) -> Cells:
    """`evaluate` on one block of at most 2^18 units, whose rows lie unit after unit."""
    sizes = np.bincount(entity)
    match function:
        case RowNumber():
            return np.minimum(sizes, function.most) - 1
        case MixtureMode():
            return _most_frequent_component(function, codes, entity, len(sizes), schema, keys)
        case FeatureClasses():
            features = _Features(codes, entity, sizes, schema)
            return _classes(function, [features.value(each) for each in function.features])


def _most_frequent_component(
    mixture: MixtureMode,
    codes: Codes,
    entity: NDArray[np.int64],
    units: int,
    schema: Schema,
    keys: RandomKeys | None,
) -> Cells:
    read = [schema.column(name).places(codes[name]) for name in mixture.columns]
    voting = ~np.any([null for _, null in read], axis=0)
    values = np.stack([places[voting].astype(np.float64) for places, _ in read], axis=1)
    labels = likeliest_components(mixture, values)
    voters, numbers = np.unique(entity[voting], return_inverse=True)
    cells = np.zeros(units, dtype=np.int64)
    cells[voters] = EntityCells.of(numbers, labels, mixture.cells).most_frequent(keys)
    return cells


def likeliest_components(mixture: MixtureMode, values: Floats) -> Cells:
    """The component of largest posterior probability for rows of values, shape (rows, d)."""
    with np.errstate(all="ignore"):  # a component out of reach of floats is not the likeliest
        scaled = (values - mixture.centre) / mixture.scale
        best = np.full(len(scaled), -np.inf)
        labels = np.zeros(len(scaled), dtype=np.int64)
        for component, precision in enumerate(mixture.precisions):
            apart = scaled - mixture.means[component]
            diagonal = np.diagonal(precision) if mixture.is_full else precision
            whitened = _product(apart, precision) if mixture.is_full else apart * precision
            constant = np.log(mixture.weights[component]) + np.log(diagonal).sum()
            density = constant - 0.5 * _row_sums(whitened**2)
            better = density > best
            labels[better], best[better] = component, density[better]
    return labels


def _product(rows: Floats, matrix: Floats) -> Floats:
    """`rows @ matrix`, where a row's rounding does not depend on the rows beside it.

    The rounding of BLAS does: one more unit could then move another unit, one that lies
    between two components, and the histogram would change in more than one place."""
    return np.stack([_row_sums(rows * column) for column in matrix.T], axis=1)


def _row_sums(table: Floats) -> Floats:
    """The sum of each row, added from the left."""
    total = table[:, 0].copy()
    for column in table.T[1:]:
        total += column
    return total


def _classes(function: FeatureClasses, values: list[Floats]) -> Cells:
    flat = np.zeros(len(values[0]), dtype=np.int64)
    for cuts, value in zip(function.cuts, values, strict=True):
        flat = flat * (len(cuts) + 1) + np.searchsorted(np.asarray(cuts), value, side="right")
    return np.asarray(function.classes, dtype=np.int64)[flat]


class _Features:
    """Features of the units of one block; the cells of a column are looked up once."""

    def __init__(
        self, codes: Codes, entity: NDArray[np.int64], sizes: NDArray[np.int64], schema: Schema
    ) -> None:
        self._codes = codes
        self._entity = entity
        self._sizes = sizes
        self._schema = schema
        self._known: dict[tuple[str, Any], EntityCells] = {}

    def value(self, feature: Feature) -> Floats:
        """The feature of each unit, float64, shape (units,)."""
        if feature.column is None:
            return self._sizes.astype(np.float64)
        if feature.kind == "mean":
            return self._mean(feature.column)
        pairs = self._cells(feature)
        distinct = np.bincount(pairs.entity, minlength=len(self._sizes))
        match feature.kind:
            case "rows_per":
                return self._sizes / distinct
            case "std_per":
                return _deviation(pairs, self._sizes, distinct)
            case "top_share":
                return self._top(pairs, feature.rank) / self._sizes
            case "share_count":
                above = pairs.rows / self._sizes[pairs.entity] > feature.above
                return self._per_unit(pairs.entity[above])
        return distinct.astype(np.float64)

    def _cells(self, feature: Feature) -> EntityCells:
        assert feature.column is not None
        pairs = self._known.get((feature.column, feature.grouping))
        if pairs is None:
            own = self._schema.column(feature.column).grouping
            grouping = own if feature.grouping is None else feature.grouping
            cells = grouping.cell_of(self._codes[feature.column])
            pairs = EntityCells.of(self._entity, cells, grouping.cells)
            self._known[feature.column, feature.grouping] = pairs
        return pairs

    def _mean(self, column: str) -> Floats:
        places, null = self._schema.column(column).places(self._codes[column])
        entity = self._entity[~null]
        total = np.bincount(entity, weights=places[~null], minlength=len(self._sizes))
        return total / np.maximum(self._per_unit(entity), 1)

    def _top(self, pairs: EntityCells, rank: int) -> Floats:
        order = np.lexsort((-pairs.rows, pairs.entity))
        chosen = order[rank_within(pairs.entity[order]) == rank - 1]
        top = np.zeros(len(self._sizes))
        top[pairs.entity[chosen]] = pairs.rows[chosen]
        return top

    def _per_unit(self, entity: NDArray[np.int64]) -> Floats:
        return np.bincount(entity, minlength=len(self._sizes)).astype(np.float64)


def _deviation(pairs: EntityCells, sizes: NDArray[np.int64], distinct: NDArray[np.int64]) -> Floats:
    """Of the rows in each distinct cell; squares are summed in integers, so that equal
    numbers of rows have a deviation of exactly 0."""
    squares = np.zeros(len(sizes), dtype=np.int64)
    np.add.at(squares, pairs.entity, pairs.rows**2)
    deviation: Floats = np.sqrt(distinct * squares - sizes**2) / distinct
    return deviation
