"""Noisy counts of a column, drawn towards what a public table says of it.

A private count is thought to stray from the public one, m rows for a public table of as many rows,
with the variance phi m: phi says how far the tables are apart, and is estimated for each column
from its noisy counts, as (y - m)^2 has the expectation phi m + sigma^2 (empirical Bayes). Where the
noise explains all differences phi is small and the public counts stand; a drifted table gives a
large phi, and the noisy counts stand. So does any count that noise and phi do not explain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.tuning import TUNING
from app.engine.grouping import Grouping
from app.engine.inference.shrinkage import Estimates
from app.engine.public.rows import PublicRows

Floats = NDArray[np.float64]


def shrunk_to_public(
    axes: Axes, noisy: Sequence[Estimates], total: float, rows: PublicRows
) -> tuple[Estimates, ...]:
    """Posterior means and variances, in rows, of each column's counts."""
    return tuple(
        _drawn(each, _shares(rows.codes[name], grouping), total, rows.rows)
        for each, (name, grouping) in zip(noisy, axes.groupings.items(), strict=True)
    )


def _shares(codes: NDArray[np.int64], grouping: Grouping) -> Floats:
    """The column's shares of its cells in the public rows; none is 0."""
    counts = np.bincount(grouping.cell_of(codes), minlength=grouping.cells) + TUNING.unseen
    shares: Floats = counts / counts.sum()
    return shares


def _drawn(noisy: Estimates, shares: Floats, total: float, public_rows: int) -> Estimates:
    expected = total * shares
    surplus = noisy.means - expected
    reach = 2 * math.log(TUNING.chance * max(noisy.means.size, 1))
    spread = total / public_rows
    explained = surplus**2 <= reach * (noisy.variances + spread * expected)
    spread = max(spread, _spread(surplus, noisy.variances, expected, explained))
    prior = spread * expected
    kept = np.where(explained, prior / (prior + noisy.variances), 1.0)
    return Estimates(expected + kept * surplus, kept * noisy.variances)


def _spread(
    surplus: Floats, variances: Floats, expected: Floats, explained: NDArray[np.bool_]
) -> float:
    over = float((surplus**2 - variances)[explained].sum())
    error = float(np.sqrt(2 * (variances[explained] ** 2).sum()))
    return max(over + error, 0.0) / max(float(expected[explained].sum()), 1e-9)
