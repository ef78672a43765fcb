"""Tuned numbers of `linked_histograms`. What each was fitted on stands beside it; where nothing is
named, a number was chosen by judgement, not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    # --- as published (Jim King, Temporal Map Challenge, Sprint 3)
    # The most cells of an entity that count, below epsilon 5 and from there on.
    few_samples: int = 10
    many_samples: int = 30
    # Units of 1e-12. The rho is that whose epsilon at delta 1e-5 is 5.
    epsilon_of_many: int = 5 * 10**12
    rho_of_many: int = 550_973_474_939
    # The last cell of the rows per entity is this many or more.
    most_rows: int = 200

    # --- means of linked columns
    # The part of the budget for noisy ones.
    means_share: float = 0.1
    # Counts within so many standard errors of 0 are taken to be noise.
    noise_errors: float = 2.0

    # --- post-processing
    # Entities of average rows that each public cell has beside those seen.
    pooled_counts: float = 3.0
    # Where no cell is discovered, rows are drawn from so many of all.
    cells_for_none: int = 10_000
    # Without a prior, the n Haar coefficients of a level have the universal threshold of so many
    # times n.
    haar_margin: int = 4


TUNING = Tuning()
