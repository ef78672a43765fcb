"""Tuned numbers of `aim`. What each was fitted on stands beside it.

"The bench" is Adult (39,074 rows, 14 columns) and the census of Massachusetts (7,634 rows, 23
columns): `python -m bench.synthesizers`, at epsilon 0.1, 1 and 10. Where no table is named, a
number was chosen by judgement, not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    # --- the budget's split
    # Bounds of errors, and selections as a part of what then is left for the rounds.
    bounds: float = 0.04
    selection: float = 0.1
    # Noise, in rows, of a one-way cell measured with a quarter of the budget, at which a quarter is
    # best for the columns; what each tenfold of it adds, or a tenth takes; and the ends. Fitted to
    # the bench.
    usual_error: float = 50.0
    one_way: float = 0.25
    more_for_ten_times: float = 0.3
    less_for_a_tenth: float = 0.18
    least_one_way: float = 0.15
    most_one_way: float = 0.55

    # --- the rounds
    # Winners of a column were the noise never lowered: 16 in the paper (McKenna et al. 2022), where
    # winners are measured one by one. At most 60, or one for each column.
    winners_of_column: int = 3
    enough_winners: int = 60
    # Of the junction tree's most cells, from the first round on.
    least_tree: float = 0.3

    # --- the fit
    # A weaker pull to independent columns than the default of `estimation.fit`, 1.5.
    shrinkage: float = 0.7
    # Neighbours among ordered cells: takes 3 % off the distance of triples of Adult at epsilon 1.
    smoothness: float = 2.0
    # Fits between rounds need not converge as far as the last.
    round_tolerance: float = 0.1
    tolerance: float = 0.03

    # --- a public table
    # The public tree has at most one part in so many of the most cells: less than the first round
    # leaves.
    prior_part: int = 4

    # --- weights of the workload
    target_weight: float = 4.0


TUNING = Tuning()
