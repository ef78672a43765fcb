"""How near a synthetic table is to the real one: distances of marginals, and a classifier's AUC.

A table is a mapping of column names to integer arrays of equal length, codes from 0. The measures
look at exact rows, so they are for public tables and for the custodian alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

Codes = Mapping[str, NDArray[np.int64]]
Choice = tuple[str, ...]

SAMPLED_TRIPLES = 100
TRIPLES_SEED = 5
"""With these triples bootstrapped and independent rows of the bench's tables are as far from the
real ones as in the figures that Halftone's aims were set by."""

MOST_COLUMNS_SCORED_WHOLE = 40
SCORED_TRIPLES = 5000
"""The k-marginal score of more columns is over so many triples: 100 have 161,700."""

QUANTILES = 20
MOST_COUNTED_CELLS = 2**23
"""Marginals with more cells are compared by sorting the rows instead."""


@dataclass(frozen=True, slots=True)
class Quality:
    """One synthetic table's measures; `auc` is None where a table has no target."""

    one_way: float
    pairs: float
    triples: float
    k_marginal: float
    auc: float | None


def quality(
    real: Codes,
    made: Codes,
    *,
    numeric: Collection[str] = (),
    held_out: Codes | None = None,
    target: str | None = None,
) -> Quality:
    """All measures of `made` against the rows `real` that it was made from.

    `auc` needs a `target` of two classes and rows that were held out.
    """
    return Quality(
        one_way(real, made),
        pairs(real, made),
        triples(real, made),
        k_marginal(real, made, numeric),
        None if held_out is None or target is None else auc(made, held_out, target),
    )


def one_way(real: Codes, made: Codes) -> float:
    """Mean total variation distance over all columns."""
    return mean_distance(real, made, combinations(real, 1))


def pairs(real: Codes, made: Codes) -> float:
    """Mean total variation distance over all pairs of columns."""
    return mean_distance(real, made, combinations(real, 2))


def triples(real: Codes, made: Codes) -> float:
    """Mean total variation distance over `sampled_triples`."""
    return mean_distance(real, made, sampled_triples(real))


def k_marginal(real: Codes, made: Codes, numeric: Collection[str] = ()) -> float:
    """1000 (1 - mean total variation distance over all triples), as NIST scores tables.

    The `numeric` columns are first cut into 20 quantile bins of the real rows. Of more than 40
    columns the score is over 5,000 triples, always the same ones.
    """
    edges = {name: quantile_edges(real[name]) for name in numeric}
    cut_real, cut_made = (
        {
            name: np.searchsorted(edges[name], table[name], side="right")
            if name in edges
            else table[name]
            for name in real
        }
        for table in (real, made)
    )
    return 1000 * (1 - mean_distance(cut_real, cut_made, scored_triples(real)))


def auc(made: Codes, held_out: Codes, target: str) -> float:
    """Area under the ROC curve on held-out rows of a classifier trained on synthetic ones.

    A table without both classes of `target` (0 and 1) teaches nothing: 0.5.
    """
    features = [name for name in held_out if name != target]
    train, test = (
        np.column_stack([table[name] for name in features]) for table in (made, held_out)
    )
    if len(np.unique(made[target])) < 2:
        return 0.5
    # Imported here: that takes seconds, and most users of this module measure distances alone.
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    with threadpool_limits(1):  # its threads wait by spinning, which a busy machine pays dearly
        classifier = HistGradientBoostingClassifier(random_state=0).fit(train, made[target])
        scores = classifier.predict_proba(test)[:, 1]
    return float(roc_auc_score(held_out[target], scores))


def sampled_triples(names: Iterable[str]) -> list[Choice]:
    """At most 100 triples of columns, the same at every call for the same names in order."""
    return _sampled(names, SAMPLED_TRIPLES)


def scored_triples(names: Collection[str]) -> list[Choice]:
    """All triples of at most 40 columns; of more 5,000, the same at every call."""
    if len(names) <= MOST_COLUMNS_SCORED_WHOLE:
        return list(combinations(names, 3))
    return _sampled(names, SCORED_TRIPLES)


def _sampled(names: Iterable[str], most: int) -> list[Choice]:
    every: list[Choice] = list(combinations(names, 3))
    if len(every) <= most:
        return every
    order = np.random.default_rng(TRIPLES_SEED).permutation(len(every))
    return [every[index] for index in order[:most]]


def quantile_edges(values: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.float64]:
    """Inner edges of at most 20 bins that hold about equally many values, closed on the left."""
    return np.unique(np.quantile(values, np.linspace(0, 1, QUANTILES + 1)))[1:-1]


def mean_distance(real: Codes, made: Codes, choices: Iterable[Choice]) -> float:
    """Mean total variation distance between the marginals on each choice of columns."""
    sizes = {name: int(max(real[name].max(), made[name].max())) + 1 for name in real}
    return float(np.mean([_distance(real, made, choice, sizes) for choice in choices]))


def _distance(real: Codes, made: Codes, choice: Choice, sizes: Mapping[str, int]) -> float:
    """Total variation distance, in [0, 1], between the empirical distributions of a choice."""
    ours, theirs = _flat(real, choice, sizes), _flat(made, choice, sizes)
    cells = int(np.prod([sizes[name] for name in choice], dtype=np.int64))
    if cells > MOST_COUNTED_CELLS:
        found, places = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
        cells, ours, theirs = len(found), places[: len(ours)], places[len(ours) :]
    of_real = np.bincount(ours, minlength=cells) / len(ours)
    of_made = np.bincount(theirs, minlength=cells) / len(theirs)
    return float(np.abs(of_real - of_made).sum() / 2)


def _flat(table: Codes, choice: Choice, sizes: Mapping[str, int]) -> NDArray[np.int64]:
    flat = np.zeros(len(table[choice[0]]), np.int64)
    for name in choice:
        flat = flat * sizes[name] + table[name]
    return flat
