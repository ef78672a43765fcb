"""Scores of a private selection, in integers.

Statement. Let a candidate's score be W d + B, clamped to +-2^62, with d its distance (see
`distances`) and W, B public integers. If one unit moves the distance by at most D, it moves
the score by at most W D.
Proof. W and B are constants of the question, and clamping moves two numbers no further
apart.
So between adjacent datasets no score moves by more than Delta, the largest W D over the
candidates. Scores may rise or fall as a unit is added (they are not monotone), and the noisy
max is calibrated for that.

Weights are rounded to 2^-20 of the heaviest weight, biases to 2^-30 of it: public
roundings of the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.contributions import Histogram
from app.engine.privacy.distances import Distance
from app.engine.privacy.noise import ScaleTooLarge
from app.engine.privacy.queries import Candidate
from app.engine.privacy.sensitivity import GRID, Sensitivity

WEIGHT_STEPS = 2**20
# Steps of the integer scores in one count of the heaviest candidate.
SCORE_UNIT = WEIGHT_STEPS * GRID
# Scores are 64-bit integers to OpenDP, of which the top bits are left free.
_LARGEST_SCORE = 2**62


@dataclass(frozen=True)
class Contender:
    """A candidate's distance, with its weight and bias as integers."""

    distance: Distance
    weight: int
    bias: int

    @property
    def sensitivity(self) -> int:
        return self.weight * self.distance.sensitivity

    def score(self, exact: NDArray[np.int64]) -> int:
        """The integer score. `exact` is the flat histogram in steps of its grid."""
        score = self.weight * self.distance.measured(exact) + self.bias
        return max(-_LARGEST_SCORE, min(_LARGEST_SCORE, score))


def contenders(
    candidates: Sequence[Candidate], histograms: Sequence[Histogram], units: Sequence[Sensitivity]
) -> tuple[Contender, ...]:
    """Candidates brought to integers. Raises `QuestionRefused` for a reference that is no fit."""
    heaviest = max(candidate.weight for candidate in candidates)
    distances = Distance.of_each(candidates, histograms, units)
    return tuple(
        Contender(
            distance,
            round(candidate.weight / heaviest * WEIGHT_STEPS),
            _bias(candidate.bias / heaviest),
        )
        for candidate, distance in zip(candidates, distances, strict=True)
    )


def largest_sensitivity(contenders: Sequence[Contender]) -> int:
    """Delta of the score vector, in steps. Raises `ScaleTooLarge` if it passes 62 bits."""
    delta = max(contender.sensitivity for contender in contenders)
    if delta > _LARGEST_SCORE:
        raise ScaleTooLarge
    return delta


def _bias(in_counts: float) -> int:
    # Scores are clamped far below this; the bound keeps infinities out of `round`.
    bounded = max(-(2.0**40), min(2.0**40, in_counts))
    return round(bounded * SCORE_UNIT)
