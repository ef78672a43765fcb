"""Tuned numbers of the steps on single columns. What each was fitted on stands beside it; where
nothing is named, a number was chosen by judgement, not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    # --- defaults of forms
    # Shares of the budget for private bins and for values. More for values: one that is not found
    # is lost, a coarse bin is not.
    bins_share: float = 0.1
    values_share: float = 0.2
    # Sub-bins of a private bin. Fitted to `bench.within_bins` (1, 8 and 16 were compared).
    within_bins: int = 8

    # --- values that the dictionary leaves open
    # The part of a guarantee's delta for finding values.
    delta_for_values: float = 0.1
    # The most values of one unit that count.
    values_of_unit: int = 4

    # --- private bins
    # The most cells into which one count cuts another's cell on the way to single codes, and the
    # most cells of that kind in one count: a bound of time and memory, since cells cost no budget.
    counted_cells: int = 256
    refined_cells: int = 8192
    # The chance that noise alone makes any code of a column appear frequent, and the most frequent
    # codes that are used.
    false_frequent: float = 1e-3
    frequent_codes: int = 64
    # Points of a quantile's grid: even ones, and ones at rising distances from either end. No fewer
    # points than cells of a count, so that a grid holds every code of the median's cell.
    even_points: int = 128
    rising_points: int = 64
    # The outermost cells are cut further at this many distances, each twice the one before.
    far_cuts: int = 16
    # A bin this many times as wide as its neighbour is cut unevenly: an equal sub-bin of it would
    # be wider than the neighbour too.
    far_wider: int = 16
    # What the sub-bins of a column get of a loss, beside 1 for the cells of each column.
    sub_bins_weight: float = 0.5

    # --- the number of rows and entities
    # Parts of a loss for the rows and the entities, beside histograms that count all rows. Under
    # zCDP 4 % makes the noise of the rows 4.9 times that of one histogram measured with the rest,
    # and costs the histogram 2 %. Pure noise is linear in the loss, so that the same 4 % would make
    # it 24 times; with a tenth it is 9 times, for 11 %.
    size_of_rows: tuple[float, float] = (0.04, 0.02)
    size_of_rows_pure: tuple[float, float] = (0.1, 0.05)
    # Histograms that do not count all rows say nothing of their number, so it gets more.
    size_of_others: tuple[float, float] = (0.15, 0.02)
    size_of_others_pure: tuple[float, float] = (0.2, 0.05)
    # Standard errors that an answer is moved at most by what else is known, which may be biased.
    most_pull: float = 2.0

    # --- estimates
    # Ordered cells under this are left as they were measured: little is to be gained.
    fewest_smoothed: int = 20
    # Rows that each cell of a public column has beside those seen (Jeffreys' prior).
    unseen: float = 0.5
    # Noise alone takes one of a column's cells out of reach in one case of so many.
    chance: float = 8.0


TUNING = Tuning()
