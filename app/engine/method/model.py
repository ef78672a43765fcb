"""What was fitted, and what it can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.method.expected_error import ExpectedError
from app.engine.privacy.queries import Count
from app.engine.table import Table


@dataclass(frozen=True, slots=True)
class CountsTable:
    """A post-processed histogram as the product: cells (C order) and their counts."""

    count: Count
    values: NDArray[np.int64]


class Model(Protocol):
    """What was fitted. Sampling is post-processing: repeatable for a seed, free of charge."""

    def sample(self, rows: int | None, rng: np.random.Generator) -> Table:
        """`rows` synthetic rows; None stands for the noisy count of rows."""
        ...

    def dump(self) -> bytes:
        """The model as JSON, npz or Arrow; never pickle."""
        ...


class CountsModel(Model, Protocol):
    """A model whose post-processed histogram is a product of its own."""

    def counts(self) -> CountsTable: ...


class SizedModel(Model, Protocol):
    """A model that knows how many rows it makes unasked; all built-in ones do."""

    @property
    def noisy_rows(self) -> int:
        """About as many rows as `sample(None, ...)` gives."""
        ...


def rows_to_ask(model: Model, rows: int | None, most: int) -> int | None:
    """What to ask a model for: a noisy count beyond `most` rows, a public bound, is that bound.

    Large noise on a small table would else make millions of rows that nobody foresaw.
    """
    noisy: int = getattr(model, "noisy_rows", 0)
    return most if rows is None and noisy > most else rows


class ExpectingModel(Model, Protocol):
    """A model that bounds its own errors. Any model may; it is asked once, when it is fitted."""

    def expected_errors(self) -> tuple[ExpectedError, ...]: ...


def expected_errors(model: Model) -> tuple[ExpectedError, ...]:
    """What the model says of its own errors, nothing if it says none."""
    told = getattr(model, "expected_errors", None)
    return () if told is None else tuple(told())
