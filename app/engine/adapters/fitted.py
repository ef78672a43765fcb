"""From a library's reply to a model. The reply is a third party's: nothing in it is trusted.

Any finite logarithms over the declared cells are a distribution, so only the form and the size of
a reply can be wrong. Rows are then drawn as from any other model of a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.adapters.running import LibraryFailed
from app.engine.columns.axes import Axes
from app.engine.columns.rare_cells import Compression
from app.engine.columns.table_size import Size
from app.engine.graphical.table_model import TableModel
from app.engine.inference.elimination import predicted_cells
from app.engine.inference.junction_tree import JunctionTree
from app.engine.inference.model import GraphicalModel
from app.engine.inference.prior import Factor, in_table_order
from app.engine.inference.propagation import Propagation
from app.engine.method.model_file import ModelFormatError
from app.engine.schema import PrivacyUnit

# Their probabilities, of 8 bytes each, fit one message through the pipe to the worker.
MOST_MODEL_CELLS = 6 * 2**20

# Larger floats are no exact whole numbers.
_MOST_ROWS = 2**53

# Below the largest logarithm of a factor: the exponential is 0 from 746 on.
_DEEPEST = 1e6


def table_model(
    name: str,
    axes: Axes,
    unit: PrivacyUnit,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> TableModel:
    """Raises `LibraryFailed` for a reply that is no distribution over the axes."""
    try:
        if not isinstance(header, Mapping):
            raise ModelFormatError("a reply begins with an object")
        compressions = tuple(_compression(arrays, i, cells) for i, cells in enumerate(axes.shape))
        shape = {
            axis: compression.merged_cells
            for axis, compression in zip(axes.names, compressions, strict=True)
        }
        graph = _graph(shape, _factors(axes.names, header.get("axes"), arrays))
        size = _size(header.get("rows"), unit)
    except (ValueError, TypeError, LookupError) as error:
        raise LibraryFailed("the library's model does not fit the dictionary") from error
    return TableModel(name, axes, compressions, graph, size)


def _compression(arrays: Mapping[str, NDArray[Any]], number: int, cells: int) -> Compression:
    merge = arrays.get(f"merge{number}", np.arange(cells))
    if merge.shape != (cells,) or merge.dtype.kind != "i" or (merge < 0).any():
        raise ModelFormatError("a column's cells are merged")
    merge = merge.astype(np.int64)
    if merge.max() >= cells:
        raise ModelFormatError("there are no more merged cells than cells")
    return Compression.stored(merge, 1 / np.bincount(merge)[merge])


def _factors(
    names: Sequence[str], listed: Any, arrays: Mapping[str, NDArray[Any]]
) -> tuple[Factor, ...]:
    if not isinstance(listed, list):
        raise ModelFormatError("a reply lists the axes of its factors")
    return tuple(
        _factor(names, axes, arrays[f"logs{number}"]) for number, axes in enumerate(listed)
    )


def _factor(names: Sequence[str], axes: Any, logs: NDArray[Any]) -> Factor:
    if not isinstance(axes, list) or any(
        type(axis) is not int or not 0 <= axis < len(names) for axis in axes
    ):
        raise ModelFormatError("a factor is over columns of the table")
    if logs.dtype != np.float64 or not np.isfinite(logs).all():
        raise ModelFormatError("logarithms are finite")
    # Only differences within a factor matter, and all far below the largest are a probability of 0.
    with np.errstate(over="ignore"):
        relative = logs - logs.max()
    return Factor(tuple(names[axis] for axis in axes), np.maximum(relative, -_DEEPEST))


def _graph(shape: Mapping[str, int], factors: Sequence[Factor]) -> GraphicalModel:
    tables = in_table_order(shape, factors)
    cliques = [axes for axes, _ in tables]
    if predicted_cells(shape, cliques) > MOST_MODEL_CELLS:
        raise LibraryFailed("the fitted model is too large to be kept")
    tree = JunctionTree.of(shape, cliques)
    propagation = Propagation(tree, [], tables)
    propagation.run(np.zeros(0))
    return GraphicalModel(tree, propagation.probabilities())


def _size(rows: Any, unit: PrivacyUnit) -> Size:
    """The library's noisy number of rows. It knows no entities: each row is its own."""
    if type(rows) not in (int, float) or not abs(rows) <= _MOST_ROWS:
        raise ModelFormatError("a number of rows is finite")
    number = max(0, round(rows))
    return Size(number, None if unit.kind == "row" else number, unit.max_rows)


def most_cells_of_a_tree(shape: Sequence[int]) -> int:
    """No tree of pairs of columns has more cells: each column beside the largest of them all."""
    largest = max(shape)
    return largest * (sum(shape) - largest)


def without_a_pair(axes: Axes, most_cells: int) -> tuple[str, ...]:
    """Columns in no pair of at most so many cells."""
    sizes = sorted(axes.shape)
    least = {size: sizes[1] if size == sizes[0] else sizes[0] for size in sizes}
    return tuple(
        name
        for name, cells in zip(axes.names, axes.shape, strict=True)
        if cells * least[cells] > most_cells
    )
