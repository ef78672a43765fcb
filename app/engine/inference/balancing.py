"""Which row of a group gets which of the values that were drawn for the group.

Given the axes of a separator, the model holds the new axes independent of all that was drawn
before, so every dealing of a group's values among its rows is as likely as any other. Dealt at
random, the counts over a new axis and an earlier one scatter as independent draws do. Here the
values whose counts with the row's earlier cells lag behind expectation are the likelier ones,
so that these counts stay within a few rows of it. Rows are met in random order; a value never
met with a cell before is as likely as at random, so that rare cells are not favoured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


_HASTE = 0.5
"""How much likelier, in logarithms, a value becomes for each row that its counts lag behind."""

_MOST_HASTE = 500.0


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows that share a separator cell: `order` lists them group after group, shuffled within.

    Group g is `order[ends[g] : ends[g + 1]]`; `numbers` gives each row's group.
    """

    order: Integers
    ends: Integers
    numbers: Integers

    @classmethod
    def of(cls, keys: Integers, rng: np.random.Generator) -> Groups:
        order = rng.permutation(keys.size)
        order = order[np.argsort(keys[order], kind="stable")]
        ordered = keys[order]
        fresh = np.ones(keys.size, dtype=np.bool_)
        fresh[1:] = ordered[1:] != ordered[:-1]
        numbers = np.empty(keys.size, dtype=np.int64)
        numbers[order] = np.cumsum(fresh) - 1
        return cls(order, np.append(np.flatnonzero(fresh), keys.size), numbers)


@dataclass(frozen=True, slots=True)
class Columns:
    """Cells of some axes, shape (entries, axes), and the number of cells of each axis."""

    cells: Integers
    sizes: Integers


def looks(groups: Groups, drawn: Integers, new_axes: int) -> int:
    """How many counts `dealt` looks at for each of the earlier axes."""
    values = np.unique(groups.numbers * (drawn.max(initial=0) + 1) + drawn)
    distinct = np.bincount(
        values // (drawn.max(initial=0) + 1), minlength=groups.ends.size - 1
    ).astype(np.int64)
    return int(np.dot(distinct, np.diff(groups.ends))) * new_axes


def dealt(
    groups: Groups, drawn: Integers, new: Columns, earlier: Columns, rng: np.random.Generator
) -> Integers:
    """The values `drawn` for each row, dealt anew within each group, one of them to each row.

    `new.cells[value]` are the cells of the new axes that a value stands for; `earlier.cells`
    has a line for each row.
    """
    keys = groups.numbers * new.cells.shape[0] + drawn
    items, counts = np.unique(keys, return_counts=True)
    group_of_item = items // new.cells.shape[0]
    firsts = np.searchsorted(group_of_item, np.arange(groups.ends.size))
    areas = np.outer(new.sizes, earlier.sizes)
    places = np.concatenate([[0], np.cumsum(areas)]).astype(np.int64)
    return _deal(
        groups.order,
        groups.ends,
        firsts.astype(np.int64),
        items % new.cells.shape[0],
        counts.astype(np.int64),
        new.cells,
        new.sizes,
        earlier.cells,
        places[:-1].reshape(areas.shape),
        np.zeros(places[-1]),
        rng.random(drawn.size),
    )


@compiled
def _deal(
    order: Integers,
    ends: Integers,
    firsts: Integers,
    values: Integers,
    counts: Integers,
    new_cells: Integers,
    new_sizes: Integers,
    earlier_cells: Integers,
    places: Integers,
    lags: Floats,
    numbers: Floats,
) -> Integers:
    """`lags` holds, for each pair of axes, what is expected so far less what was dealt."""
    new_axes, earlier_axes = places.shape
    chosen = np.empty(order.size, dtype=np.int64)
    weights = np.empty(values.size)
    left = counts.copy()
    for group in range(ends.size - 1):
        start, end = firsts[group], firsts[group + 1]
        rows = ends[group + 1] - ends[group]
        for at in range(ends[group], ends[group + 1]):
            row = order[at]
            weights[start:end] = 0.0
            for a in range(new_axes):
                for b in range(earlier_axes):
                    base = places[a, b] + earlier_cells[row, b] * new_sizes[a]
                    for i in range(start, end):
                        weights[i] += lags[base + new_cells[values[i], a]]
                    for i in range(start, end):
                        lags[base + new_cells[values[i], a]] += counts[i] / rows
            total = 0.0
            for i in range(start, end):
                if left[i] > 0:
                    total += left[i] * np.exp(min(_HASTE * weights[i], _MOST_HASTE))
                weights[i] = total
            best, mark = start, numbers[at] * total
            while weights[best] <= mark and best < end - 1:
                best += 1
            left[best] -= 1
            chosen[row] = values[best]
            for a in range(new_axes):
                for b in range(earlier_axes):
                    base = places[a, b] + earlier_cells[row, b] * new_sizes[a]
                    lags[base + new_cells[values[best], a]] -= 1.0
    return chosen
