"""Quantile bins and found values: what is asked, what it costs, and which cells come out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import EXACT, LIMITS, ROW, quiet, session_on

from app.engine.catalog import registry
from app.engine.columns.frequent_codes import most_counted
from app.engine.columns.private_bins import (
    FAR_CUTS,
    MOST_POINTS,
    AxisPlan,
    delta_for_values,
    plan_axes,
    with_far_cuts,
)
from app.engine.method import Model
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count, Measurement, Quantile
from app.engine.privacy.source import ArraySource
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aim import Aim
from app.engine.synthesizers.aim.params import AimParams
from app.engine.synthesizers.histogram import Histogram, HistogramParams
from app.engine.synthesizers.independent import Independent, IndependentParams
from app.engine.synthesizers.mst import Mst, MstParams
from app.engine.synthesizers.swift import Swift
from app.engine.synthesizers.swift.params import SwiftParams
from app.engine.table import generator

GAUSSIAN = PrivacyLoss.zcdp(10**12)
BUYERS = [
    (Independent(), IndependentParams),
    (Mst(), MstParams),
    (Swift(), SwiftParams),
    (Aim(), AimParams),
    (Histogram(), HistogramParams),
]
BUYER_NAMES = [synthesizer.name for synthesizer, _ in BUYERS]


def incomes(bins: object = None, most: int = 99_999, **keys: object) -> Schema:
    """`income` from 0 to `most`, with 16 quantile bins, and `sex`."""
    income = {
        "name": "income",
        "type": "integer",
        "constraints": {"minimum": 0, "maximum": most, "required": True},
        "bins": bins or {"quantiles": 16},
    }
    sex = {
        "name": "sex",
        "type": "string",
        "constraints": {"enum": ["f", "m"], "required": True},
    }
    return Schema.parse({"fields": [income | keys, sex]})


def plan_of(
    schema: Schema, loss: PrivacyLoss = EXACT, far_cuts: int = 0, **form: object
) -> AxisPlan:
    params = IndependentParams.model_validate(form)
    return plan_axes(schema, params, UnitBudget(ROW, loss), far_cuts=far_cuts)


def quantile_bins(values: np.ndarray, schema: Schema, far_cuts: int = 0) -> tuple[int, ...]:
    """Edges bought without noise on a table of these codes."""
    codes = {"income": values, "sex": np.zeros(len(values), np.int64)}
    plan = plan_of(schema, far_cuts=far_cuts, bins_share=0.5)
    return plan.measure(session_on(schema, codes)).groupings["income"].edges


@dataclass
class Oracle:
    """A session that answers with chosen points of grids, and counts in one chosen cell."""

    schema: Schema
    draws: list[float]
    asked: list[tuple[Quantile | Count, PrivacyLoss]] = field(default_factory=list)

    def quantile(self, query: Quantile, loss: PrivacyLoss) -> float:
        self.asked.append((query, loss))
        return query.grid[int(self._draw() * len(query.grid))]

    def count(self, queries: list[Count], loss: PrivacyLoss) -> tuple[Measurement, ...]:
        (query,) = queries
        self.asked.append((query, loss))
        values = np.zeros(query.groupings["income"].cells, np.int64)
        values[int(self._draw() * len(values))] = 100
        return (Measurement(query, values, "gaussian", 1.0, 1.0, 1.0, 1.0),)

    def _draw(self) -> float:
        return self.draws[len(self.asked) % len(self.draws)]


def test_without_noise_bins_hold_equal_numbers_of_rows() -> None:
    values = np.sort(np.random.default_rng(1).choice(100_000, 8000, replace=False))
    counts, _ = np.histogram(values, quantile_bins(values, incomes()))
    assert len(counts) == 16
    assert np.abs(counts - 500).max() <= 50  # grids leave codes out


def test_bins_follow_rows_that_lie_within_a_millionth_of_the_range() -> None:
    values = 300_000_000 + np.arange(3200) % 400
    counts, _ = np.histogram(values, quantile_bins(values, incomes(most=10**9)))
    assert np.sum(counts >= 100) >= 12


def test_a_mass_becomes_a_cell_and_the_rest_is_divided() -> None:
    values = np.concatenate([np.zeros(9000, np.int64), np.arange(1, 1001) * 10])
    edges = quantile_bins(values, incomes())
    assert edges[:2] == (0, 1)
    counts, _ = np.histogram(values, edges)
    assert counts[0] == 9000
    assert len(counts) >= 8
    assert counts[1:].max() <= 500


@pytest.mark.parametrize("place", [777, 99_999])
def test_a_mass_within_or_at_the_end_of_the_range_is_found(place: int) -> None:
    values = np.concatenate([np.full(3000, place), np.arange(1000) * 99])
    edges = quantile_bins(values, incomes())
    assert place in edges
    assert place + 1 in edges


def test_special_values_other_and_null_are_left_out() -> None:
    schema = incomes(
        special=[0, -1], other=-9, constraints={"minimum": 0, "maximum": 999, "required": False}
    )
    column = schema.column("income")
    tail = np.repeat(np.arange(column.regular, column.codes), 5000)
    edges = quantile_bins(np.concatenate([np.arange(1, 961), tail]), schema)
    counts, _ = np.histogram(np.arange(1, 961), edges)
    assert len(counts) == 16
    assert np.abs(counts - 60).max() <= 12


def test_dates_and_numbers_on_a_grid_are_cut_too() -> None:
    fields = [
        {
            "name": "day",
            "type": "date",
            "constraints": {"minimum": "1999-01-01", "maximum": "2030-12-31", "required": True},
            "bins": "quantiles",
        },
        {
            "name": "fare",
            "type": "number",
            "constraints": {"minimum": -10, "maximum": 1000, "required": True},
            "step": 0.01,
            "bins": {"quantiles": 4},
        },
    ]
    schema = Schema.parse({"fields": fields})
    codes = {"day": 5000 + np.arange(2000) % 100, "fare": 1000 + np.arange(2000)}
    plan = plan_of(schema, bins_share=0.5)
    axes = plan.measure(session_on(schema, codes))
    assert axes.shape == (20, 4)
    counts, _ = np.histogram(codes["fare"], axes.groupings["fare"].edges)
    assert np.abs(counts - 500).max() <= 50


@settings(max_examples=80, deadline=None)
@given(
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=40),
    bins=st.integers(2, 40),
    most=st.sampled_from([0, 1, 2, 7, 300, 10**6, 2**32 - 3]),
    far_cuts=st.sampled_from([0, 1, FAR_CUTS]),
)
def test_whatever_is_answered_the_forecast_and_the_loss_hold(
    draws: list[float], bins: int, most: int, far_cuts: int
) -> None:
    schema = incomes({"quantiles": bins}, most)
    plan = plan_of(schema, GAUSSIAN, far_cuts)
    oracle = Oracle(schema, draws)
    axes = plan.measure(oracle)  # type: ignore[arg-type]
    assert axes.groupings["income"].regular == most + 1
    assert all(got <= told for got, told in zip(axes.shape, plan.axes.shape, strict=True))
    if not far_cuts:
        assert axes.groupings["income"].cells <= bins
    quantiles = [query for query, _ in oracle.asked if isinstance(query, Quantile)]
    counts = [query for query, _ in oracle.asked if isinstance(query, Count)]
    assert len(quantiles) <= bins - 1
    assert len(counts) <= {0: 0, 1: 1, 2: 1, 7: 1, 300: 2, 10**6: 3}.get(most, 4)
    assert len(quantiles) + len(counts) <= plan.questions
    cells = [query.groupings["income"].cells for query in counts]
    assert sum(len(query.grid) for query in quantiles) + sum(cells) <= plan.draws
    assert plan.draws == MOST_POINTS * (bins - 1) + most_counted(most + 1)
    spent = sum(loss.amount for _, loss in oracle.asked)
    assert spent + plan.rest.loss.amount <= GAUSSIAN.amount
    assert {loss for _, loss in oracle.asked} <= {plan.each}
    for query in quantiles:
        assert query.regular_only
        assert 0 <= query.grid[0] <= query.grid[-1] <= most


@pytest.mark.parametrize(
    ("edges", "cut"),
    [
        (
            (0, 500, 510, 530, 1000),
            (0, 190, 350, 430, 470, 490, 500, 510, 530, 550, 590, 670, 830, 1000),
        ),
        ((0, 400, 500, 600, 1000), (0, 100, 300, 400, 500, 600, 700, 900, 1000)),
        ((0, 1, 101, 1000), (0, 1, 101, 201, 401, 801, 1000)),
        ((0, 1, 500, 600, 999, 1000), (0, 1, 200, 400, 500, 600, 700, 900, 999, 1000)),
        ((0, 1, 1000), (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)),
        ((0, 300, 1000), (0, 300, 600, 1000)),
        ((0, 1000), (0, 1000)),
        ((0, 1), (0, 1)),
    ],
)
def test_the_outermost_cells_are_cut_at_distances_that_double(
    edges: tuple[int, ...], cut: tuple[int, ...]
) -> None:
    assert with_far_cuts(edges, FAR_CUTS) == cut
    assert with_far_cuts(edges, 0) == edges


def test_nothing_is_set_aside_where_nothing_is_bought() -> None:
    for plan in (plan_of(incomes(8), GAUSSIAN), plan_of(incomes(), GAUSSIAN, bins={"income": 8})):
        assert plan.each is None
        assert plan.rest.loss == GAUSSIAN
        assert plan.axes.shape == (8, 2)
        assert plan.draws == 0


def test_a_share_of_the_loss_is_divided_over_the_quantiles_of_all_columns() -> None:
    plan = plan_of(incomes(), GAUSSIAN, bins_share=0.3)
    assert plan.rest.loss.amount == pytest.approx(0.7 * GAUSSIAN.amount, abs=2)
    assert plan.questions == 15 + 3  # three counts lead to single codes among 100,000
    assert plan.each is not None
    assert plan.each.amount == int(0.3 * GAUSSIAN.amount) // 18


@pytest.mark.parametrize(("synthesizer", "form"), BUYERS, ids=BUYER_NAMES)
@pytest.mark.parametrize("loss", [GAUSSIAN, PrivacyLoss.pure(10**13)], ids=["zcdp", "pure"])
@pytest.mark.parametrize("kind", ["row", "entity"])
def test_a_fit_spends_all_and_draws_rows_within_the_range(
    synthesizer: object, form: object, loss: PrivacyLoss, kind: str
) -> None:
    schema, unit, entities = incomes(), ROW, None
    if kind == "entity":
        wire = schema.to_wire()
        wire["fields"].append({"name": "id", "type": "string", "role": "entity"})
        schema, unit = Schema.parse(wire), PrivacyUnit("entity", "id", 3)
        entities = np.arange(4000) // 2
    rng = np.random.default_rng(5)
    income = np.minimum(rng.lognormal(8, 1, 4000), 99_999).astype(np.int64)
    session = session_on(schema, {"income": income, "sex": income % 2}, loss, unit, entities)
    model: Model = synthesizer.fit(session, form(), None, 1, quiet)  # type: ignore[attr-defined, operator]
    assert session.remaining.amount <= 40, "all is spent but what rounding down leaves"
    loaded: Model = synthesizer.load(schema, unit, model.dump())  # type: ignore[attr-defined]
    drawn = loaded.sample(4000, generator(2)).codes["income"]
    # A fifth of the budget's noise aside, the median of 4000 rows is far within these.
    assert 2000 < np.median(drawn) < 4500
    preflight = synthesizer.check(schema, unit, form(), loss, None, LIMITS)  # type: ignore[attr-defined, operator]
    assert not preflight.problems
    assert preflight.cells >= 18


def test_bins_are_as_good_as_public_ones_made_for_the_table() -> None:
    """A heavy tail over a wide public range: equal bins put nearly all rows into one."""
    rng = np.random.default_rng(6)
    income = np.minimum(rng.lognormal(7, 1, 20_000), 99_999).astype(np.int64)
    fine = np.unique(np.quantile(income, np.linspace(0, 1, 41)))

    def distance(bins: object) -> float:
        schema = incomes(bins)
        session = session_on(schema, {"income": income, "sex": income % 2}, GAUSSIAN)
        model = Independent().fit(session, IndependentParams(), None, 1, quiet)
        drawn = model.sample(20_000, generator(3)).codes["income"]
        shares = [np.histogram(each, fine)[0] / 20_000 for each in (income, drawn)]
        return float(np.abs(shares[0] - shares[1]).sum() / 2)

    assert distance(20) > 0.3
    assert distance({"quantiles": 20}) < 0.08


@pytest.mark.parametrize("loss", [PrivacyLoss.zcdp(2), PrivacyLoss.pure(14)])
def test_noise_beyond_what_can_be_drawn_is_told(loss: PrivacyLoss) -> None:
    pointers = [problem.pointer for problem in plan_of(incomes(), loss).problems]
    assert pointers == ["/params/bins_share"]


@pytest.mark.parametrize("name", ["aggregate_seeded", "linked_histograms"])
def test_who_does_not_buy_says_so(name: str) -> None:
    synthesizer = registry.builtin(name)
    form = {"groups": [{"columns": ["income", "sex"]}]} if name == "linked_histograms" else {}
    for bins, refused in (({}, True), ({"income": 8}, False)):
        params = synthesizer.Params.model_validate({**form, "bins": bins})
        found = synthesizer.check(incomes(), ROW, params, GAUSSIAN, None, LIMITS).problems
        assert ("/params/bins/income" in [each.pointer for each in found]) is refused


TOWNS = Schema.parse(
    {
        "fields": [
            {"name": "town", "type": "string", "values": {"discover": 30}, "other": "Other"},
            {
                "name": "sex",
                "type": "string",
                "constraints": {"enum": ["f", "m"], "required": True},
            },
        ]
    }
)
APPROXIMATE = PrivacyLoss.zcdp(10**12, 10**11)


def test_values_take_their_share_and_all_of_the_delta_set_aside() -> None:
    plan = plan_of(TOWNS, APPROXIMATE, values_share=0.2)
    assert plan.value == PrivacyLoss.zcdp(2 * 10**11, 10**11)
    assert plan.rest.loss.amount == pytest.approx(8 * 10**11, abs=2)
    assert plan.rest.loss.delta == 0
    assert plan.axes.shape == (32, 2)
    assert not plan.problems
    assert delta_for_values(TOWNS, IndependentParams()) == 0.1
    without = IndependentParams(columns=("sex",))
    assert delta_for_values(TOWNS, without) == 0
    assert plan_axes(TOWNS, without, UnitBudget(ROW, APPROXIMATE)).value is None


@pytest.mark.parametrize(
    ("loss", "pointer"),
    [
        (PrivacyLoss.pure(10**12), "/guarantee"),
        (GAUSSIAN, "/guarantee"),
        (PrivacyLoss.zcdp(1, 10**11), "/guarantee"),
    ],
)
def test_values_cannot_be_found_without_delta_or_loss(loss: PrivacyLoss, pointer: str) -> None:
    problems = plan_of(TOWNS, loss).problems
    assert [problem.pointer for problem in problems] in ([pointer], ["/params/values_share"])


@pytest.mark.parametrize(("synthesizer", "form"), BUYERS, ids=BUYER_NAMES)
@pytest.mark.parametrize("kind", ["row", "entity"])
def test_rows_have_the_values_that_were_found(synthesizer: object, form: object, kind: str) -> None:
    schema, unit, entities = TOWNS, ROW, None
    if kind == "entity":
        wire = schema.to_wire()
        wire["fields"].append({"name": "id", "type": "string", "role": "entity"})
        schema, unit = Schema.parse(wire), PrivacyUnit("entity", "id", 3)
        entities = np.arange(1101) // 2
    towns = ["Ur"] * 600 + ["Kish"] * 500 + ["Zzyzx"]
    codes = {"town": np.zeros(1101, np.int64), "sex": np.arange(1101) % 2}
    source = ArraySource(schema, unit, codes, entities, texts={"town": towns})
    session = LocalSession(Kernel(source, APPROXIMATE))
    model: Model = synthesizer.fit(session, form(), None, 1, quiet)  # type: ignore[attr-defined, operator]
    assert session.remaining == PrivacyLoss.zcdp(session.remaining.amount)
    assert session.remaining.amount <= 40
    loaded: Model = synthesizer.load(session.schema, unit, model.dump())  # type: ignore[attr-defined]
    drawn = session.schema.column("town").decode(loaded.sample(1000, generator(2)).codes["town"])
    told = dict(zip(*np.unique(drawn.fill_null("").to_pylist(), return_counts=True), strict=True))
    assert set(told) <= {"Kish", "Ur", "Other", ""}
    assert told["Ur"] == pytest.approx(545, abs=90)
    assert synthesizer.check(schema, unit, form(), APPROXIMATE, None, LIMITS).problems == ()  # type: ignore[attr-defined, operator]


@pytest.mark.parametrize(
    ("name", "pointer"),
    [("aggregate_seeded", "/params/columns"), ("linked_histograms", "/params/groups")],
)
def test_a_synthesizer_that_does_not_find_values_says_so(name: str, pointer: str) -> None:
    synthesizer = registry.builtin(name)
    form = {"groups": [{"columns": ["town", "sex"]}]} if name == "linked_histograms" else {}
    params = synthesizer.Params.model_validate(form)
    found = synthesizer.check(TOWNS, ROW, params, APPROXIMATE, None, LIMITS)
    assert pointer in [problem.pointer for problem in found.problems]
