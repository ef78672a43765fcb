"""Scores of a private quantile, in integers.

Statement. With N bounded numbers x and Q = q S for S = `QUANTILE_STEPS`, the score of a public
point v is -max(S #{x < v} - Q N, Q N - S #{x <= v}, 0). Between adjacent datasets, which differ
by one unit of at most m numbers, added or removed, no score moves by more than
m max(Q, S - Q). Numbers that do not count because of what they are (null, and with
`regular_only` special values and `other`) are not among a unit's m.
Proof. One more number raises Q N by Q, and each of S #{x < v} and S #{x <= v} by S or not
at all. So both differences move by at most max(Q, S - Q), and the largest of three numbers
moves by no more than the one of them that moves most. m numbers move it at most m times
as far.

Scores move in either direction, and the noisy max is calibrated for that: on rho it is the
exponential mechanism, at a cost of epsilon^2 / 8 (Cesar and Rogers 2021). q is rounded to
2^-20, a public rounding. N is not public: it enters the scores, and is covered by the proof.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.bounding import Bounded
from app.engine.privacy.contributions import Codes, ListedTuples, counted_units
from app.engine.privacy.declared import RowNumber
from app.engine.privacy.queries import Quantile
from app.engine.privacy.source import CodeSource

# Steps of the integer scores in one number.
QUANTILE_STEPS = 2**20


def quantile_sensitivity(q: float, most: int) -> int:
    """How far a score moves, in steps, if a unit has at most `most` numbers."""
    steps = round(q * QUANTILE_STEPS)
    return max(steps, QUANTILE_STEPS - steps) * most


def quantile_scores(
    source: CodeSource, bounded: Bounded, query: Quantile, listed: ListedTuples | None
) -> NDArray[np.int64]:
    """The score of each point of the grid, int64. `listed` are the tuples, if it asks for them."""
    grid = np.asarray(query.grid, dtype=np.float64)
    not_above = np.zeros(len(grid) + 1, dtype=np.int64)
    below = np.zeros(len(grid) + 1, dtype=np.int64)
    for codes, starts in counted_units(source, bounded, _columns(query)):
        numbers = _numbers(source, query, listed, codes, starts)
        not_above += np.bincount(np.searchsorted(grid, numbers, "left"), minlength=len(below))
        below += np.bincount(np.searchsorted(grid, numbers, "right"), minlength=len(below))
    return scores(np.cumsum(below)[:-1], np.cumsum(not_above)[:-1], int(below.sum()), query.q)


def scores(
    below: NDArray[np.int64], not_above: NDArray[np.int64], total: int, q: float
) -> NDArray[np.int64]:
    """Scores from how many of `total` numbers lie below each point, and how many not above."""
    target = round(q * QUANTILE_STEPS) * total
    too_low = np.maximum(QUANTILE_STEPS * below - target, target - QUANTILE_STEPS * not_above)
    return -np.maximum(too_low, 0)


def _columns(query: Quantile) -> tuple[str, ...]:
    if isinstance(query.of, RowNumber):
        return ()
    return (query.of,) if isinstance(query.of, str) else query.of.tuples.columns


def _numbers(
    source: CodeSource,
    query: Quantile,
    listed: ListedTuples | None,
    codes: Codes,
    starts: NDArray[np.int64],
) -> NDArray[Any]:
    if isinstance(query.of, RowNumber):
        return np.minimum(np.diff(starts), query.of.most)
    if listed is not None:
        return listed.held(codes, starts)
    assert isinstance(query.of, str)
    column = source.schema.column(query.of)
    places, null = column.places(codes[query.of])
    return places[codes[query.of] < column.regular if query.regular_only else ~null]
