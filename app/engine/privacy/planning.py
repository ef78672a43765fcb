"""What a question would do: resolved against the schema, from public facts alone.

A plan states which histogram is read, how far one unit moves it, and which noise that needs.
Whatever does not fit is refused here, before anything is charged. No private row is in reach,
so that a refusal cannot depend on one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.engine.grouping import Grouping
from app.engine.privacy.clipped_sums import Summand, summand
from app.engine.privacy.contributions import Histogram, ListedTuples
from app.engine.privacy.declared import EntityFunction, Feature, FeatureClasses, MixtureMode
from app.engine.privacy.discovery import key_threshold
from app.engine.privacy.distances import Distance
from app.engine.privacy.limits import (
    LONGEST_TUPLE,
    MOST_CELLS,
    MOST_ITEMS_OF_UNIT,
    MOST_LISTED,
    MOST_STEPS_OF_ROW,
    steps_of_row,
)
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.noise import ScaleTooLarge, count_scale, selection_scale
from app.engine.privacy.quantiles import QUANTILE_STEPS, quantile_sensitivity
from app.engine.privacy.queries import (
    Contribution,
    Count,
    Keys,
    Noise,
    Quantile,
    Query,
    QuestionRefused,
    Sum,
    TupleCount,
    TupleNumber,
    Tuples,
    Values,
)
from app.engine.privacy.questions import (
    CountQuestion,
    DiscoverQuestion,
    QuantileQuestion,
    ScoreQuestion,
    SelectQuestion,
    ValuesQuestion,
)
from app.engine.privacy.scores import joint_norms, relative_weights, split_loss
from app.engine.privacy.selection import SCORE_UNIT, Contender, contenders, largest_sensitivity
from app.engine.privacy.sensitivity import (
    GRID,
    LARGEST_CLIPPED,
    Sensitivity,
    clip_radius,
    sensitivity,
)
from app.engine.schema import Column, PrivacyUnit, Schema
from app.engine.tuple_tree import TupleTree


@dataclass(frozen=True)
class QueryPlan:
    """A noisy histogram: what is counted, how far one unit moves it, noise and scale."""

    query: Query
    histogram: Histogram
    unit: Sensitivity
    noise: Noise
    scale: float

    @property
    def step(self) -> float:
        """The value of one unit of what is counted."""
        return self.histogram.of.step if isinstance(self.histogram.of, Summand) else 1.0


@dataclass(frozen=True)
class SelectionPlan:
    contenders: tuple[Contender, ...]
    winners: int
    sensitivity: int
    scale: float


@dataclass(frozen=True)
class ScorePlan:
    """Distances to be noised, their noise and each one's scale, in steps of 1/1024 of a count.

    `counts` and `weights` are the question's; the norms are of the weighted distances, in
    counts.
    """

    counts: tuple[Count, ...]
    distances: tuple[Distance, ...]
    weights: tuple[float, ...]
    noise: Noise
    scales: tuple[float, ...]
    l1: float
    l2: float


@dataclass(frozen=True)
class QuantilePlan:
    """`listed` are the tuples that are counted in each unit, if they are. Sensitivity and scale
    are in `QUANTILE_STEPS` of one number."""

    query: Quantile
    listed: ListedTuples | None
    sensitivity: int
    scale: float


@dataclass(frozen=True)
class DiscoveryPlan:
    """A key is kept if its noisy count is at least `threshold`."""

    query: Keys
    groupings: tuple[Grouping, ...]
    unit: Sensitivity
    scale: float
    threshold: int


@dataclass(frozen=True)
class ValuesPlan:
    """A value is published if its noisy count is at least `threshold`; of those, only the `most`
    frequent ones."""

    query: Values
    unit: Sensitivity
    scale: float
    threshold: int
    most: int


Plan = tuple[QueryPlan, ...] | SelectionPlan | ScorePlan | QuantilePlan | DiscoveryPlan | ValuesPlan
Planned = (
    CountQuestion
    | SelectQuestion
    | ScoreQuestion
    | QuantileQuestion
    | DiscoverQuestion
    | ValuesQuestion
)


@dataclass(frozen=True)
class Planner:
    """Plans the questions of a session of this kind of loss. Raises `QuestionRefused`."""

    schema: Schema
    unit: PrivacyUnit
    kind: Literal["pure", "zcdp"]

    def plan(self, question: Planned) -> Plan:
        try:
            match question:
                case CountQuestion():
                    return self._queries(question)
                case SelectQuestion():
                    return self._selection(question)
                case ScoreQuestion():
                    return self._scores(question)
                case QuantileQuestion():
                    return self._quantile(question)
                case DiscoverQuestion():
                    return self._discovery(question)
                case ValuesQuestion():
                    return self._values(question)
        except ScaleTooLarge:
            raise QuestionRefused("the loss is too small for the noise the kernel draws") from None

    def _queries(self, question: CountQuestion) -> tuple[QueryPlan, ...]:
        histograms = self.resolved(question.queries)
        planned = []
        for query, histogram, loss in zip(
            question.queries, histograms, question.losses, strict=True
        ):
            unit = self._sensitivity(histogram)
            noise, scale = count_scale(loss, unit.l1, unit.l2_squared)
            planned.append(QueryPlan(query, histogram, unit, noise, scale))
        return tuple(planned)

    def _selection(self, question: SelectQuestion) -> SelectionPlan:
        histograms = self.resolved([candidate.count for candidate in question.candidates])
        units = [self._sensitivity(histogram) for histogram in histograms]
        entered = contenders(question.candidates, histograms, units)
        delta = largest_sensitivity(entered)
        scale = selection_scale(question.loss_of_each, delta, SCORE_UNIT)
        return SelectionPlan(entered, question.winners, delta, scale)

    def _scores(self, question: ScoreQuestion) -> ScorePlan:
        counts = tuple(candidate.count for candidate in question.candidates)
        histograms = self.resolved(counts)
        units = [self._sensitivity(histogram) for histogram in histograms]
        distances = Distance.of_each(question.candidates, histograms, units)
        weights = relative_weights([candidate.weight for candidate in question.candidates])
        moved = [unit.l1_counts for unit in units]
        noises = [
            count_scale(part, distance.sensitivity, distance.sensitivity**2)
            for distance, part in zip(
                distances, split_loss(question.loss, weights, moved), strict=True
            )
        ]
        scales = tuple(scale for _, scale in noises)
        return ScorePlan(
            counts, distances, weights, noises[0][0], scales, *joint_norms(weights, moved)
        )

    def _quantile(self, question: QuantileQuestion) -> QuantilePlan:
        query = question.query
        of, listed, most = query.of, None, 1
        if isinstance(of, TupleNumber):
            self._check_lists([of.tuples])
            listed = self._listed(of.tuples, self._groupings(of.tuples, {}))
        elif isinstance(of, str):
            most = self.unit.max_rows
            if not self._column(of).has_numbers:
                raise QuestionRefused("a quantile is of a column of numbers, dates or times")
        delta = quantile_sensitivity(query.q, most)
        scale = selection_scale(question.loss, delta, QUANTILE_STEPS)
        return QuantilePlan(query, listed, delta, scale)

    def _discovery(self, question: DiscoverQuestion) -> DiscoveryPlan:
        query = question.query
        unit, scale, threshold = self._of_keys(query, question.loss)
        return DiscoveryPlan(query, self._groupings(query, {}), unit, scale, threshold)

    def _values(self, question: ValuesQuestion) -> ValuesPlan:
        query = question.query
        most = self._column(query.column).discovers
        if most is None:
            raise QuestionRefused("the values of the column are known")
        return ValuesPlan(query, *self._of_keys(query, question.loss), most)

    def _of_keys(self, query: Keys | Values, loss: PrivacyLoss) -> tuple[Sensitivity, float, int]:
        """How far one unit moves the counts of keys, their scale, and the threshold."""
        unit = sensitivity(query.contribution, self.unit.max_rows, query.limit)
        _, scale = count_scale(PrivacyLoss.zcdp(loss.amount), unit.l1, unit.l2_squared)
        return unit, scale, key_threshold(scale, unit.l1, loss.delta)

    def _sensitivity(self, histogram: Histogram) -> Sensitivity:
        if isinstance(histogram.of, Summand):
            most = histogram.of.largest * self.unit.max_rows
            return Sensitivity(1, most, most**2)
        if isinstance(histogram.of, ListedTuples):
            # The number of rows is no bound here: one row holds many tuples.
            assert histogram.contribution.limit is not None
            most = min(histogram.contribution.limit, max(len(histogram.of.tuples), 1))
            return Sensitivity(1, most, most)
        return sensitivity(histogram.contribution, self.unit.max_rows, histogram.cells)

    def resolved(self, queries: Sequence[Query]) -> list[Histogram]:
        """The histograms that queries ask for."""
        # Equal groupings become one object, so that a column is looked up once for all.
        same: dict[Grouping, Grouping] = {}
        self._check_lists([query.tuples for query in queries if isinstance(query, TupleCount)])
        histograms = [self._histogram(query, same) for query in queries]
        if sum(histogram.cells for histogram in histograms) > MOST_CELLS:
            raise QuestionRefused(f"a question counts at most {MOST_CELLS} cells")
        return histograms

    def _histogram(self, query: Query, same: dict[Grouping, Grouping]) -> Histogram:
        if isinstance(query, Count) and query.function is not None:
            return self._of_function(query, query.function)
        groupings = self._groupings(query, same)
        of: Summand | ListedTuples | None = None
        match query:
            case Count():
                self._check_rule(query.contribution)
            case Sum():
                of = summand(self._column(query.value), query.low, query.high)
            case TupleCount():
                of = self._listed(query.tuples, groupings)
        return Histogram(tuple(query.columns), groupings, query.contribution, of)

    def _of_function(self, query: Count, function: EntityFunction) -> Histogram:
        if query.columns or query.groupings or query.contribution.rule != "one":
            raise QuestionRefused("a function is counted by `one`, and takes no columns besides")
        columns = [self._column(name) for name in function.columns]
        is_mixture = isinstance(function, MixtureMode)
        if is_mixture and not all(column.has_numbers for column in columns):
            raise QuestionRefused("a mixture is over columns of numbers, dates or times")
        if isinstance(function, FeatureClasses):
            for feature in function.features:
                self._check_feature(feature)
        return Histogram((), (), query.contribution, function)

    def _check_feature(self, feature: Feature) -> None:
        if feature.column is None:
            return
        column = self._column(feature.column)
        if feature.kind == "mean" and not column.has_numbers:
            raise QuestionRefused("a mean is of a column of numbers, dates or times")
        if feature.grouping is not None:
            self._check_fit(feature.grouping, column)

    def _check_lists(self, lists: Sequence[Tuples]) -> None:
        """Bounds memory before any list is made a tree: a short question can name much."""
        if sum(self._listed_entries(each) for each in lists) > MOST_LISTED:
            raise QuestionRefused(f"lists of tuples have at most {MOST_LISTED} entries together")

    def _listed_entries(self, tuples: Tuples) -> int:
        if not tuples.columns or tuples.length > LONGEST_TUPLE:
            raise QuestionRefused(f"tuples have 1 to {LONGEST_TUPLE} items, of some column")
        if tuples.width * self.unit.max_rows > MOST_ITEMS_OF_UNIT:
            raise QuestionRefused(
                f"the rows of one unit have at most {MOST_ITEMS_OF_UNIT} items together"
            )
        if steps_of_row(tuples.width, tuples.length, len(tuples)) > MOST_STEPS_OF_ROW:
            raise QuestionRefused("a row has too many items for this many tuples of this length")
        items = self._items_of_columns(tuples, self._groupings(tuples, {}))
        tables = sum(len(each.of_cell) * each.most_of_cell for each in tuples.parts.values())
        return tuples.items.size + sum(items.values()) + tables

    def _items_of_columns(self, tuples: Tuples, groupings: tuple[Grouping, ...]) -> dict[str, int]:
        """How many items each column has: its cells, or its parts."""
        items = dict(zip(tuples.columns, (grouping.cells for grouping in groupings), strict=True))
        for name, parts in tuples.parts.items():
            if len(parts.of_cell) != items.get(name):
                raise QuestionRefused("parts are listed for each cell of a column of the tuples")
            items[name] = len(parts.names)
        return items

    def _listed(self, tuples: Tuples, groupings: tuple[Grouping, ...]) -> ListedTuples:
        items = self._items_of_columns(tuples, groupings)
        try:
            tree = TupleTree.of(tuples.items, sum(items.values()))
        except ValueError as error:
            raise QuestionRefused(str(error)) from None
        return ListedTuples(tuples, groupings, tree)

    def _groupings(
        self, query: Query | Keys | Tuples, same: dict[Grouping, Grouping]
    ) -> tuple[Grouping, ...]:
        if len(set(query.columns)) != len(query.columns):
            raise QuestionRefused("a query names each column once")
        if not set(query.groupings) <= set(query.columns):
            raise QuestionRefused("a grouping is for a column that the query names")
        return tuple(self._grouping(name, query.groupings, same) for name in query.columns)

    def _grouping(
        self, name: str, groupings: Mapping[str, Grouping], same: dict[Grouping, Grouping]
    ) -> Grouping:
        column = self._column(name)
        grouping = groupings.get(name)
        if grouping is None:
            return column.grouping
        self._check_fit(grouping, column)
        return same.setdefault(grouping, grouping)

    def _column(self, name: str) -> Column:
        try:
            return self.schema.column(name)
        except KeyError:
            raise QuestionRefused("a query names a column that the dictionary does not") from None

    def _check_fit(self, grouping: Grouping, column: Column) -> None:
        if (grouping.regular, grouping.tail) != (column.regular, column.tail):
            raise QuestionRefused("a grouping does not fit the codes of its column")

    def _check_rule(self, contribution: Contribution) -> None:
        if contribution.rule != "clipped":
            return
        if self.kind == "pure":
            raise QuestionRefused("`clipped` bounds L2 alone; a pure session has no use for it")
        if self.unit.max_rows >= LARGEST_CLIPPED:
            raise QuestionRefused("`clipped` is for units of fewer than 2^21 rows")
        assert contribution.norm is not None
        if clip_radius(contribution.norm, 1) == 0:
            raise QuestionRefused(f"the norm of `clipped` is at least 1/{GRID}")
