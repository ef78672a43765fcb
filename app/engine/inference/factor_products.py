"""How factors over few axes are added up into a table over many, and summed out of it again.

Adding the factors one by one would pass over the whole table once for each. They are joined
two and two instead, those first whose union is smallest, so that only the last one or two
additions are as large as the table. Summing out goes the same way back: the marginal on each
factor's axes is taken from the smallest table that was made on the way.
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
    """The table `out` over the axes of both tables `first` and `second`, by their numbers."""

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
    """Pairs of tables that wait to be joined, by the size of their union, then by their places.

    Axes of one cell make no union larger. Of tables that are alike in all other axes, as dozens
    are in a clique with many such axes, only the first two can be in the cheapest pair, so that
    no others are priced; and what was priced is kept until one of the pair is taken.
    """

    def __init__(self, shape: Mapping[str, int]) -> None:
        self._shape = shape
        self._kinds: list[frozenset[str]] = []
        self._alike: dict[frozenset[str], deque[int]] = {}
        self._taken: set[int] = set()
        self._priced: list[tuple[int, int, int]] = []

    def add(self, axes: Iterable[str]) -> None:
        """One more table, at the place after the last."""
        kind = frozenset(axis for axis in axes if self._shape[axis] > 1)
        alike = self._alike.setdefault(kind, deque())
        alike.append(len(self._kinds))
        self._kinds.append(kind)
        if len(alike) <= 2:
            self._price(kind)

    def take_cheapest(self) -> tuple[int, int]:
        """The places of the two whose union is smallest, which wait no longer."""
        while True:
            _, first, second = heappop(self._priced)
            if self._taken.isdisjoint((first, second)):
                break
        self._taken |= {first, second}
        for place in (first, second):
            alike = self._alike[self._kinds[place]]
            alike.popleft()
            if not alike:
                del self._alike[self._kinds[place]]
        for kind in {self._kinds[first], self._kinds[second]} & self._alike.keys():
            self._price(kind)
        return first, second

    def _price(self, kind: frozenset[str]) -> None:
        """The pairs of the first of a kind: with the second, and with the first of each other."""
        first, *more = islice(self._alike[kind], 2)
        for second in more:
            self._push(kind, first, second)
        for other, places in self._alike.items():
            if other != kind:
                self._push(kind | other, first, places[0])

    def _push(self, union: frozenset[str], one: int, other: int) -> None:
        cells = cells_of(self._shape, union)
        heappush(self._priced, (cells, min(one, other), max(one, other)))


def row_starts(shape: Mapping[str, int], whole: AxisNames, part: AxisNames) -> tuple[Places, bool]:
    """Where each row of a table over `whole` begins in the flat table over `part`.

    A row runs along the last axis of `whole`; the flag tells whether `part` holds that axis,
    so that its cells go along. Both are in table order.
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
