"""How factors over few axes are added up into a table over many, and summed out of it again.

Adding the factors one by one would pass over the whole table once per factor. Instead they are
added in pairs, first the pair with the fewest cells in its union, so that only the last one or
two additions are as large as the table. Summing out takes the same steps backwards: the marginal
on each factor's axes comes from the smallest intermediate table that holds them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.junction_tree import cells_of
from app.engine.inference.measurements import AxisNames

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Addition:
    """Table number `out` is the sum of tables `first` and `second`, over the axes of both."""

    out: int
    first: int
    second: int


def additions(
    shape: Mapping[str, int],
    order: AxisNames,
    factors: Sequence[tuple[int, AxisNames]],
    whole: AxisNames,
    next_number: int,
) -> tuple[list[Addition], list[AxisNames]]:
    """Additions that end in a table over `whole`, and the axes of each table made.

    `factors` are at least two, as (number, axes); new tables are numbered from `next_number`.
    """
    rank = {axis: i for i, axis in enumerate(order)}
    tables = list(factors)
    pairs = _Pairs(shape)
    for _, axes in factors:
        pairs.add(axes)
    steps: list[Addition] = []
    last = next_number + len(factors) - 2
    for number in range(next_number, last + 1):
        (first, some), (second, others) = (tables[place] for place in pairs.take_cheapest())
        union = {*some, *others, *(whole if number == last else ())}
        axes = tuple(sorted(union, key=rank.__getitem__))
        pairs.add(axes)
        tables.append((number, axes))
        steps.append(Addition(number, first, second))
    return steps, [axes for _, axes in tables[len(factors) :]]


class _Pairs:
    """Pairs of tables that wait to be added, by the cells of their union, then by their places.

    Axes of one cell do not enlarge a union. Tables with the same axes otherwise are of one kind;
    a clique with many axes of one cell has dozens of them. Only the first two of a kind can be in
    the cheapest pair, so only these are priced. A price is kept until one of its pair is taken.
    """

    def __init__(self, shape: Mapping[str, int]) -> None:
        self._shape = shape
        self._kinds: list[frozenset[str]] = []
        self._waiting: dict[frozenset[str], deque[int]] = {}
        self._taken: set[int] = set()
        self._priced: list[tuple[int, int, int]] = []

    def add(self, axes: Iterable[str]) -> None:
        """Adds a table, at the place after the last."""
        kind = frozenset(axis for axis in axes if self._shape[axis] > 1)
        waiting = self._waiting.setdefault(kind, deque())
        waiting.append(len(self._kinds))
        self._kinds.append(kind)
        if len(waiting) <= 2:
            self._price(kind)

    def take_cheapest(self) -> tuple[int, int]:
        """Removes the two tables with the smallest union, and returns their places."""
        while True:
            # The heap may still hold pairs with a table that was taken; they are skipped.
            _, first, second = heappop(self._priced)
            if self._taken.isdisjoint((first, second)):
                break
        self._taken |= {first, second}
        for place in (first, second):
            waiting = self._waiting[self._kinds[place]]
            waiting.popleft()
            if not waiting:
                del self._waiting[self._kinds[place]]
        for kind in {self._kinds[first], self._kinds[second]} & self._waiting.keys():
            self._price(kind)
        return first, second

    def _price(self, kind: frozenset[str]) -> None:
        """Prices the first of a kind with the second, and with the first of each other kind."""
        first, *more = islice(self._waiting[kind], 2)
        for second in more:
            self._push(kind, first, second)
        for other, places in self._waiting.items():
            if other != kind:
                self._push(kind | other, first, places[0])

    def _push(self, union: frozenset[str], one: int, other: int) -> None:
        cells = cells_of(self._shape, union)
        heappush(self._priced, (cells, min(one, other), max(one, other)))


def row_starts(shape: Mapping[str, int], whole: AxisNames, part: AxisNames) -> tuple[Places, bool]:
    """Where each row of a table over `whole` begins in the flat table over `part`, shape (rows,).

    A row runs along the last axis of `whole`. The flag is true if `part` has that axis too: then
    its cells run along with the row. Both are in table order.
    """
    stride, strides = 1, {}
    for axis in reversed(part):
        strides[axis] = stride
        stride *= shape[axis]
    starts = np.zeros(1, dtype=np.int64)
    for axis in whole[:-1]:
        steps = np.arange(shape[axis], dtype=np.int64) * strides.get(axis, 0)
        starts = (starts[:, None] + steps).ravel()
    return starts, bool(whole) and whole[-1] in strides
