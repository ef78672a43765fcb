"""From places on the number line back to the codes of a column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.schema.column import Column
from app.engine.schema.scale import Linear

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Points:
    """The values of a column that has numbers, without null, by their places.

    Of a range these are its grid, and a special value only where its exact place is wanted,
    since special values are not part of the order. `below` and `above` take places and return
    codes, shape (rows,), and a mask of where there is one; a place counts as reached within the
    rounding of doubles.
    """

    column: Column

    @cached_property
    def _listed(self) -> tuple[Floats, Codes]:
        """Of categories: places, rising, and their codes."""
        codes = np.arange(self.column.codes)
        places, null = self.column.places(codes)
        order = np.argsort(places[~null], kind="stable")
        return places[~null][order].astype(np.float64), codes[~null][order]

    @cached_property
    def _tail(self) -> list[tuple[float, int]]:
        """Places and codes of special values and `other`."""
        return [
            (float(self.column.place_of(value)), self.column.regular + offset)
            for offset, value in enumerate(self.column.tail_values)
            if value is not None
        ]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest place of the range or of the categories."""
        if isinstance(self.column.scale, Linear):
            ends = self.column.places(np.array([0, self.column.regular - 1]))[0]
            return float(ends[0]), float(ends[1])
        places, _ = self._listed
        return float(places[0]), float(places[-1])

    def places(self, codes: NDArray[Any]) -> Floats:
        return np.asarray(self.column.places(codes)[0], np.float64)

    def below(self, places: Floats) -> tuple[Codes, Mask]:
        """The highest point at or below each place."""
        if not isinstance(self.column.scale, Linear):
            listed, codes = self._listed
            slots = np.searchsorted(listed, places + _lost(places, 1.0), side="right") - 1
            return codes[np.maximum(slots, 0)], slots >= 0
        codes = self._near(places)
        at, lost = self.column.scale.places(codes), _lost(places, self.column.step)
        codes = np.where(at > places + lost, codes - 1, codes)
        codes, found = np.maximum(codes, 0), codes >= 0
        return self._exact(codes, found, places)

    def above(self, places: Floats) -> tuple[Codes, Mask]:
        """The lowest point at or above each place."""
        if not isinstance(self.column.scale, Linear):
            listed, codes = self._listed
            slots = np.searchsorted(listed, places - _lost(places, 1.0), side="left")
            return codes[np.minimum(slots, codes.size - 1)], slots < codes.size
        codes, last = self._near(places), self.column.regular - 1
        at, lost = self.column.scale.places(codes), _lost(places, self.column.step)
        codes = np.where(at < places - lost, codes + 1, codes)
        codes, found = np.minimum(codes, last), codes <= last
        return self._exact(codes, found, places)

    def nearest(self, places: Floats) -> Codes:
        """The point nearest to each place."""
        low, has_low = self.below(places)
        high, has_high = self.above(places)
        is_low = places - self.places(low) <= self.places(high) - places
        return np.where(has_low & (is_low | ~has_high), low, high)

    def _near(self, places: Floats) -> Codes:
        """The nearest grid point or one of the two beside it, within the range."""
        assert isinstance(self.column.scale, Linear)
        steps = np.rint((places - self.ends[0]) / self.column.step)
        return np.clip(steps, 0, self.column.regular - 1).astype(np.int64)

    def _exact(self, codes: Codes, found: Mask, places: Floats) -> tuple[Codes, Mask]:
        """A special value where its exact place is wanted; a grid point there stores nothing."""
        lost = _lost(places, self.column.step)
        for place, code in self._tail:
            asked = np.abs(places - place) <= lost
            codes, found = np.where(asked, code, codes), found | asked
        return self._stored(codes), found

    @cached_property
    def _taken(self) -> dict[int, int]:
        """Grid points that are special values: stored by the special code."""
        taken = {}
        for offset, value in enumerate(self.column.special):
            code = self.column.scale.code(value)
            if code is not None and self.column.scale.value(code) == value:
                taken[code] = self.column.regular + offset
        return taken

    def _stored(self, codes: Codes) -> Codes:
        for grid, special in self._taken.items():
            codes = np.where(codes == grid, special, codes)
        return codes


def _lost(places: Floats, step: float) -> Floats:
    """The rounding of sums of doubles near these places, well below a step."""
    # Never a quarter step or more, so that rounding cannot reach the next grid point.
    lost: Floats = np.minimum(1e-7 * step + 1e-12 * np.abs(places), step / 4)
    return lost
