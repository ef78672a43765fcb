"""`aggregate_seeded`: noisy counts of combinations, and rows made item by item to match."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import choose_axes
from app.engine.columns.contribution import UNMEASURED, noise_problems
from app.engine.columns.resources import message_problems, run_problems, table_bytes
from app.engine.columns.table_size import Size, size_questions
from app.engine.method import (
    Example,
    Limits,
    Preflight,
    Problem,
    Progress,
    PublicFacts,
    Session,
    Synthesizer,
)
from app.engine.privacy.limits import MOST_ITEMS_OF_UNIT, MOST_STEPS_OF_ROW, steps_of_row
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Quantile, TupleCount, TupleNumber, Tuples
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aggregate_seeded.aggregates import Aggregates, Items, candidates
from app.engine.synthesizers.aggregate_seeded.budget import (
    Division,
    adaptive_threshold,
    divided,
    first_threshold,
    scale_of,
)
from app.engine.synthesizers.aggregate_seeded.completion import TRIES
from app.engine.synthesizers.aggregate_seeded.layout import Layout, layout_problems
from app.engine.synthesizers.aggregate_seeded.model import AggregateSeededModel, Making
from app.engine.synthesizers.aggregate_seeded.params import (
    AggregateSeededParams,
    FixedThresholds,
)
from app.engine.table import PublicTable

MOST_ITEMS = 4096
MOST_TUPLES = 100_000
"""Candidates of one length; beyond, the parts of the smallest counts are left out."""

_GRID_POINTS = 2000
_SECONDS_PER_ROW = 1e-4
"""On Adult, with 14 columns and R = 3, 50 microseconds on a two-core machine."""

_BYTES_PER_TUPLE = 400
"""Items, counts, trees of both sides, noise, and the followers of each part."""


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

    def check(
        self,
        schema: Schema,
        unit: PrivacyUnit,
        params: AggregateSeededParams,
        loss: PrivacyLoss,
        public: PublicFacts | None,  # noqa: ARG002
        limits: Limits,
    ) -> Preflight:
        axes, problems = choose_axes(schema, params.columns, params.bins)
        if not problems:
            problems += layout_problems(schema, axes, params)
        problems += message_problems(axes)
        problems += _loss_problems(loss) + _item_problems(sum(axes.shape))
        if problems:
            return Preflight(sum(axes.shape), 0, 0.0, problems)
        layout = Layout.of(schema, axes, params)
        sizes = layout.axis_sizes
        tuples = _most_tuples(sizes, params.reporting_length)
        memory = table_bytes(len(axes.names), limits) + _working_bytes(
            sizes, params.reporting_length, tuples
        )
        division = _division(params, UnitBudget(unit, loss))
        errors = _expected_errors(division, len(sizes), unit, params.reporting_length)
        problems = (
            noise_problems(errors, Contribution())
            + _row_problems(params, limits)
            + _counting_problems(layout.most_of_row, params.reporting_length, unit)
            + run_problems(memory, tuples, limits, len(axes.names))
        )
        return Preflight(tuples, memory, errors[0], problems)

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
        division = _division(params, UnitBudget(session.unit, session.allowance))
        progress(0.05, "counting")
        size = _measured_size(session, division)
        aggregation = _Aggregation(session, layout, params, division)
        for length in range(1, params.reporting_length + 1):
            aggregation.add_length()
            progress(0.1 + 0.8 * length / params.reporting_length, "counting combinations")
        making = Making(
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
            making,
            aggregation.unseen_pair,
            aggregation.in_pairs,
        )

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> AggregateSeededModel:
        return AggregateSeededModel.load(schema, unit, data)


class _Aggregation:
    """Length after length: list candidates, buy a limit, count, keep, cap."""

    def __init__(
        self, session: Session, layout: Layout, params: AggregateSeededParams, division: Division
    ) -> None:
        self._session = session
        self._layout = layout
        self._params = params
        self._division = division
        self.aggregates = Aggregates(layout.most_items, ())
        self.unseen_pair = 1.0
        self.in_pairs: NDArray[np.int64] | None = None
        """Of each item, the counts of pairs that hold it; None where shares are of singles."""

    def add_length(self) -> None:
        items = self._candidates()
        if not len(items):
            self._add(items, np.zeros(0, dtype=np.int64), 0.0)
            return
        limit = self._limit(items)
        items = self._above_threshold(items, limit)
        if not len(items):
            self._add(items, np.zeros(0, dtype=np.int64), 0.0)
            return
        limit = min(limit, self._most_held(items))
        length = items.shape[1]
        answer = self._session.tuples(
            TupleCount(self._tuples(items), limit), self._division.counts[length - 1]
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
        return candidates(self.aggregates.levels[-1], self._layout.axis, MOST_TUPLES)

    def _limit(self, items: Items) -> int:
        """How many combinations of one unit count: a bought percentile of what units hold."""
        most = self._most_held(items)
        points = np.unique(np.rint(np.linspace(0, most, min(most + 1, _GRID_POINTS))))
        query = Quantile(
            TupleNumber(self._tuples(items)),
            self._params.percentile_percentage / 100,
            tuple(points.tolist()),
        )
        bought = self._session.quantile(query, self._division.quantiles[items.shape[1] - 1])
        return max(1, int(bought))

    def _above_threshold(self, items: Items, limit: int) -> Items:
        """Without candidates that would be capped below the threshold in any case."""
        length = items.shape[1]
        if length == 1:
            return items
        return items[self.aggregates.caps(items) > self._threshold(length, limit)]

    def _most_held(self, items: Items) -> int:
        """The most of these that a unit can hold: one for each choice of columns and row."""
        choices = np.unique(self._layout.axis[items], axis=0)
        return min(len(choices) * self._session.unit.max_rows, len(items))

    def _threshold(self, length: int, limit: int) -> float:
        sigma = self._division.sigma(length)
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


def _division(params: AggregateSeededParams, budget: UnitBudget) -> Division:
    share = params.number_of_records_epsilon_proportion
    if share is None:
        share = 0.005 if budget.unit.kind == "row" else 0.06
    spendable = PrivacyLoss(budget.loss.kind, budget.loss.amount)
    return divided(spendable, share, params.percentile_epsilon_proportion, params.proportions)


def _shares(params: AggregateSeededParams, unit: PrivacyUnit) -> str:
    return params.item_shares or ("singles" if unit.kind == "row" else "with_pairs")


def _expected_errors(
    division: Division, axes: int, unit: PrivacyUnit, length: int
) -> tuple[float, ...]:
    """Of a count of each length, at the largest limit, and of the number of rows."""
    if division.smallest == 0:
        return (UNMEASURED,)
    of_counts = (
        division.sigma(size) * math.sqrt(math.comb(axes, size) * unit.max_rows)
        for size in range(1, length + 1)
    )
    return (*of_counts, scale_of(division.sizes) * unit.max_rows * math.sqrt(3 / 2))


def _row_problems(params: AggregateSeededParams, limits: Limits) -> tuple[Problem, ...]:
    rows = limits.rows if limits.rows is not None else params.target_number_of_records
    tries = TRIES if params.complete == "counted" else 1
    if rows is None or rows * tries * _SECONDS_PER_ROW <= limits.time_s / 2:
        return ()
    return (
        Problem(
            "/rows" if limits.rows is not None else "/params/target_number_of_records",
            f"making {rows} rows would take about {round(rows * tries * _SECONDS_PER_ROW)} seconds",
            "ask for fewer rows",
        ),
    )


def _counting_problems(items: int, length: int, unit: PrivacyUnit) -> tuple[Problem, ...]:
    """What the kernel would refuse."""
    steps = max(steps_of_row(items, size, MOST_TUPLES) for size in range(1, length + 1))
    if steps <= MOST_STEPS_OF_ROW and items * unit.max_rows <= MOST_ITEMS_OF_UNIT:
        return ()
    return (
        Problem(
            "/params/columns",
            f"combinations of up to {length} of the {items} items that a row can have are too many",
            "choose fewer columns, or a smaller `reporting_length`",
        ),
    )


def _measured_size(session: Session, division: Division) -> Size:
    shares = (1.0,) if session.unit.kind == "row" else (2.0, 1.0)
    answers = session.count(size_questions(session.unit), division.sizes, shares)
    return Size.from_answers(session.unit, float(answers[0].values), answers)


def _loss_problems(loss: PrivacyLoss) -> tuple[Problem, ...]:
    if loss.kind == "zcdp":
        return ()
    return (
        Problem(
            "/guarantee",
            "a unit counts in so many combinations that pure noise would drown them",
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
    """The most counts that a run asks for."""
    totals = [1] + [0] * length
    for cells in shape:
        for size in range(length, 0, -1):
            totals[size] += totals[size - 1] * cells
    return totals[1] + sum(min(total, MOST_TUPLES) for total in totals[2:])


def _working_bytes(shape: tuple[int, ...], length: int, tuples: int) -> int:
    parts = sum(math.comb(len(shape), size) for size in range(length))
    items = sum(shape)
    return tuples * _BYTES_PER_TUPLE + items * parts * 8 + items**2 * 20
