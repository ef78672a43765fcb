"""Can a classifier tell real from synthetic rows? The propensity score's mean squared error.

Snoke, Raab, Nowok, Dibben and Slavkovic (2018), "General and specific utility measures for
synthetic data", J. R. Stat. Soc. A 181: with p_i the estimated probability that row i is
synthetic and c the share of synthetic rows, pMSE = sum (p_i - c)^2 / N. A tree overfits, so the
value by chance is estimated by permuting which rows are synthetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from app.engine.schema import Column
from app.reports.evaluation.drawn import SEED, DrawnRows, Floats, NotMade, generator
from app.reports.evaluation.figures import Propensity, TellingColumn, Used

# Of thousands of rows, by-chance values differ little from each other.
PERMUTATIONS = 5
# Leaves of fewer rows tell of single rows, and not of distributions.
LEAST_LEAF = 20
# A tree of more leaves takes long and says little more.
_LEAVES = 500
_MOST_COLUMNS = 10


def propensity(
    real: DrawnRows, synthetic: DrawnRows, columns: Sequence[Column], check: Callable[[], None]
) -> Propensity:
    """`check` is called before each tree and may raise."""
    if min(real.rows, synthetic.rows) < LEAST_LEAF:
        raise NotMade(f"propensity: a table has fewer than {LEAST_LEAF} rows")
    rows = np.concatenate([real.matrix(columns), synthetic.matrix(columns)])
    is_synthetic = np.repeat([False, True], [real.rows, synthetic.rows])
    check()
    pmse, importances = _fitted(rows, is_synthetic)
    by_chance = []
    rng = generator()
    groups = _groups(real, synthetic)
    for _ in range(PERMUTATIONS):
        check()
        by_chance.append(_fitted(rows, _permuted(is_synthetic, groups, rng))[0])
    null_mean = float(np.mean(by_chance))
    order = np.argsort(-importances, kind="stable")[:_MOST_COLUMNS]
    return Propensity(
        used=Used(real=real.rows, synthetic=synthetic.rows),
        pmse=pmse,
        null_mean=null_mean,
        permutations=PERMUTATIONS,
        permuted="rows" if groups is None else "entities",
        ratio=pmse / null_mean if null_mean else None,
        columns=[
            TellingColumn(column=columns[place].name, importance=float(importances[place]))
            for place in order
            if importances[place] > 0
        ],
    )


def _fitted(rows: Floats, is_synthetic: NDArray[np.bool_]) -> tuple[float, Floats]:
    """The pMSE of a tree, and the importance of each column."""
    # Imported where it is used, so that a worker starts at once.
    from sklearn.tree import DecisionTreeClassifier

    share = float(is_synthetic.mean())
    if share in (0.0, 1.0):
        return 0.0, np.zeros(rows.shape[1])
    tree = DecisionTreeClassifier(
        min_samples_leaf=LEAST_LEAF, max_leaf_nodes=_LEAVES, random_state=SEED
    ).fit(_single(rows), is_synthetic)
    scores = tree.predict_proba(_single(rows))[:, 1]
    return float(np.mean((scores - share) ** 2)), np.asarray(tree.feature_importances_)


def _single(rows: Floats) -> NDArray[np.float32]:
    """In the precision of the trees, within what it holds."""
    limit = float(np.finfo(np.float32).max)
    return np.clip(rows, -limit, limit).astype(np.float32)


def _groups(real: DrawnRows, synthetic: DrawnRows) -> NDArray[np.int64] | None:
    """The number of each row's entity over both tables; None on a row unit."""
    if real.owner is None or synthetic.owner is None:
        return None
    after = int(real.owner.max(initial=-1)) + 1
    _, number = np.unique(
        np.concatenate([real.owner, synthetic.owner + after]), return_inverse=True
    )
    return number.reshape(-1).astype(np.int64)


def _permuted(
    is_synthetic: NDArray[np.bool_], groups: NDArray[np.int64] | None, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Rows of one entity depend on each other, so they keep one label."""
    if groups is None:
        return rng.permutation(is_synthetic)
    label = np.zeros(int(groups.max()) + 1, dtype=np.bool_)
    label[groups] = is_synthetic
    permuted: NDArray[np.bool_] = rng.permutation(label)[groups]
    return permuted
