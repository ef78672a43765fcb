"""Where in a wide range the rows are: counts of ever finer cells.

A column is counted in a few hundred even cells. The cells that hold more rows than noise explains,
and the one that the median lies in, are cut into even cells again, and so on down to single codes.
That finds the few codes around the median, and *frequent codes*: values that many rows share,
such as 0, a cap, or the few dates of a survey. Code 0, the last code and the code of the number 0
are cells of their own from the first count on.

*Privacy*. Each count is one `Count` of one column by the rule `rows`. Its cells are disjoint and
cover every code, so one unit of at most k rows, added or removed, moves it by at most k in L1 and
L2, however many cells it has: `sensitivity` states and proves it. Which cells are cut is a function
of the range and of earlier noisy answers: post-processing (the kernel charges each count, whatever
made its cells). A column has at most `counts_of(regular)` of them, a public number.

Proof that a frequent code needs no further question: its noisy count is an answer of the last
count already, and nothing else is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.table_size import pooled, pooled_variance
from app.engine.columns.tuning import TUNING
from app.engine.grouping import Grouping
from app.engine.method import Session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count, Measurement
from app.engine.schema import Column

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FrequentCode:
    """`share` is its noisy part of the counted rows."""

    code: int
    share: float


@dataclass(frozen=True, slots=True)
class WhereRowsAre:
    """Codes `low` to `end`, without `end`, hold the median; frequent codes with most rows first."""

    low: int
    end: int
    frequent: tuple[FrequentCode, ...] = ()


def counts_of(regular: int) -> int:
    """How many counts lead from a range to single codes."""
    counts, reached = 0, 1
    while reached < regular:
        counts, reached = counts + 1, reached * TUNING.counted_cells
    return counts


def most_counted(regular: int) -> int:
    """The most cells of all counts of a column together."""
    counts, factor = counts_of(regular), _factor(regular)
    first = factor + _CELLS_AROUND
    later = first + TUNING.refined_cells + TUNING.refined_cells // factor
    return first + (counts - 1) * min(later, regular) if counts else 0


def always_offered(column: Column) -> tuple[int, ...]:
    """Codes that are candidates whatever is known: the ends of the range, and the number 0."""
    codes = {0, column.regular - 1}
    if column.type in ("integer", "number") and (zero := column.scale.code(0)) is not None:
        codes.add(zero)
    return tuple(sorted(codes))


def where_rows_are(
    session: Session, column: Column, loss: PrivacyLoss, most_points: int
) -> WhereRowsAre:
    """Counts finer and finer cells, each time for `loss`; at most `counts_of` times.

    The codes around the median are no more than `most_points` if their number allows it.
    """
    search = _Search.over(column, most_points)
    factor = _factor(column.regular)
    length = column.regular
    for _ in range(counts_of(column.regular)):
        if not search.wanted:
            break  # no cell can hold a frequent code, so the rest of the loss is kept
        length = -(-length // factor)
        search.cut(length)
        query = Count((column.name,), {column.name: Grouping(tuple(search.cuts), column.tail)})
        (answer,) = session.count([query], loss)
        search.learn(answer, length)
    return search.result()


def _factor(regular: int) -> int:
    """Into how many cells each count cuts: as few as lead to single codes in that many counts."""
    counts = counts_of(regular)
    if not counts:
        return 1
    factor = max(math.floor(math.pow(regular, 1 / counts)), 1)
    while factor**counts < regular:
        factor += 1
    return factor


# Cells beside even ones: three candidates, the stretches between them that are cut short, and
# the end of the range.
_CELLS_AROUND = 8


@dataclass
class _Search:
    """Which cells are to be cut next, and what was learnt so far.

    `always` are edges of every count, `cuts` those of the latest; `counted` its edges, rows, floor
    of noise and total. `around` is the cell of the median; `below` and `above` are the rows on
    either side of it, with their variances. `density` has, for a cell of one code, the rows of
    each other code of the cell that it was cut from.
    """

    always: tuple[int, ...]
    wanted: list[tuple[int, int]]
    around: tuple[int, int]
    most_points: int
    below: tuple[float, float] = (0.0, 0.0)
    above: tuple[float, float] = (0.0, 0.0)
    density: dict[tuple[int, int], float] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    counted: tuple[Integers, Floats, float, float] | None = None

    @classmethod
    def over(cls, column: Column, most_points: int) -> _Search:
        ends = {0, column.regular}
        for code in always_offered(column):
            ends |= {code, code + 1}
        always = tuple(sorted(ends))
        wanted = [(low, end) for low, end in pairwise(always) if end - low > 1]
        return cls(always, wanted, (0, column.regular), most_points)

    def cut(self, length: int) -> None:
        """Cuts the cells that are wanted into cells of `length` codes; others become one again."""
        ends = {*self.always, *self.around}
        for low, end in self.wanted:
            ends |= {*range(low, end, length), end}
        self.cuts = sorted(ends)

    def learn(self, answer: Measurement, length: int) -> None:
        """Takes the count of the cells, and decides which of them are to be cut next."""
        edges = np.asarray(self.cuts)
        rows = answer.values[: len(edges) - 1].astype(np.float64)
        widths = np.diff(edges)
        self._find_median(edges, rows, answer.variance)
        floor = _beyond_noise(answer)
        self._note_density(edges, rows, widths)
        self.counted = (edges, rows, floor, max(float(rows.sum()), 1.0))
        # Cells between those that were cut hold rows together that were too few in each of them.
        heavy = np.flatnonzero((rows > floor) & (widths > 1) & (widths <= length))
        heavy = heavy[np.argsort(-rows[heavy], kind="stable")]
        most = TUNING.refined_cells // max(_factor(int(edges[-1])), 1)
        self.wanted = [(int(edges[i]), int(edges[i + 1])) for i in heavy[:most]]
        low, end = self.around
        if end - low > self.most_points and self.around not in self.wanted:
            self.wanted.append(self.around)

    def _find_median(self, edges: Integers, rows: Floats, variance: float) -> None:
        low, end = self.around
        if end - low <= self.most_points:
            return
        first, last = int(np.searchsorted(edges, low)), int(np.searchsorted(edges, end))
        # Rows outside were counted before, in other cells: both answers are used.
        below = _both(self.below, float(rows[:first].sum()), first * variance)
        above = _both(self.above, float(rows[last:].sum()), (len(rows) - last) * variance)
        inner = np.cumsum(rows[first:last])
        half = (below[0] + float(inner[-1]) + above[0]) / 2
        place = min(int(np.searchsorted(_rising(below[0] + inner), half)), last - first - 1)
        here = first + place
        self.around = (int(edges[here]), int(edges[here + 1]))
        before = float(inner[place - 1]) if place else 0.0
        after = float(inner[-1] - inner[place])
        self.below = (below[0] + before, below[1] + place * variance)
        self.above = (above[0] + after, above[1] + (last - here - 1) * variance)

    def _note_density(self, edges: Integers, rows: Floats, widths: Integers) -> None:
        self.density = {}
        for low, end in self.wanted:
            inside = slice(int(np.searchsorted(edges, low)), int(np.searchsorted(edges, end)))
            total, codes = float(rows[inside].sum()), end - low
            for i in np.flatnonzero(widths[inside] == 1) + inside.start:
                self.density[int(edges[i]), int(edges[i + 1])] = max(
                    (total - float(rows[i])) / max(codes - 1, 1), 0.0
                )

    def result(self) -> WhereRowsAre:
        low, end = self.around
        if self.counted is None:
            return WhereRowsAre(low, end)
        edges, rows, floor, total = self.counted
        single = np.flatnonzero(np.diff(edges) == 1)
        found = []
        for i in single[np.argsort(-rows[single], kind="stable")]:
            even = self.density.get((int(edges[i]), int(edges[i + 1])), 0.0)
            if rows[i] - even > floor:
                found.append(FrequentCode(int(edges[i]), float(rows[i]) / total))
        return WhereRowsAre(low, end, tuple(found[: TUNING.frequent_codes]))


def _rising(sums: Floats) -> Floats:
    """Noisy cumulative counts made to rise, so that the first to reach a level is found."""
    rising: Floats = np.maximum.accumulate(sums)
    return rising


def _both(before: tuple[float, float], now: float, variance: float) -> tuple[float, float]:
    """Two noisy counts of the same rows; one of no cells is exact."""
    if not before[1]:
        return (before[0], 0.0) if not variance else (now, variance)
    if not variance:
        return now, 0.0
    return pooled([before, (now, variance)]), pooled_variance([before[1], variance])


def _beyond_noise(answer: Measurement) -> float:
    """What noise alone reaches in any cell of the answer with a small chance.

    By union over the cells: exp(-(x / scale)^2 / 2) bounds the tail of a Gaussian, and
    exp(-x / scale) that of a Laplace (for the discrete ones too: they are subgaussian, and at most
    this from x on).
    """
    odds = math.log(answer.values.size / TUNING.false_frequent)
    if answer.noise == "gaussian":
        return answer.scale * math.sqrt(2 * odds)
    return answer.scale * odds
