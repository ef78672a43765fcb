"""Numbers of a column as whole steps of its public grid, clipped to public bounds.

Statement. Let a row add clip(x, low, high) to one cell, in steps, and nothing where x is
null. Between adjacent datasets, which differ by one unit of at most k rows, added or removed,
the sums change by a vector whose L1 norm, and therefore whose L2 norm, is at most
k max(|low|, |high|).
Proof. Each of the unit's rows moves one cell by at most max(|low|, |high|). Norms are
subadditive, and the L2 norm is at most the L1 norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.queries import QuestionRefused
from app.engine.schema import Column
from app.engine.schema.scale import Linear
from app.engine.schema.values import Value, tick

# The largest bound in steps: 2^30 rows of it sum to 2^62, which fits 64 bits.
LARGEST_STEPS = 2**32
_LARGEST_PLACE = 2**62


@dataclass(frozen=True)
class Summand:
    """What each stored code of a column adds: code i < `regular` is `first + i * stride`
    steps, the codes after it are `others` (None: nothing), all clipped to [low, high]."""

    column: str
    step: float
    low: int
    high: int
    first: int
    stride: int
    regular: int
    others: tuple[int | None, ...]

    @property
    def largest(self) -> int:
        """The most that one row moves a sum, in steps."""
        return max(abs(self.low), abs(self.high))

    def steps(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """What rows of these codes add, int64."""
        wide = codes.astype(np.int64)
        added = np.clip(self.first + wide * self.stride, self.low, self.high)
        others = np.array([0 if place is None else place for place in self.others], np.int64)
        is_other = wide >= self.regular
        added[is_other] = others[wide[is_other] - self.regular]
        return added


def summand(column: Column, low: float, high: float) -> Summand:
    """The numbers of a column between bounds, which are brought inside to its grid.

    Raises `QuestionRefused` for a column of text, and for bounds without a point of the grid
    between them or more than 2^32 steps from 0.
    """
    if not column.has_numbers:
        raise QuestionRefused("a sum is of a column of numbers, dates or times")
    step = _step(column)
    # Bounds are rounded inwards, so that rounding to the grid never widens what a row adds.
    lowest, highest = math.ceil(_exact(low) / step), math.floor(_exact(high) / step)
    if lowest > highest:
        raise QuestionRefused("no point of the column's grid lies between the bounds of the sum")
    if max(abs(lowest), abs(highest)) > LARGEST_STEPS:
        raise QuestionRefused("the bounds of a sum are at most 2^32 steps of the column from 0")
    first, stride, regular, listed = _layout(column, step)
    if abs(first) + stride * regular > _LARGEST_PLACE:
        raise QuestionRefused("the column's numbers are too large to be summed")
    others = tuple(
        None if value is None else max(lowest, min(highest, round(tick(value) / step)))
        for value in listed
    )
    return Summand(column.name, float(step), lowest, highest, first, stride, regular, others)


def _exact(bound: float) -> Decimal:
    # The decimal that the analyst wrote (0.1), not the binary fraction nearest to it.
    return Decimal(repr(float(bound)))


def _layout(column: Column, step: Decimal) -> tuple[int, int, int, Sequence[Value | None]]:
    """First place, stride and number of the codes that are evenly spaced; the other values."""
    scale = column.scale
    if isinstance(scale, Linear):
        return (
            round(scale.minimum / step),
            round(scale.step / step),
            scale.regular,
            (column.tail_values),
        )
    return 0, 0, 0, (*scale.values, *column.tail_values)


def _step(column: Column) -> Decimal:
    """The largest convenient distance of which every regular value is a multiple."""
    scale = column.scale
    if isinstance(scale, Linear):
        if scale.minimum % scale.step == 0:
            return scale.step
        return Decimal(1).scaleb(-scale.decimals)
    places = [tick(value).normalize() for value in scale.values]
    return Decimal(1).scaleb(min(0, *(int(place.as_tuple().exponent) for place in places)))
