"""Assignment of the values that were drawn for a group of rows to the rows of the group.

Given the axes of a separator, the new axes are independent in the model of all earlier axes. So
all assignments of a group's values to its rows are equally likely. With a random assignment, the
counts over a new axis and an earlier axis vary as those of independent draws do. Here a value is
more likely for a row if its counts with the row's earlier cells are below their expectation, so
that these counts stay within a few rows of it. Rows are visited in random order. A value that has
not yet occurred with a cell is as likely as in a random assignment, so that rare cells are not
favoured.

In a long table two threads assign the values of one half of the groups each, with separate counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.inference.exponential import exponentiate_with
from app.engine.inference.two_threads import run_both

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# By how much the log weight of a value grows for each row that its counts are below expectation.
_CATCH_UP_RATE = 0.5

# In tables of this many rows the errors of two separate counts, some rows each, do not matter.
_MANY_ROWS = 2**16

# The fixed cost of a row, in comparisons of a row with an item.
_COMPARISONS_PER_ROW = 16

# The second thread gets at least one part in this many of the work; else it is not used.
_SMALLEST_PART = 8

# Pairs of cells that the second thread may count: 16 MB of memory.
_MOST_COUNTED = 2**21


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
        order = order[stable_order(keys[order])]
        ordered = keys[order]
        fresh = np.ones(keys.size, dtype=np.bool_)
        fresh[1:] = ordered[1:] != ordered[:-1]
        numbers = np.empty(keys.size, dtype=np.int64)
        numbers[order] = np.cumsum(fresh) - 1
        return cls(order, np.append(np.flatnonzero(fresh), keys.size), numbers)


def stable_order(keys: Integers) -> Integers:
    """A stable `np.argsort` of keys that are not negative, shape (rows,).

    A radix sort by 16 bits at a time, the lowest first: numpy sorts 16-bit numbers by counting,
    ten times as fast.
    """
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    highest = int(keys.max(initial=0))
    for shift in range(16, highest.bit_length(), 16):
        order = order[np.argsort((keys[order] >> shift).astype(np.uint16), kind="stable")]
    return order


@dataclass(frozen=True, slots=True)
class Columns:
    """Cells of some axes, shape (entries, axes), and the number of cells of each axis."""

    cells: Integers
    sizes: Integers


@dataclass(frozen=True, slots=True)
class Items:
    """What was drawn for each group: item i is a value of its group, `counts[i]` times.

    Those of group g are `ends[g]` to `ends[g + 1]`.
    """

    values: Integers
    counts: Integers
    ends: Integers

    @classmethod
    def of(cls, groups: Groups, drawn: Integers, values: int) -> Items:
        keys = np.sort(groups.numbers * values + drawn)
        fresh = np.ones(keys.size, dtype=np.bool_)
        fresh[1:] = keys[1:] != keys[:-1]
        firsts = np.flatnonzero(fresh)
        items = keys[firsts]
        ends = np.searchsorted(items, np.arange(groups.ends.size) * values)
        return cls(items % values, np.diff(np.append(firsts, keys.size)), ends.astype(np.int64))

    def comparisons(self, groups: Groups) -> Integers:
        """How many pairs of a row and an item each group has."""
        comparisons: Integers = np.diff(self.ends) * np.diff(groups.ends)
        return comparisons


def assign_values(
    groups: Groups, items: Items, new: Columns, earlier: Columns, rng: np.random.Generator
) -> Integers:
    """A value for each row, shape (rows,); each item of a group as often as it was drawn.

    `new.cells[value]` are the cells of the new axes that a value stands for; `earlier.cells`
    has an entry for each row.
    """
    areas = np.outer(new.sizes, earlier.sizes)
    places = np.concatenate([[0], np.cumsum(areas)]).astype(np.int64)
    assign = partial(
        _assign,
        groups.order,
        groups.ends,
        items.ends,
        items.values,
        items.counts,
        np.ascontiguousarray(new.cells[items.values].T),
        new.sizes,
        earlier.cells,
        places[:-1].reshape(areas.shape),
        rng.random(groups.order.size),
    )
    chosen = np.empty(groups.order.size, dtype=np.int64)
    end = groups.ends.size - 1
    middle = _middle(items.comparisons(groups) + _COMPARISONS_PER_ROW * np.diff(groups.ends))
    if middle and groups.order.size >= _MANY_ROWS and places[-1] <= _MOST_COUNTED:
        run_both(
            partial(assign, np.zeros(places[-1]), chosen, 0, middle),
            partial(assign, np.zeros(places[-1]), chosen, middle, end),
        )
    else:
        assign(np.zeros(places[-1]), chosen, 0, end)
    return chosen


def _middle(work: Integers) -> int:
    """The first group of the second half of the work; 0 if no cut gives both parts enough."""
    done = np.concatenate([[0], np.cumsum(work)])
    middle = int(np.argmin(np.abs(done - done[-1] / 2)))
    return middle if done[-1] <= _SMALLEST_PART * min(done[middle], done[-1] - done[middle]) else 0


@compiled
def _assign(
    order: Integers,
    row_ends: Integers,
    item_ends: Integers,
    values: Integers,
    counts: Integers,
    item_cells: Integers,
    new_sizes: Integers,
    earlier_cells: Integers,
    places: Integers,
    numbers: Floats,
    lags: Floats,
    chosen: Integers,
    first_group: int,
    end_group: int,
) -> None:
    """Fills `chosen` for the rows of some groups.

    `lags` holds the expected count so far less the assigned count, for each pair of axes and each
    pair of their cells.
    """
    new_axes, earlier_axes = places.shape
    for group in range(first_group, end_group):
        rows = order[row_ends[group] : row_ends[group + 1]]
        start, end = item_ends[group], item_ends[group + 1]
        left = counts[start:end].copy()
        expected = left / rows.size
        weights, power = np.empty(left.size), np.empty(left.size)
        for at in range(rows.size):
            row = rows[at]
            weights[:] = 0.0
            for a in range(new_axes):
                cells = item_cells[a, start:end]
                for b in range(earlier_axes):
                    base = places[a, b] + earlier_cells[row, b] * new_sizes[a]
                    lag = lags[base : base + new_sizes[a]]
                    for i in range(cells.size):
                        weights[i] += lag[cells[i]]
                    for i in range(cells.size):
                        lag[cells[i]] += expected[i]
            best = _chosen(weights, left, numbers[row_ends[group] + at], power)
            left[best] -= 1
            chosen[row] = values[start + best]
            for a in range(new_axes):
                cell = item_cells[a, start + best]
                for b in range(earlier_axes):
                    lags[places[a, b] + earlier_cells[row, b] * new_sizes[a] + cell] -= 1.0


@compiled
def _chosen(weights: Floats, left: Integers, number: float, power: Floats) -> int:
    """An item that is left, drawn in proportion to its remaining count times exp(rate * lag)."""
    top = -np.inf
    for i in range(left.size):
        if left[i] > 0:
            top = max(top, weights[i])
    for i in range(left.size):
        # Subtracting the largest keeps the exponential within the range of a float.
        weights[i] = _CATCH_UP_RATE * (min(weights[i], top) - top)
    exponentiate_with(weights, power)
    total = 0.0
    for i in range(left.size):
        total += left[i] * weights[i]
        weights[i] = total
    mark = number * total
    # Rounding can leave the last sum at or below the mark; then the last item left is taken.
    last = 0
    for i in range(left.size):
        if left[i] > 0:
            last = i
            if weights[i] > mark:
                break
    return last
