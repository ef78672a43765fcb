"""How far a model says that it is from the exact table."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """With probability `confidence`, the total variation distance between the model's marginal
    on `columns` and the exact one is at most `distance` (1 or more promises nothing).

    Made of the model alone, so that it is as public as the model.
    """

    columns: tuple[str, ...]
    distance: float
    confidence: float

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise ValueError("an expected error is of some columns, each named once")
        if not (math.isfinite(self.distance) and self.distance >= 0):
            raise ValueError("a distance is a finite number, not negative")
        if not 0 < self.confidence < 1:
            raise ValueError("a confidence lies between 0 and 1")
