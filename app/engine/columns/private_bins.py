"""What a run measures of the dictionary before it counts: values that nobody lists, private bins.

*Values*. Of a column that leaves them open the run finds those that many units have, by discovery
of keys, before it asks anything else. That takes the delta that is set aside.

*Bins* hold about equal numbers of rows where the dictionary states a public range alone. The run
first counts the range in finer and finer cells (see `frequent_codes`), which finds the median even
where the rows fill a tiny part of the range, and values that many rows share. A frequent value that
holds as many rows as a bin should becomes a cell of its own. Then the run asks for one quantile
after another, each halving the largest share of rows that no cut divides yet, from a grid between
the two answers beside it that is dense near both and has the frequent values, 0 and the ends of the
range. So cuts lie close to each other where rows do. A point that is named twice holds many rows by
itself and becomes a cell too. Special values, `other` and null have their cells in any case and are
left out of the quantiles. Columns with private bins can be counted in finer sub-bins too (see
`within_bins`), in which frequent values that got no cell are by themselves.

*Loss*. Each is given a share. Every count and every quantile (the kernel's exponential mechanism)
has an equal part of that of the bins, whatever the answers; cells and grids are made of the range
and of earlier answers alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.engine.columns.axes import Axes, Bins, choose_axes
from app.engine.columns.contribution import expected_error, expected_score_error
from app.engine.columns.frequent_codes import (
    WhereRowsAre,
    always_offered,
    counts_of,
    most_counted,
    where_rows_are,
)
from app.engine.columns.tuning import TUNING
from app.engine.columns.within_bins import with_most_sub_bins, with_sub_bins
from app.engine.grouping import Grouping
from app.engine.method import Problem, Session
from app.engine.privacy.limits import LARGEST_SCALE
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Quantile, Values
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import Column, PrivacyUnit, QuantileBins, Schema

MOST_SUB_BINS = 64

BinsShare = Annotated[
    float,
    Field(
        gt=0,
        lt=1,
        description="Part of the budget for the bins which the dictionary leaves to be "
        "measured; nothing is set aside if there are none.",
    ),
]
ValuesShare = Annotated[
    float,
    Field(
        gt=0,
        lt=1,
        description="Part of the budget that finds the values which the dictionary leaves to be "
        "found; nothing is set aside if there are none.",
    ),
]
WithinBins = Annotated[
    int,
    Field(
        ge=1,
        le=MOST_SUB_BINS,
        description="Sub-bins into which each private bin is cut to learn the density "
        "within it, by one more histogram of the column; 1: rows are even within bins.",
    ),
]
USUAL_BINS_SHARE = TUNING.bins_share
USUAL_WITHIN_BINS = TUNING.within_bins
USUAL_VALUES_SHARE = TUNING.values_share

# Points of one quantile's grid: those placed by distance, and the candidates in any case (a code
# with its two neighbours).
PLACED_POINTS = TUNING.even_points + 2 * TUNING.rising_points + 1
MOST_POINTS = PLACED_POINTS + 3 * (TUNING.frequent_codes + 3)

FAR_CUTS = TUNING.far_cuts


class AxisParams(Protocol):
    """What a form says of its axes."""

    @property
    def columns(self) -> tuple[str, ...] | None: ...
    @property
    def bins(self) -> Mapping[str, Bins]: ...
    @property
    def bins_share(self) -> float: ...
    @property
    def values_share(self) -> float: ...


@dataclass(frozen=True)
class AxisPlan:
    """Axes with as many cells as can come out, and what is spent before they are known.

    `found` are the columns whose values are found, `value` the loss of each. `quantile_bins` are
    the numbers of bins, `questions` those that they take at most, `counted` the most cells that
    their counts have together, `each` the loss of one question. Losses
    are None where nothing is measured; `rest` is what is left beside them. `far_cuts` cut the
    outermost cells further; each cell of private bins is cut into at most `within_bins` sub-bins.
    """

    axes: Axes
    params: AxisParams
    found: tuple[str, ...]
    value: PrivacyLoss | None
    quantile_bins: Mapping[str, int]
    questions: int
    counted: int
    each: PrivacyLoss | None
    rest: UnitBudget
    far_cuts: int
    within_bins: int
    problems: tuple[Problem, ...]

    @property
    def draws(self) -> int:
        """Noisy counts and scores of all questions, and counts of sub-bins."""
        sub_bins = sum(grouping.cells for grouping in self.axes.sub_bins.values())
        quantiles = sum(bins - 1 for bins in self.quantile_bins.values())
        return MOST_POINTS * quantiles + self.counted + sub_bins

    def measure(self, session: Session) -> Axes:
        """The axes with values and bins that were measured, as `session.schema` has them from then
        on; what is not spent stays with the session."""
        if self.value is not None:
            for name in self.found:
                session.find_values(Values(name, _values_of(session.unit)), self.value)
        axes, _ = choose_axes(
            session.schema, self.params.columns, self.params.bins, measures_bins=True
        )
        if self.each is None:
            return axes
        groupings, frequent = dict(axes.groupings), {}
        for name, bins in self.quantile_bins.items():
            column = session.schema.column(name)
            found = where_rows_are(session, column, self.each, PLACED_POINTS)
            edges = _quantile_edges(session, column, bins, found, self.each)
            groupings[name] = Grouping(with_far_cuts(edges, self.far_cuts), column.tail)
            frequent[name] = tuple(each.code for each in found.frequent)
        return with_sub_bins(Axes(groupings), tuple(self.quantile_bins), self.within_bins, frequent)

    def left(self, session: Session) -> UnitBudget:
        """What may be spent after `measure`: no less than `rest`."""
        left = session.remaining
        return UnitBudget(session.unit, PrivacyLoss(left.kind, left.amount))


def plan_axes(
    schema: Schema,
    params: AxisParams,
    budget: UnitBudget,
    *,
    far_cuts: int = FAR_CUTS,
    within_bins: int = 1,
) -> AxisPlan:
    """Axes as `choose_axes` has them, and what is to be measured with shares of `budget`.

    Pass no `far_cuts` where every cell costs its noise: in a histogram of all columns at once.
    Pass `within_bins` where the sub-bins of the axes are counted too.
    """
    axes, problems = choose_axes(schema, params.columns, params.bins, measures_bins=True)
    found = _to_be_found(schema, axes)
    quantile_bins = _quantile_bins(schema, axes, params.bins)
    questions = sum(
        bins - 1 + counts_of(schema.column(name).regular) for name, bins in quantile_bins.items()
    )
    counted = sum(most_counted(schema.column(name).regular) for name in quantile_bins)
    groupings = {
        name: _widest(schema.column(name), grouping, quantile_bins.get(name, 0) + 2 * far_cuts)
        if name in (*found, *quantile_bins)
        else grouping
        for name, grouping in axes.groupings.items()
    }
    value, each, rest = _divided(budget, params, len(found), questions)
    if found:
        problems += _values_problems(budget.unit, value, found)
    if each is not None:
        problems += _noise_problems(UnitBudget(budget.unit, each))
    return AxisPlan(
        with_most_sub_bins(Axes(groupings), tuple(quantile_bins), within_bins),
        params,
        found,
        value,
        quantile_bins,
        questions,
        counted,
        each,
        rest,
        far_cuts,
        within_bins,
        problems,
    )


def delta_for_values(schema: Schema, params: AxisParams) -> float:
    """The share of a guarantee's delta to be set aside: none where nothing is to be found."""
    axes, _ = choose_axes(schema, params.columns, params.bins, measures_bins=True)
    return TUNING.delta_for_values if _to_be_found(schema, axes) else 0.0


def _to_be_found(schema: Schema, axes: Axes) -> tuple[str, ...]:
    return tuple(name for name in axes.names if schema.column(name).discovers is not None)


def _values_of(unit: PrivacyUnit) -> int:
    return min(unit.max_rows, TUNING.values_of_unit)


def _divided(
    budget: UnitBudget, params: AxisParams, found: int, questions: int
) -> tuple[PrivacyLoss | None, PrivacyLoss | None, UnitBudget]:
    """The loss of one column's values, of one question about bins, and of all that follows."""
    loss = budget.loss
    values_share = params.values_share if found else 0.0
    bins_share = (params.bins_share if questions else 0.0) * (1 - values_share)
    values, bins, rest = PrivacyLoss(loss.kind, loss.amount).split(
        (values_share, bins_share, 1 - values_share - bins_share)
    )
    value = each = None
    if found:
        value = PrivacyLoss(loss.kind, values.amount // found, loss.delta // found)
    if questions:
        each = PrivacyLoss(loss.kind, bins.amount // questions)
    return value, each, UnitBudget(budget.unit, rest)


def _quantile_bins(schema: Schema, axes: Axes, bins: Mapping[str, Bins]) -> dict[str, int]:
    declared = {name: schema.column(name).bins for name in axes.names if name not in bins}
    return {
        name: chosen.count for name, chosen in declared.items() if isinstance(chosen, QuantileBins)
    }


def _widest(column: Column, grouping: Grouping, bins: int) -> Grouping:
    if column.discovers is not None:
        return Grouping.identity(column.discovers, grouping.tail)
    return Grouping.equal(grouping.regular, grouping.tail, bins)


def _values_problems(
    unit: PrivacyUnit, value: PrivacyLoss | None, found: Sequence[str]
) -> tuple[Problem, ...]:
    if value is None or not value.delta:
        names = ", ".join(f"`{name}`" for name in found)
        return (
            Problem(
                "/guarantee",
                f"the values of {names} are to be found, which takes some delta",
                "ask for a guarantee with a delta, or name `columns` without them",
            ),
        )
    rule = Contribution("distinct", _values_of(unit))
    error = expected_error(rule, 2 * TUNING.values_of_unit, UnitBudget(unit, value))
    if error <= LARGEST_SCALE:
        return ()
    return (
        Problem(
            "/params/values_share",
            "the noise of a value's count would pass the largest scale that can be drawn",
            "raise it, ask for a larger guarantee, or name `columns` without such values",
        ),
    )


def _noise_problems(each: UnitBudget) -> tuple[Problem, ...]:
    counted = expected_error(Contribution(), TUNING.counted_cells, each)
    if max(counted, expected_score_error(each)) <= LARGEST_SCALE:
        return ()
    return (
        Problem(
            "/params/bins_share",
            "the noise of a quantile would pass the largest scale that can be drawn",
            "raise it, ask for a larger guarantee, or give public `bins`",
        ),
    )


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Two neighbouring quantiles (0 and 1 at first), and the codes that can lie between them:
    those of the two answers too, and what their grids left out beyond them."""

    low: int
    high: int
    q_low: float
    q_high: float

    @property
    def share(self) -> float:
        return self.q_high - self.q_low

    @property
    def middle(self) -> float:
        return (self.q_low + self.q_high) / 2

    def halves(self, answer: _Answer) -> tuple[_Stretch, _Stretch]:
        return (
            _Stretch(self.low, answer.most, self.q_low, self.middle),
            _Stretch(answer.least, self.high, self.middle, self.q_high),
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """The code named, and how far off, without noise, the quantile itself can be."""

    code: int
    least: int
    most: int

    @property
    def is_exact(self) -> bool:
        return self.least == self.code == self.most


def _quantile_edges(
    session: Session, column: Column, bins: int, found: WhereRowsAre, loss: PrivacyLoss
) -> tuple[int, ...]:
    """Edges of at most `bins` cells; fewer quantiles are asked if nothing is left to be divided."""
    last = column.regular - 1
    whole = _Stretch(0, last, 0.0, 1.0)
    located = _Stretch(found.low, found.end - 1, 0.0, 1.0)
    stretches = [whole]
    named = {0, last}
    cuts = _own_cells(column.regular, found, bins)
    offered = {*always_offered(column), *(each.code for each in found.frequent)}
    for _ in range(bins - 1):
        open_ones = [each for each in stretches if _is_open(each, cuts)]
        if not open_ones or len(cuts) > bins:
            break
        widest = max(open_ones, key=lambda each: each.share)
        within = located if widest is whole else widest
        answer = _quantile(session, column, within, offered, loss)
        is_mass = answer.is_exact and answer.code in named and len(cuts) < bins
        cuts |= {answer.code, answer.code + 1} if is_mass else {answer.code}
        named.add(answer.code)
        place = stretches.index(widest)
        stretches[place : place + 1] = widest.halves(answer)
    return tuple(sorted(cuts))


def _own_cells(regular: int, found: WhereRowsAre, bins: int) -> set[int]:
    """Cuts around frequent values, the most frequent first, that hold what a bin should."""
    cuts = {0, regular}
    for each in found.frequent:
        around = cuts | {each.code, each.code + 1}
        if each.share >= 1 / bins and len(around) <= bins + 1:
            cuts = around
    return cuts


def _is_open(stretch: _Stretch, cuts: set[int]) -> bool:
    """Whether an answer within it can add a cut."""
    length = stretch.high - stretch.low
    return length > 1 or (length == 1 and stretch.high not in cuts)


def _quantile(
    session: Session,
    column: Column,
    within: _Stretch,
    offered: Collection[int],
    loss: PrivacyLoss,
) -> _Answer:
    codes = _points(within.low, within.high, offered)
    places, first = np.unique(column.places(codes)[0].astype(np.float64), return_index=True)
    grid, codes = tuple(places.tolist()), codes[first]
    query = Quantile(column.name, within.middle, grid, regular_only=True)
    place = grid.index(session.quantile(query, loss))
    code = int(codes[place])
    before, after = codes[max(place - 1, 0)], codes[min(place + 1, len(codes) - 1)]
    return _Answer(
        code, code if code - before <= 1 else int(before), code if after - code <= 1 else int(after)
    )


def _points(low: int, high: int, offered: Collection[int]) -> NDArray[np.int64]:
    """Every code, or some evenly spaced and some at rising distances from either end, and those
    `offered` with the codes beside them."""
    span = high - low
    if span < PLACED_POINTS:
        return np.arange(low, high + 1)
    even = np.linspace(0, span, TUNING.even_points + 1)
    rising = np.geomspace(1, span, TUNING.rising_points)
    steps = np.rint(np.concatenate([even, rising, span - rising]))
    beside = np.array(sorted(offered), dtype=np.int64)[:, None] + np.array([-1, 0, 1])
    beside = beside[(beside >= low) & (beside <= high)]
    points: NDArray[np.int64] = np.unique(np.concatenate([low + steps.astype(np.int64), beside]))
    return points


def with_far_cuts(edges: Sequence[int], far_cuts: int) -> tuple[int, ...]:
    """Cuts in the outermost cells, at distances from their inner edges that start with the
    length of the cell beside and double: far out rows become few and uneven."""
    if not far_cuts or len(edges) < 3:
        return tuple(edges)
    steps = [2**i - 1 for i in range(1, far_cuts + 1)]
    # A cell of one code is a point mass; the tail is the cell beside it.
    first = 1 if edges[1] == 1 and len(edges) > 3 else 0
    last = len(edges) - 1
    if edges[last] - edges[last - 1] == 1 and last - first > 2:
        last -= 1
    below = [edges[first + 1] - (edges[first + 2] - edges[first + 1]) * step for step in steps]
    above = [edges[last - 1] + (edges[last - 1] - edges[last - 2]) * step for step in steps]
    cuts = {cut for cut in below if cut > edges[first]}
    cuts |= {cut for cut in above if cut < edges[last]}
    return tuple(sorted({*edges, *cuts}))
