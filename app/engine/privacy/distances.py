"""Distances of exact histograms from public references, in integers.

Statement. Let a candidate's distance be L1(s h, r), with h its exact histogram in steps of
its grid, s the public factor that makes those 1/1024 of a count, and r a public array of
integers. If one unit moves h by a vector of L1 norm at most D, it moves the distance by at
most s D, up or down.
Proof. Adjacent datasets have histograms h and h + v, with L1(v, 0) <= D. The triangle
inequality gives |L1(s (h + v), r) - L1(s h, r)| <= s L1(v, 0) <= s D.

The proof would also hold for a reference in whole counts, but those are too coarse: a
reference that expects a twentieth of a row in each of a million cells would round to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.contributions import Histogram
from app.engine.privacy.queries import Candidate
from app.engine.privacy.references import CheckedReference, checked_reference
from app.engine.privacy.sensitivity import GRID, Sensitivity


@dataclass(frozen=True)
class Distance:
    """What is compared with what, and how far one unit moves the histogram."""

    histogram: Histogram
    reference: CheckedReference
    unit: Sensitivity

    @classmethod
    def of_each(
        cls,
        candidates: Sequence[Candidate],
        histograms: Sequence[Histogram],
        units: Sequence[Sensitivity],
    ) -> tuple[Distance, ...]:
        """Raises `QuestionRefused` for a reference that does not fit its count."""
        return tuple(
            cls(histogram, checked_reference(candidate.reference, histogram.shape), unit)
            for candidate, histogram, unit in zip(candidates, histograms, units, strict=True)
        )

    @property
    def sensitivity(self) -> int:
        """How far one unit moves the distance, in steps of 1/1024 of a count."""
        return self._factor * self.unit.l1

    @property
    def _factor(self) -> int:
        return GRID // self.unit.grid

    def measured(self, exact: NDArray[np.int64]) -> int:
        """The distance of the flat histogram, in steps of 1/1024 of a count.

        It fits 64 bits: a reference has at most 2^50 steps, and a histogram fewer than that.
        """
        total = 0
        for part, steps in self.reference.blocks():
            total += int(np.abs(exact[part] * self._factor - steps).sum())
        return total
