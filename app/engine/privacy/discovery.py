"""Finding the combinations of cells that many units have, without listing the domain.

Statement. Each unit enters at most m distinct keys. Every key that some unit entered gets
its count plus discrete Gaussian noise Z, and is published with that noisy count if it is at
least t, where 1 - (1 - P[Z >= t - 1])^m <= delta. For adjacent datasets, which differ by one
unit added or removed, this is delta-approximately rho-zCDP (Bun and Steinke 2016, Definition
8.1), with rho the cost of the noise for an L2 distance of sqrt(m).
Proof. Couple the draws of all other units, and call larger the dataset that has the unit. On
the keys that were entered in both datasets the counts differ by at most 1 in at most m places:
the Gaussian mechanism, followed by post-processing. At most m keys were entered in the larger
dataset alone. Each has count 1, from this unit only, and stays below t with probability
1 - P[Z >= t - 1], independently. So with probability at least 1 - delta none of them is
published. Given that, what is published is the same Gaussian mechanism.

The tail is that of a noise of at least t - 1, because a key of one unit has the count 1, and
it is inclusive, because a noisy count of exactly t is published. OpenDP 0.16's threshold
constructors are off by one here on integers, so thresholds are computed in this module.

Keys come out in rising order, which says nothing about the order of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy.bounding import Bounded
from app.engine.privacy.contributions import counted_codes
from app.engine.privacy.source import CodeSource
from app.engine.privacy.units import EntityCells, blocks_of_units, unit_of_rows

# Probabilities are raised by more than the rounding of a sum of up to a million doubles.
_AGAINST_US = 1 + 1e-9
# Up to this scale the tail is summed term by term. Beyond it an integral bounds the sum from
# above, and is at most 0.5 % too large.
_SUMMED = 2000
# exp(-37^2 / 2) is below 1e-290: what lies more than 37 scales out is covered by the 1e-290
# that is added to every tail.
_REACH = 37.0


def gaussian_tail(scale: float, least: int) -> float:
    """P[Z >= least] of the discrete Gaussian, for `least` of at least 1, rounded up."""
    if least / scale > _REACH:
        return 1e-290
    first = math.exp(-((least / scale) ** 2) / 2)
    if scale > _SUMMED:
        # Terms fall from `least` on, so the sum is at most its first term and the integral;
        # the sum over all integers is at least scale * sqrt(2 pi) (Poisson summation).
        beyond = scale * math.sqrt(math.pi / 2) * math.erfc(least / scale / math.sqrt(2))
        return (first + beyond) / (scale * math.sqrt(2 * math.pi)) * _AGAINST_US
    support = np.arange(1, math.ceil(_REACH * scale) + 2, dtype=np.float64)
    weights = np.exp(-((support / scale) ** 2) / 2)
    tail = float(weights[least - 1 :].sum()) / (1 + 2 * float(weights.sum()))
    return tail * _AGAINST_US + 1e-290


@lru_cache(maxsize=256)
def key_threshold(scale: float, keys: int, delta: int) -> int:
    """The smallest t at which a unit's `keys` own keys stay hidden but with `delta` (1e-18)."""

    # The chance of showing a key falls as t grows, so that bisection finds the smallest t.
    def hides(threshold: int) -> bool:
        tail = min(gaussian_tail(scale, threshold - 1), 1.0)
        if tail == 1.0:
            return False
        return -math.expm1(keys * math.log1p(-tail)) * _AGAINST_US * 10**18 <= delta

    high = 2
    while not hides(high):
        high *= 2
    low = high // 2 + 1 if high > 2 else 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if hides(middle) else (middle + 1, high)
    return high


def exact_keys(
    source: CodeSource,
    bounded: Bounded,
    columns: Sequence[str],
    groupings: Sequence[Grouping],
    limit: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every key that some unit enters, and how many do.

    A key that some unit has but none entered is left out. Noise on its count of 0 could publish
    it, and then a unit could add more keys than the m that the proof allows for.

    Keys: int64, shape (keys, columns), in rising order; counts: int64, shape (keys,).
    """
    codes, entity = counted_codes(source, bounded, columns)
    cells = [
        grouping.cell_of(codes[name]) for name, grouping in zip(columns, groupings, strict=True)
    ]
    number = _numbered(cells, groupings)
    _, first = np.unique(number, return_index=True)
    keys = np.stack([column[first] for column in cells], axis=1)
    counts = entered_counts(number, entity, bounded, len(keys), limit)
    entered = counts > 0
    return keys[entered], counts[entered]


def entered_counts(
    number: NDArray[np.int64],
    entity: NDArray[np.int64] | None,
    bounded: Bounded,
    keys: int,
    limit: int,
) -> NDArray[np.int64]:
    """How many units enter each of `keys` keys, at most `limit` each, drawn at random.

    `number` has each row's key, in the order of `counted_codes`.
    """
    counts = np.zeros(keys, dtype=np.int64)
    if entity is None:
        return counts + np.bincount(number, minlength=keys)
    assert bounded.starts is not None
    for begin, end in blocks_of_units(bounded.starts):
        starts = bounded.starts[begin : end + 1]
        pairs = EntityCells.of(unit_of_rows(starts), number[starts[0] : starts[-1]], max(keys, 1))
        counts += np.bincount(pairs.drawn(limit), minlength=keys)
    return counts


def _numbered(
    cells: Sequence[NDArray[np.int64]], groupings: Sequence[Grouping]
) -> NDArray[np.int64]:
    """Rows by the rank of their key among those that occur, in rising order of the keys."""
    number = np.zeros(len(cells[0]), dtype=np.int64)
    for column, grouping in zip(cells, groupings, strict=True):
        _, number = np.unique(number * grouping.cells + column, return_inverse=True)
    return number
