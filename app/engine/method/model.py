"""What was fitted, and what can be made of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.queries import Count
from app.engine.table import Table


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


@dataclass(frozen=True, slots=True)
class CountsTable:
    """A post-processed histogram as the product: cells (C order) and their counts."""

    count: Count
    values: NDArray[np.int64]


class Model(ABC):
    """What was fitted. Sampling is post-processing: repeatable for a seed, free of charge."""

    @abstractmethod
    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """`rows` synthetic rows; None stands for the noisy count of rows."""

    @abstractmethod
    def dump(self) -> bytes:
        """The model as JSON, npz or Arrow; never pickle."""

    @property
    def noisy_rows(self) -> int:
        """About as many rows as `sample(None, ...)` gives; 0 if the model cannot say."""
        return 0

    def rows_to_ask(self, rows: int | None, most: int) -> int | None:
        """How many rows to make: a noisy count beyond `most` rows, a public bound, is that bound.

        Otherwise large noise on a small table could make millions of rows that nobody expects.
        """
        return most if rows is None and self.noisy_rows > most else rows

    def expected_errors(self) -> tuple[ExpectedError, ...]:
        """Bounds of the model's own errors. Called once, when the model is fitted."""
        return ()

    def counts(self) -> CountsTable:
        """The counts of a synthesizer that names `counts` among its outputs."""
        raise NotImplementedError("this model has no counts to publish")
