"""Tuned numbers of `aggregate_seeded`. What each was fitted on stands beside it; where nothing is
named, a number was chosen by judgement, not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    # --- the budget's split
    # Percentiles and the number of rows: defaults of the published program. More for entities,
    # since the noise covers all rows that one may have.
    percentiles: float = 0.01
    size: float = 0.005
    size_of_entities: float = 0.06

    # --- combinations
    # Of one length. Beyond, parts with the smallest counts are left out: time and memory grow with
    # the candidates.
    most_candidates: int = 100_000
    grid_points: int = 2000
    # The eta of pairs, and how many times as large it is for each length more. Fitted to Adult with
    # open places filled: nearer than all published modes, and quicker.
    graded_eta: float = 0.01
    graded_factor: int = 10

    # --- rows
    # Most rows that are made for each requested one, where some are dropped; and how many of them
    # before items may be used any number of times, since the last ones left rarely fit together.
    tries: int = 8
    frugal_tries: int = 4
    # A turn makes at least one in so many of the requested rows.
    turns_per_try: int = 16
    # Log of observed over expected counts: a pair that was not kept is rare, not impossible.
    least_log: float = -12.0


TUNING = Tuning()
