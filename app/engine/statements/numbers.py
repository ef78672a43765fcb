"""Means, quantiles and correlations of a sample, and where those of the private table lie.

A noisy histogram says how many rows lie in each cell, up to its noise, and nothing of where in a
bin they lie. So each interval has two parts: noise, by tests whose statistic is a sum over cells
and so has a known variance; and the range of each bin, in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.schema import Column
from app.engine.statements.distances import DEVIATIONS
from app.engine.statements.noisy import NoisyTable
from app.engine.statements.statement import Interval

Floats = NDArray[np.float64]

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_NUMERIC = ("integer", "number", "year")


def is_numeric(column: Column) -> bool:
    return column.type in _NUMERIC


@dataclass(frozen=True, slots=True)
class CellRanges:
    """The least and the largest number in each cell, shape (cells,); NaN for the cell of null."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, column: Column, grouping: Grouping) -> CellRanges | None:
        """None if numbers and nulls share a cell."""
        starts = np.asarray(grouping.edges[:-1], dtype=np.int64)
        if column.ranged:
            # Codes of a range rise with their numbers.
            low = column.places(starts)[0].astype(np.float64)
            high = column.places(np.asarray(grouping.edges[1:], dtype=np.int64) - 1)[0]
        else:
            places = column.places(np.arange(column.regular))[0].astype(np.float64)
            low = np.minimum.reduceat(places, starts) if len(starts) else places
            high = np.maximum.reduceat(places, starts) if len(starts) else places
        tail, null = column.places(column.regular + np.arange(column.tail))
        tail = np.where(null, np.nan, tail)
        lows, highs = np.concatenate([low, tail]), np.concatenate([high, tail])
        if grouping.merge is None:
            return cls(lows, highs)
        merge = np.asarray(grouping.merge)
        is_null = np.bincount(merge, np.isnan(lows), minlength=grouping.cells)
        if ((is_null > 0) & (is_null < np.bincount(merge, minlength=grouping.cells))).any():
            return None
        merged_low = np.full(grouping.cells, np.inf)
        merged_high = np.full(grouping.cells, -np.inf)
        np.minimum.at(merged_low, merge, np.where(np.isnan(lows), np.inf, lows))
        np.maximum.at(merged_high, merge, np.where(np.isnan(highs), -np.inf, highs))
        merged_low[is_null > 0] = merged_high[is_null > 0] = np.nan
        return cls(merged_low, merged_high)

    @property
    def known(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.low)


@dataclass(frozen=True, slots=True)
class _Counts:
    """Noisy counts of the cells that hold numbers, flat, with the ranges of these."""

    counts: Floats
    variance: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, table: NoisyTable, ranges: CellRanges) -> _Counts:
        known = ranges.known
        variance = np.broadcast_to(table.variance, table.values.shape)[known]
        return cls(table.values[known], variance, ranges.low[known], ranges.high[known])


def mean_interval(table: NoisyTable, ranges: CellRanges) -> Interval | None:
    """Statement. Let m be the mean of the rows' numbers, x the exact counts and l, h the ends of
    the cells. Then sum x (l - m) <= 0 <= sum x (h - m). An end is the point beyond which a test of
    the one inequality rejects (Fieller 1954)."""
    cells = _Counts.of(table, ranges)
    if not len(cells.counts):
        return None
    low = _first_kept(cells.counts, cells.variance, cells.low, -DEVIATIONS)
    high = _first_kept(cells.counts, cells.variance, cells.high, DEVIATIONS)
    if low is None or high is None:
        return None
    least, largest = float(cells.low.min()), float(cells.high.max())
    return min(max(low, least), largest), max(min(high, largest), least)


def _first_kept(counts: Floats, variance: Floats, at: Floats, deviations: float) -> float | None:
    """The t at which sum counts (at - t) is so many of its standard deviations below 0."""
    total, first = float(counts.sum()), float((counts * at).sum())
    v0, v1, v2 = (float((variance * at**power).sum()) for power in range(3))
    # (first - t total)^2 = d^2 (v2 - 2 t v1 + t^2 v0), a quadratic in t.
    d = deviations**2
    a, b, c = total**2 - d * v0, first * total - d * v1, first**2 - d * v2
    if total <= 0 or a <= 0:
        return None
    root = math.sqrt(max(b * b - a * c, 0.0))
    return (b + math.copysign(root, deviations)) / a


def quantile_interval(table: NoisyTable, ranges: CellRanges, q: float) -> Interval | None:
    """Statement. A number v is the q-quantile only if at most a share q of the rows lies below it
    and at least q not above it. Rows of cells that end below v lie below it, and rows of cells that
    begin above it do not count as not above. The interval holds every v for which tests of both
    reject neither."""
    cells = _Counts.of(table, ranges)
    total = float(cells.counts.sum())
    if not len(cells.counts) or total <= DEVIATIONS * math.sqrt(float(cells.variance.sum())):
        return None
    starts = _may_be_reached(cells, cells.low, q)
    ends = _may_be_left(cells, cells.high, q)
    if not starts.any() or not ends.any():
        return None
    low, high = float(cells.low[starts].min()), float(cells.high[ends].max())
    return (low, high) if low <= high else (high, low)


def _may_be_reached(cells: _Counts, ends: Floats, q: float) -> NDArray[np.bool_]:
    """For each number v of `cells.low`, whether cells that begin at v or below may hold q."""
    order = np.argsort(ends, kind="stable")
    below = np.searchsorted(ends[order], ends, side="right")
    return _score(cells, order, below, q) >= -DEVIATIONS


def _may_be_left(cells: _Counts, ends: Floats, q: float) -> NDArray[np.bool_]:
    """For each number v of `cells.high`, whether cells that end below v may hold at most q."""
    order = np.argsort(ends, kind="stable")
    below = np.searchsorted(ends[order], ends, side="left")
    return _score(cells, order, below, q) <= DEVIATIONS


def _score(cells: _Counts, order: NDArray[np.int64], below: NDArray[np.int64], q: float) -> Floats:
    """The sum of the first `below` counts in order less q of all, over its standard deviation."""
    sums = np.concatenate([[0.0], np.cumsum(cells.counts[order])])
    varies = np.concatenate([[0.0], np.cumsum(cells.variance[order])])
    first, v = sums[below], varies[below]
    variance = (1 - q) ** 2 * v + q**2 * (varies[-1] - v)
    score: Floats = (first - q * sums[-1]) / np.sqrt(np.maximum(variance, 1e-12))
    return score


def correlation_interval(
    table: NoisyTable, ranges: tuple[CellRanges, CellRanges]
) -> Interval | None:
    """Statement. Let A and B be the numbers of the rows, M and N the middles of their bins, all
    less their means. The correlation is the cosine of the angle between A and B as vectors. That
    between A and M is at most arcsin(|A - M| / |M|), and |A - M|^2 at most the sum of squared half
    widths. So the angle of A and B is that of M and N, up to both of these. The noise of the
    correlation of M and N is that of its linear expansion in the counts, after Fisher's transform.
    """
    first, second = ranges
    known = np.ix_(first.known, second.known)
    counts = table.values[known]
    variance = np.broadcast_to(table.variance, table.values.shape)[known]
    total = float(counts.sum())
    if not counts.size or total <= DEVIATIONS * math.sqrt(float(variance.sum())):
        return None
    a, b = _Side.of(first, 0, counts, variance), _Side.of(second, 1, counts, variance)
    if a is None or b is None:
        return None
    x, y = a.standard[:, None], b.standard[None, :]
    r = float(np.clip((counts * x * y).sum() / total, -0.999, 0.999))
    influence = (x * y - r * (x**2 + y**2) / 2) / total
    error = math.sqrt(float((variance * influence**2).sum())) / (1 - r * r)
    z = math.atanh(r)
    widest = a.angle + b.angle
    low, high = (math.tanh(z + sign * DEVIATIONS * error) for sign in (-1, 1))
    return (
        math.cos(min(math.acos(low) + widest, math.pi)),
        math.cos(max(math.acos(high) - widest, 0.0)),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """The middles of one column's cells, standardised, and how far rows may be off them."""

    standard: Floats
    angle: float

    @classmethod
    def of(cls, ranges: CellRanges, axis: int, counts: Floats, variance: Floats) -> _Side | None:
        """None where the noise leaves no spread that is above zero for sure."""
        total = float(counts.sum())
        one_way, varies = counts.sum(axis=1 - axis), variance.sum(axis=1 - axis)
        low, high = ranges.low[ranges.known], ranges.high[ranges.known]
        middle, half = (low + high) / 2, (high - low) / 2
        # About a centre near their own, so that no digits are lost.
        middle = middle - float((one_way * middle).sum()) / total
        square = float((one_way * middle**2).sum()) / total
        error = math.sqrt(float((varies * (middle**2 - square) ** 2).sum())) / total
        least = square - DEVIATIONS * error
        if least <= 0:
            return None
        width = float((one_way * half**2).sum()) / total
        width += DEVIATIONS * math.sqrt(float((varies * (half**2 - width) ** 2).sum())) / total
        sine = math.sqrt(max(width, 0.0) / least)
        return cls(middle / math.sqrt(square), math.asin(sine) if sine < 1 else math.pi / 2)


@dataclass(frozen=True, slots=True)
class SampleNumbers:
    """The distinct numbers of a column in the sample, rising, and how many rows have each."""

    places: Floats
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, column: Column, codes: NDArray[Any]) -> SampleNumbers:
        found, rows = np.unique(codes, return_counts=True)
        places, null = column.places(found)
        order = np.argsort(places[~null], kind="stable")
        return cls(places[~null][order].astype(np.float64), rows[~null][order])

    @property
    def mean(self) -> float | None:
        return float(np.average(self.places, weights=self.rows)) if len(self.places) else None

    def quantile(self, q: float) -> float | None:
        """The least number that at least a share q of the rows does not exceed."""
        if not len(self.places):
            return None
        below = np.cumsum(self.rows)
        # Half a row of tolerance for the rounding of q times the rows.
        place = np.searchsorted(below, q * below[-1] - 1e-9 * below[-1], side="left")
        return float(self.places[min(int(place), len(self.places) - 1)])


def correlations(chunks: Iterable[Sequence[Floats]]) -> Floats:
    """Of each two columns, over the rows where both have a number; NaN where one is constant.

    A chunk holds the numbers of each column, NaN for null. Sums of products come from a few
    products of matrices for each chunk.
    """
    totals: list[Floats] | None = None
    centre: Floats | None = None
    for chunk in chunks:
        numbers = np.stack(chunk)
        known = ~np.isnan(numbers)
        if centre is None:
            # Any centre near the data keeps the digits of a variance.
            centre = np.where(known, numbers, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        weight = known.astype(np.float64)
        off = np.where(known, numbers - centre[:, None], 0.0)
        parts = [weight @ weight.T, off @ weight.T, off**2 @ weight.T, off @ off.T]
        totals = parts if totals is None else [a + b for a, b in zip(totals, parts, strict=True)]
    if totals is None:
        return np.zeros((0, 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        means, squares, products = (each / totals[0] for each in totals[1:])
        varies = squares - means**2
        r: Floats = (products - means * means.T) / np.sqrt(varies * varies.T)
        # What rounding leaves of a constant is no spread.
        is_constant = ~(varies > 1e-9 * squares)
    r[is_constant | is_constant.T] = np.nan
    return np.clip(r, -1, 1)
