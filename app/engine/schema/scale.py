"""Scales: what the regular codes of a column stand for.

Regular codes are those of declared values. Codes of special values, of other values and of
null follow them and are called the tail (see `app.engine.grouping`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.schema.values import TypeName, Value, at_tick, text, tick

# Codes then fit in uint32.
MOST_CODES = 2**32 - 1
DEFAULT_BINS = 20


@dataclass(frozen=True)
class Categories:
    """Code i is the i-th declared value. If all values are to be discovered, there is none."""

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if len(set(self.values)) != len(self.values):
            raise ValueError("a category must not be declared twice")

    @property
    def regular(self) -> int:
        return len(self.values)

    @cached_property
    def _codes(self) -> dict[Value, int]:
        return {value: code for code, value in enumerate(self.values)}

    def code(self, value: Value) -> int | None:
        return self._codes.get(value)

    def value(self, code: int) -> Value:
        return self.values[code]


@dataclass(frozen=True)
class Linear:
    """Code i is `minimum + i * step`, from `minimum` up to at most `maximum`.

    `minimum`, `maximum` and `step` are places on the number line of the type. With `declared_step`
    the step stands in the dictionary, and values lie on the points. Otherwise the step was chosen
    here, and values are rounded to the nearest point.
    """

    kind: TypeName
    minimum: Decimal
    maximum: Decimal
    step: Decimal = Decimal(1)
    declared_step: bool = False

    def __post_init__(self) -> None:
        if self.step <= 0 or self.maximum < self.minimum:
            raise ValueError("a scale needs a positive step, and a maximum not below its minimum")
        if self.regular > MOST_CODES:
            raise ValueError("a scale has at most 2^32 - 1 points")

    @cached_property
    def regular(self) -> int:
        return int((self.maximum - self.minimum) // self.step) + 1

    def code(self, value: Value) -> int | None:
        """The code of the point nearest to a value; None for a value outside the bounds."""
        place = tick(value)
        if not self.minimum <= place <= self.maximum:
            return None
        return min(int(((place - self.minimum) / self.step).to_integral_value()), self.regular - 1)

    def value(self, code: int) -> Value:
        return at_tick(self.kind, self.minimum + self.step * code)

    @cached_property
    def decimals(self) -> int:
        """How many decimal places write every point exactly."""
        places = (self.minimum.normalize(), self.step.normalize())
        return max(0, *(-int(place.as_tuple().exponent) for place in places))

    def places(self, codes: NDArray[np.int64]) -> NDArray[Any]:
        """The places of codes, shape (rows,): float64 for numbers, otherwise int64.

        A number is the double nearest to the exact decimal: only the one division rounds.
        """
        whole = self.whole_places(codes, self.decimals)
        return whole / float(10**self.decimals) if self.kind == "number" else whole

    def whole_places(self, codes: NDArray[Any], decimals: int) -> NDArray[Any]:
        """Places times 10^decimals, of the type of `codes`: exact, with `decimals` or more."""
        shift = Decimal(10) ** decimals
        return np.asarray(int(self.minimum * shift) + int(self.step * shift) * codes)

    def equal(self, bins: int, tail: int) -> Grouping:
        """`bins` intervals of equal length, closed on the left, the last on both sides.

        `tail` is how many codes of the column are not regular; each has a cell of its own.
        """
        length = self.maximum - self.minimum
        inner = (self._first_at(self.minimum + length * i / bins) for i in range(1, bins))
        return self._cut(inner, tail)

    def cut_at(self, edges: Sequence[Value], tail: int) -> Grouping:
        """Intervals between increasing edges; the ends of the scale are always edges."""
        places = [tick(edge) for edge in edges]
        if any(b <= a for a, b in pairwise(places)):
            raise ValueError("edges must increase strictly")
        if any(not self.minimum <= place <= self.maximum for place in places):
            raise ValueError("edges must lie between minimum and maximum")
        inner = (self._first_at(place) for place in places if place < self.maximum)
        return self._cut(inner, tail)

    def _first_at(self, place: Decimal) -> int:
        return math.ceil((place - self.minimum) / self.step)

    def _cut(self, inner: Any, tail: int) -> Grouping:
        cuts = {cut for cut in inner if 0 < cut < self.regular}
        return Grouping((0, *sorted(cuts), self.regular), tail)

    def label(self, first: int, end: int) -> str:
        """The label of the interval of the codes `first` to `end - 1`."""
        if end - first == 1:
            return text(self.value(first))
        left = text(self.value(first))
        if end == self.regular:
            return f"[{left}, {text(at_tick(self.kind, self.maximum))}]"
        return f"[{left}, {text(self.value(end))})"


Scale = Categories | Linear


def default_step(minimum: Decimal, maximum: Decimal) -> Decimal:
    """The step of a number without `step`: about seven digits across its range.

    It depends on the declared range only, so it is public.
    """
    length = maximum - minimum
    if length <= 0:
        return Decimal(1)
    exponent = length.adjusted()
    if length != Decimal(10) ** exponent:
        exponent += 1
    return Decimal(10) ** (exponent - 7)
