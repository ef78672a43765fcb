"""Tuned numbers of `archetypes`. What each was fitted on stands beside it; where nothing is named,
a number was chosen by judgement, not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    # Of the mixture: as published (GooseDP 2021).
    components: int = 10
    # In squared standard deviations. Fitted to the scores of Chicago taxi trips, with public rows
    # of the same days and of another year: with 1e-6, as published, a value that public rows lack
    # puts an entity in the widest component whatever its other values are.
    regularisation: float = 0.25
    # A mixture of a few columns changes little with more rows, and takes longer.
    most_fitted_rows: int = 100_000
    most_steps: int = 200
    # The kernel takes logarithms of weights, so none may be zero.
    least_weight: float = 1e-12
    # Parts of epsilon of a split release, for archetypes and companies: as published.
    split: tuple[float, float] = (0.1, 0.9)
    # Cells of the histogram of rows per entity: the challenge's `max_rows`.
    row_cells: int = 200
    # Standard errors by which the sum of its last cells must pass zero.
    tail_errors: float = 3.0


TUNING = Tuning()
