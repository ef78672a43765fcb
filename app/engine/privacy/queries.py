"""The questions a session answers and the answers it gives: plain, validated, serialisable.

A question names columns, how their stored codes are grouped into cells, and how much one
privacy unit may contribute. Nothing here touches private rows or draws noise; both ends of
the pipe import it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping

Rule = Literal["rows", "distinct", "one", "clipped"]
Noise = Literal["gaussian", "laplace"]


@dataclass(frozen=True, slots=True)
class Contribution:
    """How much one privacy unit adds to a histogram (the table of contribution rules).

    `limit` is m of `distinct`, `norm` is c of `clipped`; other rules take neither.
    """

    rule: Rule = "rows"
    limit: int | None = None
    norm: float | None = None

    def __post_init__(self) -> None:
        if (self.rule == "distinct") != (self.limit is not None):
            raise ValueError("`distinct`, and only `distinct`, takes a limit")
        if (self.rule == "clipped") != (self.norm is not None):
            raise ValueError("`clipped`, and only `clipped`, takes a norm")
        if self.limit is not None and self.limit < 1:
            raise ValueError("the limit is at least 1")
        if self.norm is not None and not (math.isfinite(self.norm) and self.norm > 0):
            raise ValueError("the norm is a positive number")


@dataclass(frozen=True, slots=True)
class Count:
    """One histogram over the cells of `columns`, in C order of the columns given.

    No column at all counts the unit's rows (`rows`) or the units (`one`) in a single cell.
    A column without an entry in `groupings` is grouped as its dictionary says.
    """

    columns: tuple[str, ...]
    groupings: Mapping[str, Grouping] = field(default_factory=dict)
    contribution: Contribution = Contribution()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate of a private selection: how far a count is from a public reference.

    The score is `weight * L1(count, reference) + bias`. `reference` holds the factors of an
    outer product: one array of the count's shape, or one vector for each of its columns.
    """

    count: Count
    reference: tuple[NDArray[np.float64], ...]
    weight: float = 1.0
    bias: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """A noisy histogram, the published product of a question.

    values: int64, shape `shape` (cells per column; `()` for a total). `scale` is sigma of a
    discrete Gaussian or b of a discrete Laplace, in counts; `standard_error` is the noise's
    standard deviation. Sensitivities are of this histogram alone, add or remove one unit.
    """

    count: Count
    values: NDArray[np.int64]
    noise: Noise
    scale: float
    standard_error: float
    l1_sensitivity: float
    l2_sensitivity: float

    @property
    def columns(self) -> tuple[str, ...]:
        return self.count.columns

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def variance(self) -> float:
        return self.standard_error**2


class SessionError(Exception):
    """A session could not answer. Its text never holds anything made from private rows."""


class BudgetExhausted(SessionError):
    """The question costs more than the session has left."""


class QuestionRefused(SessionError):
    """The question is malformed, or not allowed in this session (public facts only)."""


class KernelFailure(SessionError):
    """The kernel could not answer. It always reads the same; the cause is `__cause__`,
    for the custodian alone."""

    def __init__(self) -> None:
        super().__init__("the kernel could not answer; the session has ended")
