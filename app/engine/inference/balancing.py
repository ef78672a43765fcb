"""Which row of a group gets which of the values that were drawn for the group.

Given the axes of a separator, the model holds the new axes independent of all that was drawn
before, so every dealing of a group's values among its rows is as likely as any other. Dealt at
random, the counts over a new axis and an earlier one scatter as independent draws do. Here the
values whose counts with the row's earlier cells lag behind expectation are the likelier ones,
so that these counts stay within a few rows of it. Rows are met in random order; a value never
met with a cell before is as likely as at random, so that rare cells are not favoured.

Of a long table two halves of the groups are dealt by two threads, each by counts of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from app.engine.compiled import compiled
from app.engine.inference.exponential import exponentiate_with
from app.engine.inference.two_threads import together

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# How much likelier, in logarithms, a value becomes for each row that its counts lag behind.
_HASTE = 0.5

# From here on the counts of two halves, each off by some rows, are as near as those of one.
_MANY_ROWS = 2**16

# What a row costs beside looking at its items, in looks.
_LOOKS_OF_ROW = 16

# A part of the work smaller than one in eight is not handed over.
_LEAST_PART = 8

# Pairs of cells that a second half may count: 16 MB.
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
    """What `np.argsort` says of keys that are not negative, equal ones in their order.

    Keys are sorted by 16 bits at a time, the lowest first: numpy sorts numbers of so few bits by
    counting them, ten times as fast.
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

    def looks(self, groups: Groups) -> Integers:
        """How many items the rows of each group together choose from."""
        looks: Integers = np.diff(self.ends) * np.diff(groups.ends)
        return looks


def dealt(
    groups: Groups, items: Items, new: Columns, earlier: Columns, rng: np.random.Generator
) -> Integers:
    """A value for each row, every item of its group as often as it was drawn.

    `new.cells[value]` are the cells of the new axes that a value stands for; `earlier.cells`
    has a line for each row.
    """
    areas = np.outer(new.sizes, earlier.sizes)
    places = np.concatenate([[0], np.cumsum(areas)]).astype(np.int64)
    dealt = partial(
        _deal,
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
    middle = _middle(items.looks(groups) + _LOOKS_OF_ROW * np.diff(groups.ends))
    if middle and groups.order.size >= _MANY_ROWS and places[-1] <= _MOST_COUNTED:
        together(
            partial(dealt, np.zeros(places[-1]), chosen, 0, middle),
            partial(dealt, np.zeros(places[-1]), chosen, middle, end),
        )
    else:
        dealt(np.zeros(places[-1]), chosen, 0, end)
    return chosen


def _middle(work: Integers) -> int:
    """The first group of the second half of the work; 0 where groups give no such halves."""
    done = np.concatenate([[0], np.cumsum(work)])
    middle = int(np.argmin(np.abs(done - done[-1] / 2)))
    return middle if done[-1] <= _LEAST_PART * min(done[middle], done[-1] - done[middle]) else 0


@compiled
def _deal(
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

    `lags` holds, for each pair of axes, what is expected so far less what was dealt.
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
    """An item that is left, likely in proportion to how many are and to exp(haste * lag)."""
    top = -np.inf
    for i in range(left.size):
        if left[i] > 0:
            top = max(top, weights[i])
    for i in range(left.size):
        weights[i] = _HASTE * (min(weights[i], top) - top)
    exponentiate_with(weights, power)
    total = 0.0
    for i in range(left.size):
        total += left[i] * weights[i]
        weights[i] = total
    mark = number * total
    last = 0
    for i in range(left.size):
        if left[i] > 0:
            last = i
            if weights[i] > mark:
                break
    return last
