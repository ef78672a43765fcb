"""Scores of a private selection, in integers.

Statement. Let a candidate's score be W * s * L1(h, r) + B, clamped to +-2^62, with h its
exact histogram in steps of its grid, r a public reference rounded to that grid, s the
public factor that brings grids to one unit, and W, B public integers. If one unit moves h
by a vector of L1 norm at most D, it moves the score by at most W s D.
Proof. The triangle inequality gives |L1(h + v, r) - L1(h, r)| <= L1(v, 0) <= D, the other
factors are constants of the question, and clamping moves two numbers no further apart.
So Delta is the largest W s D over the candidates, in either direction: scores are not
monotone in the unit, and the noisy max is calibrated for that.

Weights are rounded to 2^-20 of the heaviest weight, biases to 2^-30 of it: public
roundings of the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.contributions import Histogram
from app.engine.privacy.noise import ScaleTooLarge
from app.engine.privacy.queries import Candidate, QuestionRefused
from app.engine.privacy.sensitivity import GRID, Sensitivity

WEIGHT_STEPS = 2**20
SCORE_UNIT = WEIGHT_STEPS * GRID
"""Steps of the integer scores in one count of the heaviest candidate."""
LARGEST_REFERENCE = 2.0**40
_LARGEST_SCORE = 2**62


@dataclass(frozen=True)
class Contender:
    """A candidate with its weight and bias as integers, and its histogram's sensitivity."""

    histogram: Histogram
    reference: tuple[NDArray[np.float64], ...]
    weight: int
    bias: int
    unit: Sensitivity

    @property
    def sensitivity(self) -> int:
        return self._factor * self.unit.l1

    @property
    def _factor(self) -> int:
        return self.weight * (GRID // self.unit.grid)

    def score(self, exact: NDArray[np.int64]) -> int:
        """The integer score. `exact` is the flat histogram in steps of its grid."""
        reference = reduce(np.multiply.outer, self.reference).reshape(-1) * self.unit.grid
        distance = int(np.abs(exact - np.rint(reference).astype(np.int64)).sum())
        score = self._factor * distance + self.bias
        return max(-_LARGEST_SCORE, min(_LARGEST_SCORE, score))


def contenders(
    candidates: Sequence[Candidate], histograms: Sequence[Histogram], units: Sequence[Sensitivity]
) -> tuple[Contender, ...]:
    """Candidates brought to integers. Raises `QuestionRefused` for a reference that is no fit."""
    heaviest = max(candidate.weight for candidate in candidates)
    return tuple(
        Contender(
            histogram,
            checked_reference(candidate.reference, histogram.shape),
            round(candidate.weight / heaviest * WEIGHT_STEPS),
            _bias(candidate.bias / heaviest),
            unit,
        )
        for candidate, histogram, unit in zip(candidates, histograms, units, strict=True)
    )


def largest_sensitivity(contenders: Sequence[Contender]) -> int:
    """Delta of the score vector, in steps. Raises `ScaleTooLarge` if it passes 62 bits."""
    delta = max(contender.sensitivity for contender in contenders)
    if delta > _LARGEST_SCORE:
        raise ScaleTooLarge
    return delta


def _bias(in_counts: float) -> int:
    bounded = max(-(2.0**40), min(2.0**40, in_counts))
    return round(bounded * SCORE_UNIT)


def checked_reference(
    reference: Sequence[NDArray[np.float64]], shape: tuple[int, ...]
) -> tuple[NDArray[np.float64], ...]:
    """The reference as float64 factors whose outer product has `shape`.

    Raises `QuestionRefused` unless it is one array of that shape or one vector for each
    column, finite, and of a total size that integers hold.
    """
    factors = tuple(np.asarray(factor) for factor in reference)
    if any(factor.dtype.kind not in "fiu" for factor in factors):
        raise QuestionRefused("a reference holds numbers")
    factors = tuple(factor.astype(np.float64) for factor in factors)
    shapes = tuple(factor.shape for factor in factors)
    if shapes != (shape,) and (not shape or shapes != tuple((cells,) for cells in shape)):
        raise QuestionRefused(
            "a reference is one array of the count's shape, or one vector for each column"
        )
    total = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        for factor in factors:
            total *= float(np.abs(factor).sum())
    if not total <= LARGEST_REFERENCE or not all(np.isfinite(each).all() for each in factors):
        raise QuestionRefused("a reference is finite and sums to at most 2^40 counts")
    return factors
