"""What is bought of entities, the rule chosen from it, and the entities of a synthetic table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_tables import EXACT, LIMITS, ROW, colours, digits, quiet, session_on

from app.engine.catalog import registry
from app.engine.columns.axes import Axes, choose_axes
from app.engine.entities.assignment import distinct_values, rows_of_values
from app.engine.entities.contribution_choice import chosen_rule
from app.engine.entities.measurement import (
    MeasuredEntities,
    cheapest_cut,
    plan_entities,
    row_groups,
    value_edges,
)
from app.engine.entities.model import Entities
from app.engine.entities.params import EntityForm, chosen_columns
from app.engine.entities.profiles import ColumnProfile, RowsPerEntity, row_edges
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.mst import Mst, MstParams
from app.engine.table import generator

Ints = NDArray[np.int64]

HOUSEHOLD = PrivacyUnit("entity", "id", 40)
RHO = PrivacyLoss.zcdp(10**12)


def schema() -> Schema:
    wire = digits({"place": 30, "day": 7, "flag": 2, "home": 12}).to_wire()
    return Schema.parse(
        {**wire, "fields": [{"name": "id", "type": "string", "role": "entity"}, *wire["fields"]]}
    )


def households(count: int = 600, seed: int = 0) -> tuple[dict[str, Ints], Ints]:
    """Households of 1 to 20 rows with one home, and places of which each likes few."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(count), rng.integers(1, 21, count))
    liked = rng.integers(0, 30, (count, 4))
    codes = {
        "place": liked[owner, np.minimum(rng.geometric(0.5, len(owner)) - 1, 3)],
        "day": rng.integers(0, 7, len(owner)),
        "flag": rng.integers(0, 2, len(owner)),
        "home": rng.integers(0, 12, count)[owner],
    }
    return codes, owner


def session(loss: PrivacyLoss = EXACT) -> LocalSession:
    codes, owner = households()
    return session_on(schema(), codes, loss, HOUSEHOLD, owner)


def axes() -> Axes:
    return choose_axes(schema(), None, {})[0]


def bought(loss: PrivacyLoss = EXACT, form: EntityForm | None = None) -> MeasuredEntities:
    opened = session(loss)
    plan = plan_entities(
        axes(), form or EntityForm(share=0.5), UnitBudget(HOUSEHOLD, opened.allowance)
    )
    found = plan.measure(opened)
    assert found is not None
    return found


def apart(one: Ints, other: Ints) -> float:
    """The total variation distance of two samples of whole numbers."""
    most = int(max(one.max(), other.max())) + 1
    shares = [np.bincount(each, minlength=most) / len(each) for each in (one, other)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


@given(st.integers(2, 10**6))
def test_cells_of_rows_cover_every_number_once_and_end_with_the_bound(most: int) -> None:
    edges = row_edges(most)
    assert (edges[0], edges[-2], edges[-1]) == (1, most, most + 1)
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= 70


@given(st.integers(1, 5000), st.integers(4, 64))
def test_cells_of_distinct_values_are_as_few_as_asked(most: int, cells: int) -> None:
    edges = value_edges(most, cells)
    assert (edges[0], edges[-1]) == (1, most + 1)
    assert (np.diff(edges) > 0).all()
    assert len(edges) - 1 <= cells


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 50), min_size=22, max_size=22).filter(any),
    st.integers(1, 60),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_sizes_add_up_to_the_rows_and_stay_within_their_bound(
    weights: list[int], entities: int, fullness: float, seed: int
) -> None:
    edges = row_edges(185)
    histogram = RowsPerEntity(edges, np.resize(np.array(weights, dtype=float), len(edges) - 1))
    rows = entities + round(fullness * entities * 184)
    sizes = histogram.sizes(entities, rows, 185, np.random.default_rng(seed))
    assert sizes.shape == (entities,)
    assert sizes.sum() == rows
    assert sizes.min() >= 1
    assert sizes.max() <= 185


def test_sizes_follow_the_histogram_where_it_tells_the_mean() -> None:
    edges = row_edges(20)
    weights = np.exp(-0.3 * edges[:-1])
    histogram = RowsPerEntity(edges, weights)
    entities = 20_000
    sizes = histogram.sizes(
        entities, round(histogram.mean * entities), 20, np.random.default_rng(0)
    )
    cells = np.searchsorted(edges, sizes, side="right") - 1
    found = np.bincount(cells, minlength=len(weights)) / entities
    assert np.abs(found - weights / weights.sum()).max() < 0.001


def test_groups_of_rows_hold_about_as_many_entities_each() -> None:
    histogram = RowsPerEntity(row_edges(8), np.full(8, 100.0))
    assert row_groups(histogram, 4).tolist() == [1, 3, 5, 7, 9]
    assert row_groups(histogram, 1).tolist() == [1, 9]


def test_the_columns_looked_at_are_those_named_or_the_widest_without_bins() -> None:
    assert chosen_columns(EntityForm(), axes()) == ("place", "day", "home")
    assert chosen_columns(EntityForm(distinct=("flag",)), axes()) == ("flag",)
    coloured, _ = choose_axes(colours(), None, {})
    assert chosen_columns(EntityForm(), coloured) == ("colour", "size", "fare")


def test_a_column_that_is_not_chosen_cannot_be_looked_at() -> None:
    plan = plan_entities(axes(), EntityForm(distinct=("nothing",)), UnitBudget(HOUSEHOLD, RHO))
    assert [problem.pointer for problem in plan.problems] == ["/params/entities/distinct/0"]


@pytest.mark.parametrize("unit", [ROW, PrivacyUnit("entity", "id", 1)])
def test_units_of_one_row_are_asked_nothing(unit: PrivacyUnit) -> None:
    plan = plan_entities(axes(), EntityForm(), UnitBudget(unit, RHO))
    assert plan.rest == UnitBudget(unit, RHO)
    assert plan.measure(session()) is None


@pytest.mark.parametrize("loss", [EXACT, PrivacyLoss.zcdp(10**18)])
def test_without_noise_the_numbers_of_entities_and_rows_are_exact(loss: PrivacyLoss) -> None:
    _, owner = households()
    size = bought(loss).size
    assert size.entities == 600
    assert size.rows == pytest.approx(len(owner), rel=0.01)


def test_without_noise_rows_per_entity_are_as_they_are() -> None:
    _, owner = households()
    histogram = bought().entities.rows
    real = np.histogram(np.bincount(owner), histogram.edges)[0]
    assert np.abs(histogram.weights - real).sum() < 0.02 * 600


def test_without_noise_drawn_entities_have_as_many_distinct_values() -> None:
    codes, owner = households()
    entities = bought().entities
    sizes = np.bincount(owner)
    drawn = {
        profile.column: profile.draw(sizes, np.random.default_rng(1))
        for profile in entities.profiles
    }
    for name in ("place", "home"):
        real = distinct_values(owner, codes[name], 600)
        assert apart(drawn[name].distinct, real) < 0.12
        assert drawn[name].distinct.mean() == pytest.approx(real.mean(), rel=0.05)


def test_no_more_is_spent_than_was_planned() -> None:
    opened = session(RHO)
    plan = plan_entities(axes(), EntityForm(share=0.3), UnitBudget(HOUSEHOLD, opened.allowance))
    plan.measure(opened)
    assert plan.rest.loss.amount <= opened.remaining.amount <= 0.7 * RHO.amount + 10


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([10**6, 10**9, 10**11]), st.booleans())
def test_any_noise_makes_entities_that_can_be_drawn(amount: int, is_pure: bool) -> None:
    loss = PrivacyLoss.pure(amount) if is_pure else PrivacyLoss.zcdp(amount)
    entities = bought(loss).entities
    sizes, targets = entities.drawn(50, generator(0))
    for target in targets:
        assert target.squares is not None
        assert (target.distinct >= 1).all()
        assert (target.distinct <= sizes).all()
        assert (target.squares * target.distinct >= sizes**2).all()
        assert (target.squares <= sizes**2).all()
    chosen_rule(entities, 50.0, 4, UnitBudget(HOUSEHOLD, loss))


def test_rows_are_counted_up_to_where_the_histogram_tells_of_them_at_less_noise() -> None:
    edges = row_edges(200)
    histogram = RowsPerEntity(edges, np.where(edges[:-1] < 20, 50.0, 0.0))
    unit = PrivacyUnit("entity", "id", 200)
    told = np.where(edges[:-1] < 60, 1.0, 0.001)
    assert 1 < cheapest_cut(histogram, told, UnitBudget(unit, PrivacyLoss.zcdp(10**10))) < 100
    assert cheapest_cut(histogram, np.zeros(len(told)), UnitBudget(unit, RHO)) == 1
    assert cheapest_cut(histogram, np.full(len(told), 1e9), UnitBudget(unit, RHO)) == 200


def test_where_there_is_next_to_no_noise_nothing_is_lost() -> None:
    rule = chosen_rule(bought().entities, 600.0, 4, UnitBudget(HOUSEHOLD, PrivacyLoss.zcdp(10**18)))
    assert rule.rule == "rows" or (rule.norm or 0) >= 15


def test_the_less_is_spent_the_more_is_clipped() -> None:
    entities = bought().entities
    norms = [
        chosen_rule(entities, 600.0, 4, UnitBudget(HOUSEHOLD, PrivacyLoss.zcdp(rho))).norm or 40
        for rho in (10**9, 10**11, 10**13)
    ]
    assert norms == sorted(norms)
    assert norms[0] < norms[-1]


def test_pure_guarantees_get_rules_that_they_can_have() -> None:
    entities = bought().entities
    rules = {
        chosen_rule(entities, 600.0, 4, UnitBudget(HOUSEHOLD, PrivacyLoss.pure(epsilon))).rule
        for epsilon in (10**11, 10**12, 10**14)
    }
    assert rules <= {"distinct", "rows"}


@pytest.mark.parametrize("name", ["independent", "mst", "swift", "aim"])
def test_synthetic_entities_are_like_the_real_ones(name: str) -> None:
    codes, owner = households()
    synthesizer = registry.builtin(name)
    params = synthesizer.Params()
    opened = session()
    assert not synthesizer.check(
        schema(), HOUSEHOLD, params, opened.allowance, None, LIMITS
    ).problems
    model = synthesizer.fit(opened, params, None, 0, quiet)
    table = synthesizer.load(schema(), HOUSEHOLD, model.dump()).sample(None, generator(1))
    assert table.entity is not None
    found = np.bincount(table.entity)
    assert table.rows == pytest.approx(len(owner), rel=0.01)
    assert found.min() >= 1
    assert found.max() <= HOUSEHOLD.max_rows
    assert apart(found, np.bincount(owner)) < 0.15
    shuffled = np.random.default_rng(2).permutation(table.entity)
    for column in ("place", "home"):
        real = rows_of_values(owner, codes[column])[1]
        ours = rows_of_values(table.entity, table.codes[column])[1]
        at_random = rows_of_values(shuffled, table.codes[column])[1]
        assert apart(ours, real) < 0.5 * apart(at_random, real)


def test_rows_are_the_same_with_entities_and_without() -> None:
    model = Mst().fit(session(), MstParams(), None, 0, quiet)
    with_entities = model.sample(500, generator(3))
    without = replace(model, entities=None).sample(500, generator(3))
    for name, column in with_entities.codes.items():
        assert np.array_equal(column, without.codes[name])


def test_a_larger_sample_has_more_entities_of_the_same_kind() -> None:
    model = Mst().fit(session(), MstParams(), None, 0, quiet)
    table = model.sample(20_000, generator(3))
    assert table.entity is not None
    assert table.entity.max() + 1 == pytest.approx(20_000 * 600 / model.size.rows, abs=1)
    assert model.sample(0, generator(0)).rows == 0


def changed(data: bytes, arrays: Mapping[str, Any], header: Mapping[str, Any]) -> bytes:
    old_header, old_arrays = unpack(data)
    return pack({**old_header, **header}, {**old_arrays, **arrays})


@pytest.mark.parametrize(
    ("arrays", "header"),
    [
        ({}, {"entities": ["nothing"]}),
        ({}, {"entities": ["place", "place", "day"]}),
        ({}, {"entities": "place"}),
        ({}, {"entities": None}),
        ({"rows_edges": np.array([1, 2, 400])}, {}),
        ({"rows_edges": np.array([2, 1])}, {}),
        ({"rows_weights": np.zeros(20)}, {}),
        ({"habit0_values": np.array([1.0, 2.0])}, {}),
        ({"habit0_ratios": np.array([2.0, 1.0])}, {}),
        ({"habit0_deviations": np.array([0.5, 3.0])}, {}),
        ({"habit1_spread": np.full((1, 1), np.nan)}, {}),
        ({"habit2_distinct": np.full((1, 1), -1.0)}, {}),
    ],
)
def test_stored_entities_that_cannot_be_are_refused(
    arrays: Mapping[str, Any], header: Mapping[str, Any]
) -> None:
    data = Mst().fit(session(), MstParams(), None, 0, quiet).dump()
    with pytest.raises(ModelFormatError):
        Mst().load(schema(), HOUSEHOLD, changed(data, arrays, header))


def test_entities_of_a_row_unit_are_refused() -> None:
    data = Mst().fit(session(), MstParams(), None, 0, quiet).dump()
    with pytest.raises(ModelFormatError):
        Mst().load(schema(), ROW, data)


def test_what_is_forecast_holds_for_any_rule_that_may_be_chosen() -> None:
    loss = PrivacyLoss.zcdp(10**9)
    asked = {"entities": {"share": 0.1}}
    told = Mst().check(schema(), HOUSEHOLD, MstParams(**asked), loss, None, LIMITS)
    clipped = {"contribution": {"rule": "clipped", "norm": 5}, **asked}
    fixed = Mst().check(schema(), HOUSEHOLD, MstParams(**clipped), loss, None, LIMITS)
    assert told.expected_error > fixed.expected_error


def test_the_entities_of_a_model_name_their_columns() -> None:
    entities = bought().entities
    assert entities.columns == ("place", "day", "home")
    assert isinstance(entities, Entities)
    assert all(isinstance(profile, ColumnProfile) for profile in entities.profiles)


@pytest.mark.parametrize("loss", [EXACT, RHO])
def test_a_table_without_rows_has_entities_where_rows_are_asked_for(loss: PrivacyLoss) -> None:
    nothing = np.zeros(0, dtype=np.int64)
    codes = dict.fromkeys(axes().names, nothing)
    opened = session_on(schema(), codes, loss, HOUSEHOLD, nothing)
    table = Mst().fit(opened, MstParams(), None, 0, quiet).sample(100, generator(0))
    assert table.entity is not None
    assert np.bincount(table.entity).min() >= 1
    assert np.bincount(table.entity).max() <= HOUSEHOLD.max_rows


def questions_of_a_run(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    opened = session()
    asked: list[Any] = []
    count = opened.count

    def heard(queries: Any, *rest: Any) -> Any:
        asked.extend(queries)
        return count(queries, *rest)

    monkeypatch.setattr(opened, "count", heard)
    plan_entities(axes(), EntityForm(share=0.5), UnitBudget(HOUSEHOLD, opened.allowance)).measure(
        opened
    )
    return asked


def test_a_run_that_meets_the_same_answers_asks_the_same_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = questions_of_a_run(monkeypatch)
    assert asked == questions_of_a_run(monkeypatch)
    assert len(asked) == 3 + 2 * 3
