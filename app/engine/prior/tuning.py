"""Tuned numbers of public models. What each was fitted on stands beside it.

"The public tables of the bench" are Adult cut in two halves, one of them public, as it is and with
drift put into it, and Chicago taxi trips beside other trips of the same days and of 2019
(`python -m bench.synthesizers`, `python -m bench.challenge`). Where no table is named, a number was
chosen by judgement, not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    # --- the tree of public pairs
    # Prices of a cell of the tree, in gains of all pairs over the most cells. Several are tried in
    # every run, and the best sum wins, so the values matter little.
    prices: tuple[float, ...] = (0.0, 0.3, 1.0, 3.0)
    # Pairs compared for a place in the tree, and fewer where there are thousands of pairs: so many
    # looks in all keep the time of 200 columns within `_SECONDS_PER_PLACE`.
    looked_at: int = 12
    looked_at_in_all: int = 24_000
    # Public rows that are enough to see how often entities repeat a cell, and which pairs depend.
    rows_for_amounts: int = 2**15
    rows_for_pairs: int = 2**17

    # --- the fit to public rows
    # Rows that the pairwise model is worth beside the public rows of a separator's cell. The value
    # that predicts left-out entities best is chosen in every run.
    pairwise_rows: tuple[float, ...] = tuple(4.0**power for power in range(-2, 13))
    # Times cells / distance^2, as the shrinkage of `swift` is; see `swift.rounds`.
    pull: float = 0.5
    # A distance from independence below this share of the rows is mostly sampling.
    least_dependence: float = 0.05
    # Weaker pulls leave the fit as it is and take several times as long.
    least_shrinkage: float = 0.02
    # Of the fit to public pairs, and of the model with the noisy columns.
    public_tolerance: float = 0.2
    tolerance: float = 0.1

    # --- distances from it
    # Cells that an entity counts in, of those that its rows are in: the norm that
    # `public_reweighted` bounds entities to.
    distinct_cells: int = 7
    # How the loss is split between the number of counts and the distances, and how many pairs are
    # asked for the first, which is a sum of whole histograms and so needs little.
    scale_split: tuple[float, float] = (0.1, 0.9)
    pairs_for_scale: int = 3
    # Private entities add at most so many times more or less to counts than public ones.
    largest_scale: float = 16.0
    # A pair of the model is compared with independence if it is further from it than this share of
    # the rows: below, one distance says both.
    least_model_dependence: float = 0.02

    # --- decisions
    # Share of the budget of selections that `mst` and `aim` spend on comparing.
    drift_share: float = 0.4
    # Standard errors by which a noisy distance is lessened: the largest of many are large by luck.
    caution: float = 2.0
    # Entities further from the truth than this part of independence's distance are not kept.
    far_entities: float = 0.5


TUNING = Tuning()
