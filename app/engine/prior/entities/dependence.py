"""How much public columns say about each other, and which rows contents are redrawn from."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.public.rows import PublicRows

_MOST_ROWS = 200_000

_NEARLY_ALL = 0.9


def most_and_least_dependent(
    axes: Axes, codes: Mapping[str, NDArray[np.int64]]
) -> tuple[str | None, str | None]:
    """The column with the most mutual information with all others, and the one with the least.

    None where there are no two columns, or no three.
    """
    names = axes.names
    cells = {name: axes.groupings[name].cell_of(codes[name][:_MOST_ROWS]) for name in names}
    information_of = dict.fromkeys(names, 0.0)
    for one, other in combinations(names, 2):
        information = mutual_information(cells[one], cells[other])
        information_of[one] += information
        information_of[other] += information
    if len(names) < 2:
        return None, None
    hub = max(names, key=lambda name: information_of[name])
    rest = [name for name in names if name != hub]
    return hub, min(rest, key=lambda name: information_of[name]) if len(rest) > 1 else None


def constant_within_entities(axes: Axes, rows: PublicRows) -> tuple[str, ...]:
    """Columns in which nearly all entities of several rows have one cell alone."""
    sizes = rows.rows_per_entity()
    several = int((sizes > 1).sum())
    found = []
    for name in axes.names if several else ():
        grouping = axes.groupings[name]
        pairs = np.unique(rows.entity * grouping.cells + grouping.cell_of(rows.codes[name]))
        cells = np.bincount(pairs // grouping.cells, minlength=rows.entities)
        if ((cells == 1) & (sizes > 1)).sum() >= _NEARLY_ALL * several:
            found.append(name)
    return tuple(found)


def mutual_information(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """In nats, of two columns of cells, less what independent columns would seem to have.

    (A difference of (k - 1)(l - 1) / 2n nats for k and l values in n rows: Miller 1955.)
    """
    rows = len(one)
    first, ones = np.unique(one, return_inverse=True)
    second, others = np.unique(other, return_inverse=True)
    pairs = np.unique(ones * len(second) + others, return_counts=True)[1]
    entropies = [_entropy(np.bincount(each), rows) for each in (ones, others)]
    bias = (len(first) - 1) * (len(second) - 1) / (2 * rows)
    return max(0.0, sum(entropies) - _entropy(pairs, rows) - bias)


def _entropy(counts: NDArray[np.int64], rows: int) -> float:
    shares = counts[counts > 0] / rows
    return float(-(shares * np.log(shares)).sum())


def pools(
    columns: tuple[str, ...], codes: Mapping[str, NDArray[np.int64]], rows: int, fewest: int
) -> NDArray[np.int64]:
    """The pool of each row, numbered from 0, shape (rows,).

    Rows that agree in all of `columns` are a pool if they are at least `fewest`; the others are
    joined by all columns but the last, and so on to the first column alone.
    """
    pool = np.full(rows, -1, dtype=np.int64)
    found = 0
    for length in range(len(columns), 0, -1):
        key = np.zeros(rows, dtype=np.int64)
        for name in columns[:length]:
            pairs = key * (int(codes[name].max(initial=0)) + 1) + codes[name]
            key = np.unique(pairs, return_inverse=True)[1].reshape(-1).astype(np.int64)
        open_rows = np.flatnonzero(pool < 0)
        many = np.bincount(key[open_rows], minlength=1)
        taken = open_rows[(many >= fewest)[key[open_rows]] | (length == 1)]
        number = np.unique(key[taken], return_inverse=True)[1].reshape(-1)
        pool[taken] = found + number
        found = int(pool.max()) + 1
    return np.where(pool < 0, found, pool)
