"""Tuned numbers of what is measured of entities. What each was fitted on stands beside it; where
nothing is named, a number was chosen by judgement, not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    # --- the budget's split: entities, entities by rows, rows, distinct values, spread
    entities: float = 0.08
    by_rows: float = 0.12
    rows: float = 0.1
    distinct: float = 0.4
    spread: float = 0.3

    # --- cells of the histograms
    # Cells are so many that each has this many standard errors of entities in the mean.
    errors_per_cell: float = 2.0
    most_groups: int = 6
    most_cells: int = 64
    # Widths of cells of distinct values, the narrowest first that needs few enough cells.
    ratios: tuple[float, ...] = (1.2, 1.35, 1.6, 2.0, 3.0, 4.0, 8.0)
    # Edges of deviations, as parts of the mean rows per value.
    parts_of_ratio: tuple[float, ...] = (0.15, 0.35, 0.6, 0.9, 1.3, 2.0, 3.0, 5.0)
    # Rows per entity: single numbers up to 8, then cells that grow by a quarter.
    single_rows: int = 8
    growth_of_rows: float = 1.25

    # --- columns looked at, if a form names none
    usual_columns: int = 4
    fewest_cells: int = 3

    # --- the contribution rule (see `contribution_choice`)
    # How far the rows that a rule drops are from the others, and how the error of a rule rises with
    # its noise. Fitted to tables of the bench with entities.
    unlike: float = 0.1
    noise: float = 1.5
    # Entities drawn to judge rules by, and marginals that share the loss, for each column.
    drawn: int = 2000
    marginals_per_column: int = 2

    # --- synthetic entities
    # Standard deviation of the logarithm that is added to a size before entities are put in order
    # of their values: larger entities have more, but not strictly.
    jitter: float = 0.4
    # Of a column with fewer than this part of the values that random rows would have, entities
    # start with one.
    few: float = 0.5


TUNING = Tuning()
