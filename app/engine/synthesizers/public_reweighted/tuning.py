"""Tuned numbers of `public_reweighted`: chosen by judgement, not fitted to a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    # Standard errors by which a noisy distance is lessened: the largest of many are large by luck.
    caution: float = 2.0
    # Rows times chosen histograms: a step of the descent then takes a fifth of a second.
    most_terms: int = 2**23


TUNING = Tuning()
