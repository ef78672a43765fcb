"""How factors over few axes are added up into a table over many, and summed out of it again.

Adding the factors one by one would pass over the whole table once for each. They are joined
two and two instead, those first whose union is smallest, so that only the last one or two
additions are as large as the table. Summing out goes the same way back: the marginal on each
factor's axes is taken from the smallest table that was made on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.junction import cells_of
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
    waiting = {number: frozenset(axes) for number, axes in factors}
    steps: list[Addition] = []
    made: list[AxisNames] = []
    while len(waiting) > 1:
        first, second = _cheapest(shape, waiting)
        union = waiting.pop(first) | waiting.pop(second)
        if not waiting:
            union |= frozenset(whole)
        number = next_number + len(made)
        waiting[number] = union
        steps.append(Addition(number, first, second))
        made.append(tuple(sorted(union, key=rank.__getitem__)))
    return steps, made


def _cheapest(shape: Mapping[str, int], waiting: Mapping[int, frozenset[str]]) -> tuple[int, int]:
    numbers = list(waiting)
    sizes: dict[frozenset[str], int] = {}
    best: tuple[int, int, int] | None = None
    for i, first in enumerate(numbers):
        for second in numbers[i + 1 :]:
            union = waiting[first] | waiting[second]
            size = sizes.get(union)
            if size is None:
                size = sizes[union] = cells_of(shape, union)
            if best is None or size < best[0]:
                best = (size, first, second)
    assert best is not None
    return best[1], best[2]


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
