"""The questions about entities, and what is made of their answers.

Every question counts entities: each is in one cell of each histogram, by its own rows and public
constants (and earlier answers), so that L1 = L2 = 1 for each; see `app.engine.privacy.functions`.
Three steps share the loss, each a joint release of its histograms: the number of entities and of
their rows; distinct values by rows; spread by rows per value. The number of rows is measured when
the first answers are known: an entity counts at most c rows, L1 = L2 = c, c being where the
histogram says what is cut off at less noise.

Cuts come of whole numbers or of grids, so that a run which is started again asks the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.columns.contribution import expected_error, noise_scale
from app.engine.columns.table_size import SMALLEST_VARIANCE, SizeEstimate, pooled, pooled_variance
from app.engine.entities.assignment import grouping_bytes
from app.engine.entities.model import Entities
from app.engine.entities.params import EntityForm, chosen_columns, column_problems
from app.engine.entities.profiles import ColumnProfile, RowsPerEntity, row_edges
from app.engine.entities.tuning import TUNING
from app.engine.grouping import Grouping
from app.engine.inference.projection import onto_simplex
from app.engine.inference.shrinkage import Estimates
from app.engine.inference.smoothing import smooth_counts
from app.engine.method import Limits, Problem, Session
from app.engine.method.needs import noise_faults
from app.engine.privacy.declared import Feature, FeatureClasses, FeatureKind
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count, Measurement
from app.engine.privacy.sensitivity import LARGEST_CLIPPED
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SPREAD_FEATURES: tuple[FeatureKind, ...] = ("distinct", "rows_per", "std_per")
_GRID = 1024

# Cells of the histograms of one column together, at most.
MOST_DRAWS = (TUNING.most_groups + 4) * TUNING.most_cells


@dataclass(frozen=True)
class EntityPlan:
    """What is spent on entities (None: nothing is asked), and what is left beside it."""

    axes: Axes
    columns: tuple[str, ...]
    loss: PrivacyLoss | None
    rest: UnitBudget
    draws: int
    problems: tuple[Problem, ...]

    def measure(self, session: Session) -> MeasuredEntities | None:
        """The estimates from the answers; None where nothing is asked."""
        if self.loss is None:
            return None
        return _Measuring(session, self.axes, self.columns, self.loss).measured()

    def memory_bytes(self, limits: Limits) -> int:
        """To group the rows of the first sample."""
        if self.loss is None:
            return 0
        rows = limits.max_total_rows if limits.rows is None else limits.rows
        return grouping_bytes(len(self.columns), rows)


@dataclass(frozen=True)
class MeasuredEntities:
    """Entities and how many of them and of their rows there are; `by_rows` are the noisy
    counts of entities by their rows."""

    entities: Entities
    size: SizeEstimate
    by_rows: Measurement


def plan_entities(axes: Axes, form: EntityForm, budget: UnitBudget) -> EntityPlan:
    """What is asked of entities with a share of `budget`; public facts alone."""
    problems = column_problems(form, axes)
    if not budget.unit.repeats:
        return EntityPlan(axes, (), None, budget, 0, problems)
    columns = chosen_columns(form, axes)
    spent, rest = budget.split((form.share, 1 - form.share))
    problems += _noise_problems(_parts(spent.loss, len(columns)), budget.unit)
    return EntityPlan(axes, columns, spent.loss, rest, MOST_DRAWS * (1 + len(columns)), problems)


def _noise_problems(parts: _Parts, unit: PrivacyUnit) -> tuple[Problem, ...]:
    one = [expected_error(Contribution("one"), 2, UnitBudget(unit, part)) for part in parts.least]
    for_total = UnitBudget(unit, parts.total)
    total = _counted(unit.max_rows, for_total)
    error = expected_error(total, 1, for_total)
    return noise_faults(max(noise_scale(one, Contribution("one")), noise_scale([error], total)))


@dataclass(frozen=True, slots=True)
class _Parts:
    """Losses of the steps."""

    first: PrivacyLoss
    total: PrivacyLoss
    distinct: PrivacyLoss
    spread: PrivacyLoss
    columns: int

    @property
    def least(self) -> tuple[PrivacyLoss, ...]:
        """The losses of single histograms, the smallest of each step."""
        first = self.first.split((TUNING.entities, TUNING.by_rows))
        if not self.columns:
            return first
        each = [1.0] * self.columns
        return (*first, self.distinct.split(each)[-1], self.spread.split(each)[-1])


def _parts(loss: PrivacyLoss, columns: int) -> _Parts:
    shares = (TUNING.entities + TUNING.by_rows, TUNING.rows, TUNING.distinct, TUNING.spread)
    first, total, distinct, spread = loss.split(shares if columns else (*shares[:2], 0.0, 0.0))
    return _Parts(first, total, distinct, spread, columns)


def _counted(rows: int, budget: UnitBudget) -> Contribution:
    """The rule by which an entity counts `rows` rows at most, where the kernel has one."""
    if budget.loss.kind == "pure" or budget.unit.max_rows >= LARGEST_CLIPPED:
        return Contribution()
    return Contribution("clipped", norm=float(rows))


class _Measuring:
    """The steps; each depends on the answers of those before it."""

    def __init__(
        self, session: Session, axes: Axes, columns: Sequence[str], loss: PrivacyLoss
    ) -> None:
        self._session = session
        self._axes = axes
        self._columns = columns
        self._parts = _parts(loss, len(columns))
        self._edges = row_edges(session.unit.max_rows)

    def measured(self) -> MeasuredEntities:
        units, sizes = self._session.count(
            [Count((), contribution=Contribution("one")), Count.of_units(_by_rows(self._edges))],
            self._parts.first,
            (TUNING.entities, TUNING.by_rows),
        )
        variances = [units.variance, sizes.variance * sizes.values.size]
        counted = [float(units.values), float(sizes.values.sum())]
        entities = pooled(list(zip(counted, variances, strict=True)))
        number = max(round(entities), 1)
        smooth = estimated(sizes, number)
        rows = RowsPerEntity(self._edges, smooth.means)
        size = SizeEstimate(
            *self._rows(rows, smooth.variances), entities, pooled_variance(variances)
        )
        profiles = self._profiles(number, rows) if self._columns else ()
        return MeasuredEntities(Entities(rows, profiles), size, sizes)

    def _rows(self, rows: RowsPerEntity, variances: Floats) -> tuple[float, float]:
        """Rows and their variance: those up to a cut of each entity are counted, those beyond come
        from the histogram, and all of them where the kernel has no such count."""
        budget = UnitBudget(self._session.unit, self._parts.total)
        cut = cheapest_cut(rows, variances, budget)
        rule = _counted(cut, budget)
        (answer,) = self._session.count([Count((), contribution=rule)], budget.loss)
        is_cut = answer.count.contribution.rule == "clipped"
        beyond = np.maximum(rows.middles - cut, 0) if is_cut else rows.middles
        value = math.fsum(beyond * rows.weights)
        variance = math.fsum(beyond**2 * variances)
        if is_cut:
            return value + float(answer.values), variance + answer.variance
        estimates = [(value, variance), (float(answer.values), answer.variance)]
        return pooled(estimates), pooled_variance([variance, answer.variance])

    def _profiles(self, entities: int, rows: RowsPerEntity) -> tuple[ColumnProfile, ...]:
        room = self._room(entities, self._parts.distinct)
        asked = [self._distinct(name, rows, room) for name in self._columns]
        answers = self._ask([each.function for each in asked], self._parts.distinct)
        found = [each.shares(answer, rows) for each, answer in zip(asked, answers, strict=True)]
        room = self._room(entities, self._parts.spread)
        spreads = [
            self._spread(each.column, each.mean(shares, rows), room)
            for each, shares in zip(asked, found, strict=True)
        ]
        answers = self._ask([each.function for each in spreads], self._parts.spread)
        return tuple(
            ColumnProfile(
                first.column,
                first.groups,
                first.values,
                shares,
                np.array(second.ratios),
                np.array(second.deviations),
                second.shares(answer),
            )
            for first, shares, second, answer in zip(asked, found, spreads, answers, strict=True)
        )

    def _ask(
        self, functions: Sequence[FeatureClasses], loss: PrivacyLoss
    ) -> tuple[Measurement, ...]:
        return self._session.count([Count.of_units(each) for each in functions], loss)

    def _room(self, entities: int, loss: PrivacyLoss) -> int:
        """How many cells a histogram may have for their noise to be low."""
        part = UnitBudget(self._session.unit, loss).of_each(len(self._columns))
        error = expected_error(Contribution("one"), 2, part)
        return int(
            min(max(entities / max(TUNING.errors_per_cell * error, 1.0), 4), TUNING.most_cells)
        )

    def _distinct(self, name: str, rows: RowsPerEntity, room: int) -> _Distinct:
        grouping = self._axes.groupings[name]
        values = value_edges(min(grouping.cells, rows.most), max(room // 2, 4))
        groups = row_groups(rows, min(max(room // (len(values) - 1), 1), TUNING.most_groups))
        return _Distinct(name, Feature("distinct", name, grouping=grouping), groups, values)

    def _spread(self, name: str, ratio: float, room: int) -> _Spread:
        grouping = self._axes.groupings[name]
        most = self._session.unit.max_rows
        return _Spread.around(ratio, room, most, name, grouping)


def _by_rows(edges: Ints) -> FeatureClasses:
    cuts = tuple(float(edge) for edge in edges[1:-1])
    return FeatureClasses((Feature("rows"),), (cuts,), tuple(range(len(cuts) + 1)))


def estimated(sizes: Measurement, entities: int) -> Estimates:
    """Entities in each cell of rows, not negative, adding up to `entities`, at least 1.

    Neighbouring cells are alike, and beyond what occurs there are many of them that are empty
    and weigh the most rows: so the counts are smoothed first.
    """
    variance = max(sizes.variance, SMALLEST_VARIANCE)
    smooth = smooth_counts(sizes.values.astype(np.float64), variance, float(entities))
    kept = onto_simplex(smooth.means, float(entities), smooth.variances)
    rounded = np.rint(_GRID * kept) / _GRID
    return Estimates(rounded if rounded.any() else kept, smooth.variances)


def cheapest_cut(rows: RowsPerEntity, variances: Floats, budget: UnitBudget) -> int:
    """The end of a cell at which counting rows up to it, and the rest by cell, has least noise."""
    best, least = budget.unit.max_rows, math.inf
    for edge in rows.edges[1:]:
        cut = int(edge) - 1
        beyond = np.maximum(rows.middles - cut, 0)
        error = expected_error(_counted(cut, budget), 1, budget)
        total = error**2 + math.fsum(beyond**2 * variances)
        if total < least:
            best, least = cut, total
    return best


def value_edges(most: int, cells: int) -> Ints:
    """Edges of cells of 1 to `most` distinct values, no more than `cells` of them."""
    for ratio in TUNING.ratios:
        edges = [1]
        while edges[-1] <= most:
            edges.append(max(edges[-1] + 1, round(edges[-1] * ratio)))
        edges[-1] = most + 1
        if len(edges) - 1 <= cells:
            return np.array(edges, dtype=np.int64)
    return np.array(sorted({1, 2, most + 1}), dtype=np.int64)


def row_groups(rows: RowsPerEntity, groups: int) -> Ints:
    """Edges of at most `groups` groups of rows with about as many entities each."""
    counts = np.rint(rows.weights * _GRID).astype(np.int64)
    before = np.cumsum(counts) * groups // max(int(counts.sum()), 1)
    is_end = np.diff(np.minimum(before, groups - 1), prepend=0) > 0
    inner = rows.edges[1:][is_end]
    edges = [1, *(int(edge) for edge in inner if edge <= rows.most), int(rows.edges[-1])]
    return np.array(edges, dtype=np.int64)


@dataclass(frozen=True)
class _Distinct:
    """Entities by groups of rows and cells of distinct values."""

    column: str
    feature: Feature
    groups: Ints
    values: Ints

    @property
    def function(self) -> FeatureClasses:
        groups, values = len(self.groups) - 1, len(self.values) - 1
        return FeatureClasses(
            (Feature("rows"), self.feature),
            (
                tuple(float(edge) for edge in self.groups[1:-1]),
                tuple(float(edge) for edge in self.values[1:-1]),
            ),
            tuple(range(groups * values)),
        )

    def shares(self, answer: Measurement, rows: RowsPerEntity) -> Floats:
        """Of each group; an entity has no more values than rows."""
        table = answer.values.reshape(len(self.groups) - 1, -1).astype(np.float64)
        ends = np.minimum(self.groups[1:] - 1, rows.most)
        possible = self.values[:-1] <= np.maximum(ends, 1)[:, None]
        return _lines(table, answer.variance, possible, self._entities(rows))

    def _entities(self, rows: RowsPerEntity) -> list[float]:
        """How many there are in each group."""
        return [
            float(rows.weights[(rows.edges[:-1] >= low) & (rows.edges[:-1] < end)].sum())
            for low, end in zip(self.groups[:-1], self.groups[1:], strict=True)
        ]

    def mean(self, shares: Floats, rows: RowsPerEntity) -> float:
        """Mean rows over mean distinct values, on a grid."""
        middles = (self.values[:-1] + self.values[1:] - 1) / 2
        weights = np.array(self._entities(rows))
        means = (shares / shares.sum(axis=1, keepdims=True)) @ middles
        distinct = float(weights @ means / max(weights.sum(), 1e-9))
        return max(round(8 * rows.mean / max(distinct, 1.0)) / 8, 1.0)


@dataclass(frozen=True)
class _Spread:
    """Entities with several values by rows per value and deviation; the others in cell 0."""

    column: str
    features: tuple[Feature, ...]
    ratios: tuple[float, ...]
    deviations: tuple[float, ...]

    @classmethod
    def around(cls, ratio: float, room: int, most: int, column: str, grouping: Grouping) -> _Spread:
        """Cells of a size by the mean rows per value, as many as there is room for."""
        of = [Feature(kind, column, grouping=grouping) for kind in _SPREAD_FEATURES]
        cuts = [round(64 * ratio * share) / 64 for share in TUNING.parts_of_ratio]
        inner = sorted({cut for cut in cuts if 0 < cut < most})
        inner = inner if room >= len(inner) + 1 else inner[1::2]
        groups = room // (len(inner) + 1)
        around = (ratio,) if groups == 2 else (ratio / 2, ratio, 2 * ratio) if groups > 2 else ()
        ratios = tuple(cut for cut in around if 1 < cut < most)
        return cls(column, tuple(of), ratios, (0.0, *inner, float(most)))

    @property
    def function(self) -> FeatureClasses:
        lines = len(self.ratios) + 1
        cells = len(self.deviations) - 1
        classes = [0] * (lines * cells) + [1 + cell for cell in range(lines * cells)]
        return FeatureClasses(
            self.features, ((2.0,), self.ratios, self.deviations[1:-1]), tuple(classes)
        )

    def shares(self, answer: Measurement) -> Floats:
        table = answer.values[1:].reshape(len(self.ratios) + 1, -1).astype(np.float64)
        totals = [max(float(line.sum()), 1.0) for line in table]
        return _lines(table, answer.variance, np.ones(table.shape, dtype=np.bool_), totals)


def _lines(
    table: Floats, variance: float, possible: NDArray[np.bool_], totals: Sequence[float]
) -> Floats:
    """Each line smoothed and projected onto its total; one of which nothing is left is as the
    others."""
    lines = np.zeros(table.shape)
    for line, counts, allowed, total in zip(lines, table, possible, totals, strict=True):
        if total > 0:
            smooth = smooth_counts(counts[allowed], max(variance, SMALLEST_VARIANCE), total)
            line[allowed] = onto_simplex(smooth.means, total, smooth.variances)
    common = lines.sum(axis=0)
    for line, allowed in zip(lines, possible, strict=True):
        if not line.any():
            line[allowed] = common[allowed] if common[allowed].any() else 1.0
    return lines
