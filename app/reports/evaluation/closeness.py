"""Are real rows in the synthetic table? Exact matches, and distances to the closest record.

How many matches mean something depends on the table: where few values make a row, all rows match.
So the real rows are split into halves, and what the synthetic rows have in common with the first
half stands beside what the second half has, which cannot have been copied from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.schema import Column
from app.engine.schema.scale import Categories
from app.reports.evaluation.drawn import (
    DrawnRows,
    WholeTable,
    all_owners,
    first_half,
    generator,
    numbers,
)
from app.reports.evaluation.figures import (
    ClosestQuantile,
    ClosestRecords,
    Compared,
    ExactMatches,
    Matches,
)

MOST_LOOKED_UP = 1000
MOST_AMONG = 10_000
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5)
# Rows that are looked up at a time: the distances to all others are in memory.
_AT_ONCE = 50

Keys = NDArray[np.uint64]
Singles = NDArray[np.float32]


def exact_matches(
    real: WholeTable, synthetic: WholeTable, columns: Sequence[str], *, entities: bool
) -> list[ExactMatches]:
    """Of all rows and, with `entities`, of all entities; 8 bytes of memory for each row."""
    rows = _row_keys(real, columns), _row_keys(synthetic, columns)
    if not entities:
        return [_compared("rows", *rows, first_half(len(rows[0]), None))]
    owners = all_owners(real), all_owners(synthetic)
    whole = _entity_keys(rows[0], owners[0]), _entity_keys(rows[1], owners[1])
    # The same halves for both: the rows of one entity are never split.
    half_of_entities = first_half(len(whole[0]), None)
    return [
        _compared("rows", *rows, half_of_entities[owners[0]]),
        _compared("entities", *whole, half_of_entities),
    ]


def _compared(
    of: Compared, real: Keys, synthetic: Keys, is_first: NDArray[np.bool_]
) -> ExactMatches:
    first, second = real[is_first], real[~is_first]
    return ExactMatches(
        of=of,
        synthetic=_matches(synthetic, first),
        held_out=_matches(second, first),
        synthetic_in_all=_matches(synthetic, real),
    )


def _matches(records: Keys, among: Keys) -> Matches:
    known, times = np.unique(among, return_counts=True)
    matching = unique = 0
    if len(known):
        places = np.minimum(np.searchsorted(known, records), len(known) - 1)
        hit = known[places] == records
        matching, unique = int(hit.sum()), int((hit & (times[places] == 1)).sum())
    return Matches(records=len(records), among=len(among), matching=matching, unique=unique)


def _row_keys(table: WholeTable, columns: Sequence[str]) -> Keys:
    """A number for each row, equal for equal rows; different rows share one with a chance of about
    their number of pairs over 2^64."""
    parts = [np.zeros(0, dtype=np.uint64)]
    for chunk in table.chunks(columns):
        keys = np.zeros(len(chunk[columns[0]]), dtype=np.uint64)
        for name in columns:
            keys = _mixed(keys + chunk[name].astype(np.uint64))
        parts.append(keys)
    return np.concatenate(parts)


def _mixed(keys: Keys) -> Keys:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), a permutation of 64-bit numbers."""
    keys = keys + np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def _entity_keys(rows: Keys, owner: NDArray[np.int64]) -> Keys:
    """A sum of its rows' numbers modulo 2^64: equal for the same rows in any order."""
    keys = np.zeros(int(owner.max(initial=-1)) + 1, dtype=np.uint64)
    np.add.at(keys, owner, _mixed(rows))
    return keys


def closest_records(
    real: DrawnRows, synthetic: DrawnRows, columns: Sequence[Column], check: Callable[[], None]
) -> ClosestRecords | None:
    """`check` is called now and then and may raise. None where a part has no rows."""
    first = first_half(real.rows, real.owner)
    among = _some(real.at(first), MOST_AMONG)
    held_out = _some(real.at(~first), MOST_LOOKED_UP)
    made = _some(synthetic, MOST_LOOKED_UP)
    if not min(among.rows, held_out.rows, made.rows):
        return None
    scales = [_Scale(column, real.codes[column.name]) for column in columns]
    known = [scale.of(among.codes[scale.name]) for scale in scales]
    found = []
    for looked_up in (made, held_out):
        places = [scale.of(looked_up.codes[scale.name]) for scale in scales]
        nearest = [
            _nearest(scales, [each[part] for each in places], known)
            for part in _parts(looked_up.rows, check)
        ]
        found.append(np.concatenate(nearest))
    quantiles = [np.quantile(each, QUANTILES, method="inverted_cdf") for each in found]
    return ClosestRecords(
        synthetic=made.rows,
        held_out=held_out.rows,
        among=among.rows,
        quantiles=[
            ClosestQuantile(q=q, synthetic=float(ours), held_out=float(theirs))
            for q, ours, theirs in zip(QUANTILES, *quantiles, strict=True)
        ],
    )


def _parts(rows: int, check: Callable[[], None]) -> Iterator[slice]:
    for first in range(0, rows, _AT_ONCE):
        check()
        yield slice(first, first + _AT_ONCE)


def _some(table: DrawnRows, most: int) -> DrawnRows:
    if table.rows <= most:
        return table
    return table.at(np.sort(generator().choice(table.rows, most, replace=False)))


class _Scale:
    """How far two values of a column are apart: by rank among the real rows, or 0 and 1."""

    def __init__(self, column: Column, real: NDArray[Any]) -> None:
        self._column = column
        self.name = column.name
        self.by_rank = column.has_numbers and not isinstance(column.scale, Categories)
        self._sorted = np.sort(self._numbers(real)) if self.by_rank else None

    def of(self, codes: NDArray[Any]) -> Singles:
        """The rank as a share of the real rows, NaN for null; or the code."""
        if self._sorted is None:
            return codes.astype(np.float32)
        values = numbers(self._column, codes)
        # The middle of the ranks of equal values.
        ranks = np.searchsorted(self._sorted, values, "left") + np.searchsorted(
            self._sorted, values, "right"
        )
        shares = ranks / (2 * max(len(self._sorted), 1))
        return np.where(np.isnan(values), np.nan, shares).astype(np.float32)

    def _numbers(self, codes: NDArray[Any]) -> NDArray[np.float64]:
        values = numbers(self._column, codes)
        return values[~np.isnan(values)]


def _nearest(
    scales: Sequence[_Scale], made: Sequence[Singles], known: Sequence[Singles]
) -> Singles:
    """The distance of each row to the closest known one: the mean over the columns."""
    total = np.zeros((len(made[0]), len(known[0])), dtype=np.float32)
    for scale, ours, theirs in zip(scales, made, known, strict=True):
        if not scale.by_rank:
            total += ours[:, None] != theirs[None, :]
            continue
        apart = np.abs(ours[:, None] - theirs[None, :])
        null = np.isnan(ours)[:, None], np.isnan(theirs)[None, :]
        if null[0].any() or null[1].any():
            # Null is as far from every number as two values of a list are.
            apart = np.where(null[0] & null[1], 0, np.where(null[0] | null[1], 1, apart))
        total += apart
    nearest: Singles = total.min(axis=1) / np.float32(len(scales))
    return nearest
