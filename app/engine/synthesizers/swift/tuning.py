"""Tuned numbers of `swift`. What each was fitted on stands beside it.

"The bench" is Adult (39,074 rows, 14 columns), the census of Massachusetts (7,634 rows, 23 columns)
and `acs_wide` (170,254 rows, 35 columns) with the tables of 50, 100 and 200 columns made of it:
`python -m bench.synthesizers`, at epsilon 0.1, 1 and 10. The public tables are Adult in two halves
and Chicago taxi trips. Where no table is named, a number was chosen by judgement, not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    # --- the budget's split (see `budget.default_weights`)
    # Scores, and scores that also guard against drift of a public table.
    scores: float = 0.05
    scores_with_public: float = 0.1
    # One-way histograms get a quarter at rho 0.01, and rho to the power -1/4 of that elsewhere;
    # 1.6 times the part of all counts that noise would make up, if that is more. Both rules were
    # fitted to tables of the bench, small ones among them.
    one_way: float = 0.25
    rho: float = 0.01
    power: float = 0.25
    noise_factor: float = 1.6
    least_one_way: float = 0.15
    most_one_way: float = 0.75
    # For the number of rows, from which the split follows. Pure noise is linear in the loss, so
    # that a number of the same use takes more of it.
    rows: float = 0.005
    rows_of_pure: float = 0.02

    # --- choosing twice
    # A second choice is made where a spanning tree holds less than this part of all pairs, which is
    # from 25 columns on: of fewer (Adult, census) it gained nothing, on `acs_wide` at epsilon 1 it
    # takes a fifth off the distance of pairs.
    coverage_of_one_choice: float = 1 / 12
    # And where two choices take no more than this, by the cube of the columns: 100 of them.
    most_work_of_two_choices: int = 10**6
    # What the first choice gets of the loss of pairs, and the second look of that of scores.
    # Fitted to `acs_wide`.
    first_choice: float = 0.5
    second_scores: float = 0.33
    # The tree of a first choice has at most one part in so many of the most cells.
    first_tree: int = 2

    # --- the junction tree
    most_cells: int = 2_000_000
    # Where two choices are worth it a larger tree is too, up to 50 columns: it takes memory by its
    # cells times the columns. Fitted to `acs_wide`.
    most_cells_of_two_choices: int = 5_000_000
    most_cells_times_columns: int = 250_000_000
    # Prices of a cell of the tree, in gains of all pairs over the most cells. All are tried in
    # every run.
    prices: tuple[float, ...] = (0.0, 0.1, 0.3, 1.0, 3.0)
    # Pairs whose trees are compared in a step, those that add most: time grows with them.
    looked_at: int = 12
    # Expected counts, and sums of sizes, are told apart by powers of 2^(1/8).
    levels: int = 8
    # The power of a pair's size in its share of the loss: 4/5 by the bound, which is loosest for
    # large pairs. 3/5 did as well on pairs of the bench and a little better on what a classifier
    # learns. Laplace noise keeps the power of the bound.
    gaussian_power: float = 3 / 5
    laplace_power: float = 2 / 3

    # --- the fit (see `rounds.PairRounds`)
    # Times cells / distance^2. Fitted to the bench; less from a public model, whose gains are
    # lessened by their errors, fitted to the public tables.
    pull: float = 0.35
    pull_to_public: float = 0.1
    # Weaker pulls leave the estimate as it is, and take several times as long.
    least_shrinkage: float = 0.3
    # How much more strongly neighbours among ordered cells are pulled together. Fitted to the
    # bench.
    smoothness: float = 1.5
    # Tighter fits were no nearer to the bench's tables.
    tolerance: float = 0.2
    first_tolerance: float = 1.0
    # Gains below this share of the rows count as much in the pull: they are mostly noise.
    least_dependence: float = 0.05

    # --- a public table
    # The public tree has at most one part in so many of the most cells.
    prior_part: int = 4
    # With less noise in a cell, as a part of all rows, the public tree is smaller in proportion:
    # what pairs then say of the private table is nearer to it than large cliques of public rows.
    # With less than the second, counts say all that public rows could. Fitted to the public tables
    # at epsilon 0.1 to 30.
    noise_of_whole_prior: float = 4e-4
    noise_of_no_prior: float = 5e-5

    # --- weights of pairs
    # A table is mostly used to predict a column of two cells, whose pairs would get least by their
    # size. Fitted to what a classifier learns of Adult.
    target_weight: float = 3.0
    outcome_emphasis: float = 1.5


TUNING = Tuning()
