"""`aggregate_seeded`: noisy counts of combinations, and rows made item by item to match."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import choose_axes
from app.engine.columns.contribution import UNMEASURED, noise_scale
from app.engine.columns.table_size import Size, size_questions
from app.engine.method import (
    Case,
    Example,
    Limits,
    Needs,
    Problem,
    Progress,
    Session,
    Step,
    Synthesizer,
)
from app.engine.privacy.limits import MOST_ITEMS_OF_UNIT, MOST_STEPS_OF_ROW, steps_of_row
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Quantile, TupleCount, TupleNumber, Tuples
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aggregate_seeded.aggregates import Aggregates, Items, candidates
from app.engine.synthesizers.aggregate_seeded.budget import (
    BudgetWeights,
    CombinationBudget,
    adaptive_threshold,
    first_threshold,
    scale_of,
)
from app.engine.synthesizers.aggregate_seeded.layout import Layout, layout_problems
from app.engine.synthesizers.aggregate_seeded.model import AggregateSeededModel, RowOptions
from app.engine.synthesizers.aggregate_seeded.params import AggregateSeededParams, FixedThresholds
from app.engine.synthesizers.aggregate_seeded.tuning import TUNING
from app.engine.table import PublicTable

# Pairs of items are held in a square array where rows are completed.
MOST_ITEMS = 4096

# 50 microseconds on a two-core machine for Adult, with 14 columns and R = 3.
_SECONDS_PER_ROW = 1e-4

# Items, counts, trees of both sides, noise, and the followers of each part.
_BYTES_PER_TUPLE = 400


class AggregateSeeded(Synthesizer):
    name = "aggregate_seeded"
    title = "Rows built to match noisy counts of combinations"
    reference = (
        "Differentially private aggregation and synthesis, Synthetic Data Showcase"
        " (Microsoft, 2022)"
    )
    Params = AggregateSeededParams
    example = Example(
        params={
            "columns": ["shift", "pickup_community_area", "payment_type"],
            "reporting_length": 2,
        },
        guarantee={"epsilon": 1, "delta": "2.5e-5"},
    )

    def needs(self, case: Case, params: AggregateSeededParams) -> Needs:
        axes, problems = choose_axes(case.schema, params.columns, params.bins)
        if not problems:
            problems += layout_problems(case.schema, axes, params)
        problems += _loss_problems(case.loss) + _item_problems(sum(axes.shape))
        header = Needs(header_cells=axes.header_cells, problems=problems)
        if problems:
            return header + Needs(cells=sum(axes.shape))
        layout, length = Layout.of(case.schema, axes, params), params.reporting_length
        sizes = layout.axis_sizes
        tuples = _most_tuples(sizes, length)
        errors = _errors(_budget(params, case.budget), len(sizes), case.unit)
        counting = Needs(
            cells=tuples,
            memory_bytes=_working_bytes(sizes, length, tuples),
            draws=tuples,
            noise_scale=noise_scale(errors, Contribution()),
            expected_error=errors[0],
            steps=_making_rows(params, case.limits),
            problems=_counting_problems(layout.most_of_row, length, case.unit),
        )
        return Needs.of_table(len(axes.names), case.limits) + header + counting

    def fit(
        self,
        session: Session,
        params: AggregateSeededParams,
        public: PublicTable | None,  # noqa: ARG002
        seed: int,  # noqa: ARG002
        progress: Progress,
    ) -> AggregateSeededModel:
        axes, _ = choose_axes(session.schema, params.columns, params.bins)
        layout = Layout.of(session.schema, axes, params)
        budget = _budget(params, UnitBudget(session.unit, session.allowance))
        progress(0.05, "counting")
        size = _measured_size(session, budget)
        aggregation = _Aggregation(session, layout, params, budget)
        for length in range(1, params.reporting_length + 1):
            aggregation.add_length()
            progress(0.1 + 0.8 * length / params.reporting_length, "counting combinations")
        options = RowOptions(
            params.use_synthetic_counts,
            params.weight_selection_percentile,
            params.aggregate_counts_scale_factor,
            params.target_number_of_records,
            params.complete,
        )
        return AggregateSeededModel(
            layout,
            aggregation.aggregates,
            size,
            options,
            aggregation.unseen_pair,
            aggregation.in_pairs,
        )

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> AggregateSeededModel:
        return AggregateSeededModel.load(schema, unit, data)


class _Aggregation:
    """The counts of combinations, measured length after length.

    Of each length: list the candidates; measure how many a unit may count in; count them with
    noise; keep those above the threshold; cap each at the smallest count of its parts.
    `unseen_pair` is the count that stands for a pair that was not kept. `in_pairs`, shape
    (items,), is the sum of the counts of each item's pairs, if the params use it.
    """

    def __init__(
        self,
        session: Session,
        layout: Layout,
        params: AggregateSeededParams,
        budget: CombinationBudget,
    ) -> None:
        self._session = session
        self._layout = layout
        self._params = params
        self._budget = budget
        self.aggregates = Aggregates(layout.most_items, ())
        self.unseen_pair = 1.0
        self.in_pairs: NDArray[np.int64] | None = None

    def add_length(self) -> None:
        items, limit = self._candidates(), 0
        if len(items):
            limit = self._limit(items)
            items = self._above_threshold(items, limit)
        if not len(items):
            self._add(items, np.zeros(0, dtype=np.int64), 0.0)
            return
        limit = min(limit, self._most_held(items))
        length = items.shape[1]
        answer = self._session.tuples(
            TupleCount(self._tuples(items), limit), self._budget.counts[length - 1]
        )
        threshold = self._threshold(length, limit)
        if length == 2:
            self.unseen_pair = max(threshold / 2, 1.0)
            if _shares(self._params, self._session.unit) == "with_pairs":
                self.in_pairs = self._layout.sums_of_items(items, answer.values)
        self._add(items, answer.values, threshold)

    def _add(self, items: Items, noisy: NDArray[np.int64], threshold: float) -> None:
        self.aggregates = self.aggregates.with_level(items, noisy, threshold)

    def _candidates(self) -> Items:
        if not self.aggregates.levels:
            return self._layout.singles()
        return candidates(self.aggregates.levels[-1], self._layout.axis, TUNING.most_candidates)

    def _limit(self, items: Items) -> int:
        """How many combinations of a unit count: a noisy percentile of those that units hold."""
        most = self._most_held(items)
        points = np.unique(np.rint(np.linspace(0, most, min(most + 1, TUNING.grid_points))))
        query = Quantile(
            TupleNumber(self._tuples(items)),
            self._params.percentile_percentage / 100,
            tuple(points.tolist()),
        )
        percentile = self._session.quantile(query, self._budget.percentiles[items.shape[1] - 1])
        return max(1, int(percentile))

    def _above_threshold(self, items: Items, limit: int) -> Items:
        """The candidates that can be kept: of the others a cap is at or below the threshold."""
        length = items.shape[1]
        if length == 1:
            return items
        return items[self.aggregates.caps(items) > self._threshold(length, limit)]

    def _most_held(self, items: Items) -> int:
        """The most of these that a unit can hold: one for each set of columns and row."""
        sets = np.unique(self._layout.axis[items], axis=0)
        return min(len(sets) * self._session.unit.max_rows, len(items))

    def _threshold(self, length: int, limit: int) -> float:
        sigma = self._budget.sigma(length)
        if length == 1:
            delta = self._params.delta
            return 0.0 if delta is None else first_threshold(sigma, limit, delta)
        if isinstance(self._params.fabrication_mode, FixedThresholds):
            return self._params.fabrication_mode.values[length - 2]
        assert self._params.etas is not None
        return adaptive_threshold(sigma, limit, self._params.etas[length - 2])

    def _tuples(self, items: Items) -> Tuples:
        return Tuples(
            self._layout.axes.names, self._layout.axes.groupings, items, self._layout.parts
        )


def _budget(params: AggregateSeededParams, budget: UnitBudget) -> CombinationBudget:
    size = params.number_of_records_epsilon_proportion
    if size is None:
        size = TUNING.size if budget.unit.kind == "row" else TUNING.size_of_entities
    weights = BudgetWeights(size, params.percentile_epsilon_proportion, params.proportions)
    return weights.split(PrivacyLoss(budget.loss.kind, budget.loss.amount))


def _shares(params: AggregateSeededParams, unit: PrivacyUnit) -> str:
    return params.item_shares or ("singles" if unit.kind == "row" else "with_pairs")


def _errors(budget: CombinationBudget, axes: int, unit: PrivacyUnit) -> tuple[float, ...]:
    """For a count of each length, at the largest limit, and for the number of rows."""
    # Every question is put, and the kernel refuses one without loss.
    if budget.least.amount == 0:
        return (UNMEASURED,)
    of_counts = (
        budget.sigma(length) * math.sqrt(math.comb(axes, length) * unit.max_rows)
        for length in range(1, len(budget.counts) + 1)
    )
    # On an entity unit rows get two thirds of the loss of the size.
    return (*of_counts, scale_of(budget.size) * unit.max_rows * math.sqrt(3 / 2))


def _making_rows(params: AggregateSeededParams, limits: Limits) -> tuple[Step, ...]:
    rows, pointer = limits.rows, "/rows"
    if rows is None:
        rows, pointer = params.target_number_of_records, "/params/target_number_of_records"
    if rows is None:
        return ()
    tries = TUNING.tries if params.complete == "counted" else 1
    return (
        Step(rows * tries * _SECONDS_PER_ROW, f"making {rows} rows", "ask for fewer rows", pointer),
    )


def _counting_problems(items: int, length: int, unit: PrivacyUnit) -> tuple[Problem, ...]:
    """What the kernel refuses."""
    steps = max(steps_of_row(items, size, TUNING.most_candidates) for size in range(1, length + 1))
    if steps <= MOST_STEPS_OF_ROW and items * unit.max_rows <= MOST_ITEMS_OF_UNIT:
        return ()
    return (
        Problem(
            "/params/columns",
            f"combinations of up to {length} of the {items} items that a row can have are too many",
            "choose fewer columns, or a smaller `reporting_length`",
        ),
    )


def _measured_size(session: Session, budget: CombinationBudget) -> Size:
    weights = (1.0,) if session.unit.kind == "row" else (2.0, 1.0)
    answers = session.count(size_questions(session.unit), budget.size, weights)
    return Size.from_answers(session.unit, float(answers[0].values), answers)


def _loss_problems(loss: PrivacyLoss) -> tuple[Problem, ...]:
    if loss.kind == "zcdp":
        return ()
    return (
        Problem(
            "/guarantee",
            "a unit counts in so many combinations that pure noise would be larger than the counts",
            "ask for a guarantee with a delta, or in rho",
        ),
    )


def _item_problems(items: int) -> tuple[Problem, ...]:
    if items <= MOST_ITEMS:
        return ()
    return (
        Problem(
            "/params/columns",
            f"the columns have {items} cells in all; {MOST_ITEMS} are the most",
            "choose fewer columns, or coarser `bins`",
        ),
    )


def _most_tuples(shape: tuple[int, ...], length: int) -> int:
    """The most counts that a run measures."""
    totals = [1] + [0] * length
    for cells in shape:
        for size in range(length, 0, -1):
            totals[size] += totals[size - 1] * cells
    return totals[1] + sum(min(total, TUNING.most_candidates) for total in totals[2:])


def _working_bytes(shape: tuple[int, ...], length: int, tuples: int) -> int:
    parts = sum(math.comb(len(shape), size) for size in range(length))
    items = sum(shape)
    return tuples * _BYTES_PER_TUPLE + items * parts * 8 + items**2 * 20
