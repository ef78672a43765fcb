"""How many rows and entities there are, measured with noise, and how rows are assigned to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.tuning import TUNING
from app.engine.method.model_file import ModelFormatError, number
from app.engine.privacy.queries import Contribution, Count, Measurement
from app.engine.privacy.references import LARGEST_REFERENCE
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit

# Noise below this leaves whole counts exact; its variance may be 0, which no weight can take.
SMALLEST_VARIANCE = 1e-3

# However large noise is: a histogram of so many can still be compared with another.
_MOST_ROWS = LARGEST_REFERENCE / 2


def size_questions(unit: PrivacyUnit) -> tuple[Count, ...]:
    """Rows, and on an entity unit the entities: L2 sensitivity max_rows and 1."""
    if unit.kind == "row":
        return (Count(()),)
    return Count(()), Count((), contribution=Contribution("one"))


def size_weights(contribution: Contribution, budget: UnitBudget) -> tuple[float, ...]:
    """What part of a loss the `size_questions` get beside histograms under `contribution`."""
    if contribution.rule == "rows":
        weights = TUNING.size_of_rows if budget.loss.kind == "zcdp" else TUNING.size_of_rows_pure
    else:
        weights = (
            TUNING.size_of_others if budget.loss.kind == "zcdp" else TUNING.size_of_others_pure
        )
    return weights[:1] if budget.unit.kind == "row" else weights


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """The size by other measurements: rows with their variance, and entities with theirs."""

    rows: float
    rows_variance: float
    entities: float
    entities_variance: float


# See `Tuning.most_pull`; the bounds of `aim` are made of it too.
MOST_PULL = TUNING.most_pull


def pulled(value: float, variance: float, estimate: float, variance_of_estimate: float) -> float:
    """A value without bias, pooled with an estimate that may have some: it moves so far alone."""
    most = MOST_PULL * math.sqrt(variance)
    moved = pooled([(value, variance), (estimate, variance_of_estimate)])
    return min(max(moved, value - most), value + most)


@dataclass(frozen=True, slots=True)
class Size:
    """Noisy numbers of rows and entities, neither negative; no entities on a row unit, elsewhere a
    row or more for each."""

    rows: int
    entities: int | None
    max_rows: int

    @classmethod
    def from_answers(
        cls,
        unit: PrivacyUnit,
        rows: float,
        answers: Sequence[Measurement],
        known: SizeEstimate | None = None,
    ) -> Size:
        """`rows` is the best estimate of rows; `answers` are those to `size_questions`."""
        rows = min(rows, _MOST_ROWS)
        if unit.kind == "row":
            return cls(max(0, round(rows)), None, 1)
        counted = min(float(answers[1].values), _MOST_ROWS)
        if known is not None:
            variance = answers[1].variance
            counted = pulled(counted, variance, known.entities, known.entities_variance)
        entities = max(0, round(counted))
        most = max(entities, 1) * unit.max_rows
        return cls(min(max(entities, round(rows)), most), entities, unit.max_rows)

    def deal(self, rows: int, rng: np.random.Generator) -> NDArray[np.int64] | None:
        """A synthetic entity for each of `rows` rows: 0..E-1, none with over `max_rows`.

        Every entity has as many rows as any other, or one less.
        """
        if self.entities is None:
            return None
        if rows == 0:
            return np.zeros(0, dtype=np.int64)
        owner = np.arange(rows, dtype=np.int64) % self.entities_of(rows)
        rng.shuffle(owner)
        return owner

    def entities_of(self, rows: int) -> int:
        """How many entities `rows` rows have, on an entity unit.

        That keeps the noisy number of rows per entity, as near as `max_rows` allows.
        """
        wanted = round((self.entities or 0) * rows / max(self.rows, 1))
        return min(max(wanted, -(-rows // self.max_rows), min(rows, 1)), rows)

    def to_json(self) -> dict[str, int]:
        wire = {"rows": self.rows, "max_rows": self.max_rows}
        return wire if self.entities is None else wire | {"entities": self.entities}

    @classmethod
    def from_json(cls, wire: Any, unit: PrivacyUnit) -> Size:
        if not isinstance(wire, Mapping):
            raise ModelFormatError("the stored model has no size")
        if unit.kind == "row":
            return cls(number(wire, "rows"), None, 1)
        most = number(wire, "max_rows", least=1)
        if most != unit.max_rows:
            raise ModelFormatError("the stored model is of another privacy unit")
        return cls(number(wire, "rows"), number(wire, "entities"), most)


def pooled(estimates: Sequence[tuple[float, float]]) -> float:
    """The inverse-variance weighted mean of (estimate, variance) pairs."""
    weights = [1 / max(variance, SMALLEST_VARIANCE) for _, variance in estimates]
    weighted = (weight * value for weight, (value, _) in zip(weights, estimates, strict=True))
    return math.fsum(weighted) / math.fsum(weights)


def pooled_variance(variances: Sequence[float]) -> float:
    """Of what `pooled` gives."""
    return 1 / math.fsum(1 / max(variance, SMALLEST_VARIANCE) for variance in variances)
