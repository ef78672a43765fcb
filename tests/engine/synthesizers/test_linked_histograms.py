from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_tables import EXACT, LIMITS, ROW, quiet, session_on

from app.engine.method import Limits, Preflight, PublicFacts
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.privacy.accounting import open_guarantee
from app.engine.privacy.loss import Accountant, Guarantee, PrivacyLoss
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.linked_histograms import LinkedHistograms, LinkedHistogramsModel
from app.engine.synthesizers.linked_histograms.params import LinkedHistogramsParams
from app.engine.synthesizers.linked_histograms.planning import make_plan, samples_of
from app.engine.table import PublicTable, Table, generator

CAB = PrivacyUnit("entity", "cab", 8)
GAUSSIAN = PrivacyLoss.zcdp(10**12)
LAPLACE = PrivacyLoss.pure(10**12)
EARLY_LATE = {"groups": [{"columns": ["zone", "to"]}, {"columns": ["seconds", "fare"]}]}
LINK = {"given": ["zone", "to"], "value": "seconds"}


def trips(entity: bool = True, **more: object) -> Schema:
    """`zone` and `to` (0 to 3), `firm` (a, b, c), `seconds` (0 to 99), `fare`, `tip`, `sum`."""

    def whole(name: str, most: int, **keys: object) -> dict[str, object]:
        limits = {"minimum": 0, "maximum": most, "required": True}
        return {"name": name, "type": "integer", "constraints": limits, **keys}

    firm = {"enum": ["a", "b", "c"], "required": True}
    fields = [
        whole("zone", 3),
        whole("to", 3),
        {"name": "firm", "type": "string", "constraints": firm},
        whole("seconds", 99),
        whole("fare", 50),
        whole("tip", 20),
        whole("sum", 60),
    ]
    if entity:
        fields.insert(0, {"name": "cab", "type": "string", "role": "entity"})
    return Schema.parse({"fields": fields, **more})


def codes(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Seconds are 25 times the zone, give or take 2; the fare is the tens of seconds."""
    rng = np.random.default_rng(seed)
    zone, to, tip = (rng.integers(0, most, rows) for most in (4, 4, 6))
    seconds = np.clip(25 * zone + rng.integers(0, 3, rows), 0, 99)
    firm = rng.integers(0, 2, rows)
    fare = seconds // 10
    columns = {"zone": zone, "to": to, "firm": firm, "seconds": seconds, "fare": fare, "tip": tip}
    return columns | {"sum": np.minimum(fare + tip, 60)}


def params(**form: object) -> LinkedHistogramsParams:
    return LinkedHistogramsParams.model_validate(form)


def public(rows: int = 400) -> PublicTable:
    return PublicTable(trips(), Table(codes(rows, 5), rows, np.arange(rows) % 80))


def fit(
    form: dict[str, Any],
    loss: PrivacyLoss = EXACT,
    rows: int = 400,
    prior: PublicTable | None = None,
    unit: PrivacyUnit = CAB,
) -> LinkedHistogramsModel:
    entity = unit.kind == "entity"
    owners = np.arange(rows) % 100 if entity else None
    session = session_on(trips(entity), codes(rows), loss, unit, owners)
    return LinkedHistograms().fit(session, params(**form), prior, 3, quiet)


def check(
    loss: PrivacyLoss = GAUSSIAN,
    schema: Schema | None = None,
    unit: PrivacyUnit = CAB,
    facts: PublicFacts | None = None,
    **form: object,
) -> Preflight:
    chosen = trips(unit.kind == "entity") if schema is None else schema
    return LinkedHistograms().check(chosen, unit, params(**form), loss, facts, LIMITS)


def pointers(found: Preflight) -> list[str]:
    return [problem.pointer for problem in found.problems]


# The published numbers


@pytest.mark.parametrize(("samples", "norm"), [(2, 6 + 2), (3, 9 + 2), (4, 12 + 2)])
def test_all_questions_carry_the_noise_of_one_joint_release(samples: int, norm: int) -> None:
    groups = [{"columns": ["zone"]}, {"columns": ["to", "firm"]}, {"columns": ["seconds"]}]
    form = params(groups=groups, samples=samples)
    for loss in (GAUSSIAN, LAPLACE):
        session = session_on(trips(), codes(40), loss, CAB, np.arange(40) % 10)
        plan, _, problems = make_plan(trips(), form, UnitBudget(CAB, loss))
        assert not problems
        answers = session.count(plan.questions(), loss, plan.weights(CAB))
        expected = norm / 1.0 if loss is LAPLACE else math.sqrt(norm) / math.sqrt(2.0)
        assert [answer.scale for answer in answers] == pytest.approx([expected] * 5, rel=1e-6)
        assert sum(answer.l1_sensitivity for answer in answers) == norm
        squared = sum(answer.l2_sensitivity**2 for answer in answers)
        assert squared == pytest.approx(norm)


@pytest.mark.parametrize(
    ("epsilon", "delta", "samples"),
    [(4.9, None, 10), (5, None, 30), (1, 2.5e-5, 10), (10, 2.5e-5, 30), (4.5, 1e-5, 10)],
)
def test_10_cells_of_an_entity_count_below_epsilon_5_and_30_from_there(
    epsilon: float, delta: float | None, samples: int
) -> None:
    units = None if delta is None else round(delta * 10**18)
    guarantee = Guarantee(epsilon=round(epsilon * 10**12), delta=units)
    _, loss = open_guarantee(guarantee, Accountant.BASIC)
    assert samples_of(params(), loss) == samples
    assert samples_of(params(samples=7), loss) == 7


def challenge() -> Schema:
    def whole(name: str, low: int, high: int) -> dict[str, object]:
        limits = {"minimum": low, "maximum": high, "required": True}
        return {"name": name, "type": "integer", "constraints": limits}

    areas = {"enum": [-1, *range(1, 78)], "required": True}
    kinds = {"enum": [-1, 0, 1, 2, 3, 5, 6, 7, 8], "required": True}
    return Schema.parse(
        {
            "fields": [
                {"name": "taxi_id", "type": "integer", "role": "entity"},
                whole("shift", 0, 20),
                whole("company_id", 0, 100),
                {"name": "pickup_community_area", "type": "integer", "constraints": areas},
                {"name": "dropoff_community_area", "type": "integer", "constraints": areas},
                {"name": "payment_type", "type": "integer", "constraints": kinds},
                whole("fare", -1, 10_000),
                whole("tips", -1, 1_000),
                whole("trip_total", -1, 9_975),
                whole("trip_seconds", -1, 100_000),
                whole("trip_miles", -1, 2_000),
            ]
        }
    )


TAXI = PrivacyUnit("entity", "taxi_id", 200)


def test_the_preset_has_the_published_groups_bins_link_and_sum() -> None:
    plan, _, problems = make_plan(challenge(), params(preset="sprint3"), UnitBudget(TAXI, GAUSSIAN))
    assert not problems
    # Below 0 the unknown, then top / step bins, then all above.
    assert [group.axes.shape for group in plan.groups] == [
        (21, 78, 78),
        (101, 9),
        (13, 13, 53, 13),
    ]
    assert [group.per for group in plan.groups] == ["row", "entity", "row"]
    assert plan.links[0].given.names == ("pickup_community_area", "dropoff_community_area")
    assert (plan.totals[0].total, plan.totals[0].parts) == ("trip_total", ("fare", "tips"))
    assert plan.most_rows == 200
    count = plan.questions()[1]
    assert count.function is not None
    assert count.function.labels[-1] == "200 or more"


def test_params_take_the_place_of_the_presets() -> None:
    plan, _, problems = make_plan(
        challenge(), params(preset="sprint3", links=[], samples=5), UnitBudget(TAXI, GAUSSIAN)
    )
    assert not problems
    assert (plan.links, plan.samples) == ((), 5)


def test_the_last_bin_holds_all_above_but_is_filled_up_to_max_alone() -> None:
    bins = {"seconds": {"top": 40, "step": 20, "max": 60}}
    plan, _, _ = make_plan(
        trips(), params(groups=[{"columns": ["seconds"]}], bins=bins), UnitBudget(CAB, GAUSSIAN)
    )
    (group,) = plan.groups
    grouping = group.axes.groupings["seconds"]
    assert grouping.edges == (0, 20, 40, 100)
    assert list(grouping.cell_of(np.array([39, 40, 99]))) == [1, 2, 2]
    drawn = group.expand(np.full(2000, 2), generator(0))["seconds"]
    assert (drawn.min(), drawn.max()) == (40, 60)
    assert set(group.expand(np.full(2000, 1), generator(0))["seconds"]) == set(range(20, 40))


# The flaws of the published system


def test_cells_come_from_the_dictionary_so_that_empty_ones_are_noisy_too() -> None:
    rows = codes(100)
    rows["firm"][:] = 0
    form = params(groups=[{"columns": ["firm", "seconds"]}])
    session = session_on(trips(), rows, GAUSSIAN, CAB, np.arange(100) % 20)
    plan, _, _ = make_plan(trips(), form, UnitBudget(CAB, GAUSSIAN))
    *_, noisy = session.count(plan.questions(), GAUSSIAN, plan.weights(CAB))
    assert noisy.shape == (3, 100)
    # 200 cells of firms that no row has: each is 0 with probability under 0.2.
    assert (noisy.values[1:] != 0).sum() > 100


def test_expected_values_are_those_of_public_rows_not_of_private_ones() -> None:
    form = EARLY_LATE | {"links": [LINK], "prior": "none"}
    table = public()
    table.table.codes["seconds"][:] = 50
    model = fit(form, prior=table)
    assert (model.expected[0] == 50).all()


def test_public_means_fall_back_to_those_of_single_columns() -> None:
    table = PublicTable(
        trips(),
        Table({name: column[:2] for name, column in codes(2).items()}, 2, np.arange(2)),
    )
    table.table.codes["zone"][:] = [0, 1]
    table.table.codes["to"][:] = [0, 0]
    table.table.codes["seconds"][:] = [10, 30]
    means = fit(EARLY_LATE | {"links": [LINK], "prior": "none"}, prior=table).expected[0]
    grid = means.reshape(4, 4)
    assert (grid[0, 0], grid[1, 0]) == (10, 30)
    assert grid[0, 1] == (10 + 20) / 2, "zone 0 alone, and no row goes to 1: the mean of all"
    assert grid[2, 0] == (20 + 20) / 2
    assert grid[3, 3] == 20


def test_expected_values_can_be_bought_and_need_no_public_data() -> None:
    form = EARLY_LATE | {"links": [LINK | {"expected": "bought"}]}
    rows = codes(400)
    means = fit(form).expected[0].reshape(4, 4)
    found = means[rows["zone"], rows["to"]]
    assert np.abs(found - 25 * rows["zone"] - 1).max() < 1, "without noise they are the means"
    session = session_on(trips(), rows, GAUSSIAN, CAB, np.arange(400) % 100)
    LinkedHistograms().fit(session, params(**form), None, 0, quiet)
    assert session.remaining.amount <= 4, "bought within the one allowance"


def test_each_entity_counts_in_distinct_cells_at_most_n_drawn_without_replacement() -> None:
    rows = codes(800)
    rows["seconds"] = np.arange(800) % 8
    session = session_on(trips(), rows, EXACT, CAB, np.arange(800) // 8)
    form = params(groups=[{"columns": ["seconds"]}], samples=5)
    plan, _, _ = make_plan(trips(), form, UnitBudget(CAB, EXACT))
    *_, counted = session.count(plan.questions(), EXACT, plan.weights(CAB))
    # Each of 100 entities has 8 distinct cells, so with replacement some of 5 would repeat.
    assert counted.values.sum() == 500
    assert counted.values.max() <= 100


def test_entities_of_more_rows_than_the_last_bin_are_in_it() -> None:
    model = fit({"most_rows": 3})
    assert model.lengths is not None
    assert list(model.lengths) == [0, 0, 100], "100 cabs of 4 rows: 3 or more"


def test_halves_are_paired_by_rank_and_stay_so() -> None:
    form = EARLY_LATE | {"links": [LINK], "prior": "none"}
    linked = fit(form, prior=public()).sample(None, generator(1))
    loose = fit(EARLY_LATE).sample(None, generator(1))

    def correlation(table: Table) -> float:
        return float(np.corrcoef(table.codes["zone"], table.codes["seconds"])[0, 1])

    # Unlinked, the correlation of 400 independent pairs is beyond 0.3 once in 1e9.
    assert abs(correlation(loose)) < 0.3
    assert correlation(linked) > 0.95
    assert (linked.codes["seconds"] // 10 == linked.codes["fare"]).all(), "halves stay whole"


def test_a_link_runs_over_any_columns_of_two_groups() -> None:
    groups = [{"columns": ["tip"]}, {"columns": ["fare"]}, {"columns": ["zone"]}]
    form = {
        "groups": groups,
        "prior": "none",
        "links": [{"given": ["zone"], "value": "fare"}],
    }
    table = fit(form, prior=public()).sample(None, generator(0))
    assert np.corrcoef(table.codes["zone"], table.codes["fare"])[0, 1] > 0.9


def test_the_mass_that_clipping_invents_is_gone() -> None:
    form = {"groups": [{"columns": ["zone", "to", "seconds"]}], "samples": 4}
    loss = PrivacyLoss.zcdp(10**11)
    clip = fit(form | {"post_processing": "clip"}, loss)
    project = fit(form, loss)
    # 1600 cells of sigma 5.5 keep some 3500 of clipped noise; at most 400 rows count.
    assert clip.weights[0].values.sum() > 2000
    assert project.weights[0].values.sum() < 700


# What comes out


def test_without_noise_shares_sizes_and_sums_are_the_tables() -> None:
    form = {
        "groups": [{"columns": ["zone", "to"]}, {"columns": ["fare", "tip"]}],
        "totals": [{"total": "sum", "parts": ["fare", "tip"]}],
    }
    table = fit(form).sample(None, generator(0))
    assert table.rows == 400
    assert table.entity is not None
    assert np.array_equal(np.bincount(table.entity), np.full(100, 4))
    assert (table.codes["sum"] == table.codes["fare"] + table.codes["tip"]).all()
    assert set(table.codes) == {"zone", "to", "fare", "tip", "sum"}


def test_sums_that_the_dictionary_declares_are_made_without_params() -> None:
    rule = {"kind": "sum", "total": "sum", "parts": ["fare", "tip"]}
    schema = trips(constraints=[rule])
    session = session_on(schema, codes(100), EXACT, CAB, np.arange(100) % 20)
    table = LinkedHistograms().fit(session, params(), None, 0, quiet).sample(None, generator(0))
    assert not schema.violations(table.codes)[0].any()
    assert set(table.codes) == {column.name for column in schema.columns}


def test_a_group_per_entity_is_drawn_once_for_all_its_rows() -> None:
    form = {"groups": [{"columns": ["firm"], "per": "entity"}, {"columns": ["tip"]}]}
    table = fit(form).sample(None, generator(0))
    assert table.entity is not None
    pairs = {
        (int(cab), int(firm)) for cab, firm in zip(table.entity, table.codes["firm"], strict=True)
    }
    assert len(pairs) == 100


@pytest.mark.parametrize("rows", [0, 1, 399, 401, 1000])
def test_a_sample_has_the_rows_asked_for_and_no_entity_over_the_bound(rows: int) -> None:
    table = fit({"most_rows": 5}).sample(rows, generator(2))
    assert table.rows == rows
    assert all(len(column) == rows for column in table.codes.values())
    assert table.entity is not None
    if rows:
        assert np.bincount(table.entity).max() <= 5
        assert set(table.entity) == set(range(int(table.entity.max()) + 1))


def test_an_empty_table_gives_an_empty_one_and_still_any_rows_asked_for() -> None:
    model = fit(EARLY_LATE | {"links": [LINK]}, rows=0, prior=public())
    assert model.sample(None, generator(0)).rows == 0
    assert model.sample(7, generator(0)).rows == 7


def test_nulls_are_paired_at_random_and_stay_null() -> None:
    schema = trips(missingValues=["", "-"])
    wire = schema.to_wire()
    wire["fields"][4]["constraints"]["required"] = False
    schema = Schema.parse(wire)
    rows = codes(400)
    rows["seconds"][:100] = 100
    session = session_on(schema, rows, EXACT, CAB, np.arange(400) % 100)
    form = EARLY_LATE | {"links": [LINK], "prior": "none"}
    model = LinkedHistograms().fit(session, params(**form), public(), 0, quiet)
    table = model.sample(None, generator(0))
    zones = table.codes["zone"][table.codes["seconds"] == 100]
    assert len(zones) >= 100, "once in each cab"
    assert set(zones) == {0, 1, 2, 3}


def test_it_works_on_rows_that_stand_for_themselves() -> None:
    table = fit({}, unit=ROW).sample(None, generator(0))
    assert table.rows == 400
    assert table.entity is None
    assert np.array_equal(np.bincount(table.codes["zone"]), np.bincount(codes(400)["zone"]))


def test_a_public_prior_pulls_noise_down() -> None:
    form = {"groups": [{"columns": ["zone", "to", "seconds"]}], "samples": 4}
    loss = PrivacyLoss.zcdp(10**10)
    truth = np.zeros((4, 4, 100))
    rows = codes(400)
    np.add.at(truth, (rows["zone"], rows["to"], rows["seconds"]), 1 / 400)

    def distance(model: LinkedHistogramsModel) -> float:
        shares = np.zeros(1600)
        weights = model.weights[0]
        shares[weights.cells] = weights.values / weights.values.sum()
        return float(np.abs(shares - truth.ravel()).sum() / 2)

    assert distance(fit(form, loss, prior=public())) < 0.4
    assert distance(fit(form | {"prior": "none"}, loss, prior=public())) > 0.5


def test_a_public_prior_tells_how_many_rows_stand_behind_a_count() -> None:
    """Half of each cab's four rows are in zone 0, the others in zones 1 and 2."""
    rows = codes(400)
    rows["zone"] = np.array([0, 0, 1, 2])[np.arange(400) % 4]
    table = PublicTable(trips(), Table(rows, 400, np.arange(400) // 4))
    session = session_on(trips(), rows, EXACT, CAB, np.arange(400) // 4)
    form = {"groups": [{"columns": ["zone"]}]}
    pooled = LinkedHistograms().fit(session, params(**form), table, 0, quiet).weights[0]
    assert list(pooled.cells) == [0, 1, 2]
    # Counts are 100 each; rows are 200, 100, 100, pooled with 4/3 by three counts.
    assert pooled.values == pytest.approx([204 / 1.03, 104 / 1.03, 104 / 1.03], rel=1e-3)


def test_a_stored_model_draws_the_same_rows() -> None:
    form = EARLY_LATE | {"links": [LINK]}
    model = fit(form, GAUSSIAN, prior=public())
    stored = LinkedHistograms().load(trips(), CAB, model.dump())
    assert stored.dump() == model.dump()
    ours, theirs = model.sample(50, generator(4)), stored.sample(50, generator(4))
    assert all(np.array_equal(ours.codes[name], theirs.codes[name]) for name in ours.codes)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda stored: stored[0].pop("plan"),
        lambda stored: stored[0]["plan"].update(samples="many"),
        lambda stored: stored[0]["plan"]["links"][0].update(group=7),
        lambda stored: stored[0]["plan"].update(totals=[["nothing", ["fare"]]]),
        lambda stored: stored[0].update(entities=-1),
        lambda stored: stored[1].pop("cells_1"),
        lambda stored: stored[1].update(cells_0=stored[1]["cells_0"][::-1].copy()),
        lambda stored: stored[1].update(weights_0=-stored[1]["weights_0"]),
        lambda stored: stored[1].update(expected_0=stored[1]["expected_0"] * np.nan),
        lambda stored: stored[1].update(lengths=stored[1]["lengths"][:-1]),
    ],
)
def test_a_spoilt_model_is_refused(spoil: Any) -> None:
    model = fit(EARLY_LATE | {"links": [LINK]}, prior=public())
    stored = unpack(model.dump())
    spoil(stored)
    with pytest.raises(ModelFormatError):
        LinkedHistograms().load(trips(), CAB, pack(*stored))


# What is refused


FACTS = PublicFacts(trips(), 400)


def test_public_expected_values_need_a_public_dataset() -> None:
    form = EARLY_LATE | {"links": [LINK]}
    assert pointers(check(**form)) == ["/public_dataset"]
    assert pointers(check(facts=FACTS, **form)) == []
    assert pointers(check(**EARLY_LATE)) == []
    assert pointers(check(prior="public")) == ["/public_dataset"]


def test_laplace_noise_is_for_pure_guarantees() -> None:
    assert pointers(check(noise="laplace")) == ["/params/noise"]
    assert pointers(check(LAPLACE, noise="laplace")) == []
    assert pointers(check(LAPLACE, noise="gaussian")) == ["/params/noise"]


@pytest.mark.parametrize(
    ("form", "pointer"),
    [
        ({"groups": [{"columns": ["zone", "nowhere"]}]}, "/params/groups/0/columns/1"),
        ({"groups": [{"columns": ["zone"]}, {"columns": ["zone"]}]}, "/params/groups/1/columns/0"),
        ({"bins": {"firm": 3}}, "/params/bins/firm"),
        ({"bins": {"firm": {"top": 5, "step": 1, "max": 9}}}, "/params/bins/firm"),
        ({"bins": {"fare": {"top": 0, "step": 1, "max": 9}}}, "/params/bins/fare"),
        ({"bins": {"fare": {"top": 10, "step": 1, "max": 9}}}, "/params/bins/fare"),
        ({"bins": {"nowhere": 3}}, "/params/bins/nowhere"),
        (EARLY_LATE | {"links": [{"given": ["tip"], "value": "fare"}]}, "/params/links/0"),
        (EARLY_LATE | {"links": [{"given": ["fare"], "value": "seconds"}]}, "/params/links/0"),
        ({"links": [{"given": ["zone"], "value": "firm"}]}, "/params/links/0/value"),
        ({"links": [{"given": ["zone", "zone"], "value": "fare"}]}, "/params/links/0/given"),
        ({"links": [LINK, {"given": ["tip"], "value": "zone"}]}, "/params/links/1"),
        (
            {
                "groups": [{"columns": ["zone"]}, {"columns": ["fare"], "per": "entity"}],
                "links": [{"given": ["zone"], "value": "fare"}],
            },
            "/params/links/0/value",
        ),
        (
            {"links": [{**LINK, "expected": "bought", "low": 5, "high": 5}]},
            "/params/links/0/high",
        ),
        ({"totals": [{"total": "firm", "parts": ["fare"]}]}, "/params/totals/0/total"),
        ({"totals": [{"total": "sum", "parts": ["firm"]}]}, "/params/totals/0/parts/0"),
        (EARLY_LATE | {"totals": [{"total": "zone", "parts": ["fare"]}]}, "/params/totals/0/total"),
    ],
)
def test_a_form_that_cannot_be_carried_out_is_refused_where_it_is_wrong(
    form: dict[str, Any], pointer: str
) -> None:
    assert pointers(check(facts=FACTS, **form)) == [pointer]


def test_too_many_cells_are_refused_before_anything_is_charged() -> None:
    groups = [{"columns": ["seconds", "fare", "tip", "sum", "zone"]}]
    assert "/params/groups" in pointers(check(groups=groups))


def test_the_forecast_tells_cells_and_the_noise_in_one() -> None:
    found = check(groups=[{"columns": ["zone", "to"]}, {"columns": ["tip"]}], samples=4)
    assert found.cells == 1 + 8 + 16 + 21
    assert found.expected_error == pytest.approx(math.sqrt(4 + 4 + 2) / math.sqrt(2))


# Discovered cells


FOUND = {
    "groups": [
        {"columns": ["zone", "to", "firm", "seconds", "fare", "tip"], "cells": "discovered"},
        {"columns": ["sum"]},
    ]
}


def discover(loss: PrivacyLoss) -> LinkedHistogramsModel:
    rows = codes(400)
    for name in ("zone", "to", "firm", "seconds", "fare", "tip"):
        rows[name] = rows[name] * 0 + (np.arange(400) % 2)
    session = session_on(trips(), rows, loss, CAB, np.arange(400) % 100)
    form = params(**FOUND)
    model = LinkedHistograms().fit(session, form, None, 0, quiet)
    assert session.remaining.amount <= 3
    assert session.remaining.delta <= 1
    return LinkedHistograms().load(trips(), CAB, model.dump())


def test_a_domain_too_large_to_count_is_drawn_from_what_many_entities_have() -> None:
    table = discover(PrivacyLoss.zcdp(10**13, 10**12)).sample(None, generator(0))
    firsts = np.stack([table.codes[name] for name in FOUND["groups"][0]["columns"]])
    assert (firsts == firsts[0]).all()
    assert 0.3 < firsts[0].mean() < 0.7


def test_where_nothing_is_frequent_enough_any_cell_will_do() -> None:
    table = discover(PrivacyLoss.zcdp(10**6, 10**6)).sample(10, generator(0))
    assert table.rows == 10


def test_discovery_sets_half_of_delta_aside_and_needs_one() -> None:
    synthesizer = LinkedHistograms()
    assert synthesizer.delta_share(params(**FOUND), trips()) == 0.5
    assert synthesizer.delta_share(params(), trips()) == 0
    assert pointers(check(LAPLACE, **FOUND)) == ["/guarantee"]
    rho_alone = PrivacyLoss.zcdp(10**12)
    assert pointers(check(rho_alone, **FOUND)) == ["/guarantee"]
    found = check(PrivacyLoss.zcdp(10**12, 10**12), **FOUND)
    assert not found.problems
    assert found.cells == 1 + 8 + 61, "only what is counted cell by cell"


# The page


DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "reference/synthesizers/linked_histograms.md"
REQUESTS = PAGE.read_text() + (DOCS / "results/linked_histograms.md").read_text()
EXAMPLES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", REQUESTS, re.S)]


@pytest.mark.parametrize("request_", EXAMPLES)
def test_the_examples_of_the_page_are_accepted(request_: dict[str, Any]) -> None:
    loss = GAUSSIAN if "delta" in request_["guarantee"] else LAPLACE
    facts = PublicFacts(challenge(), 1000) if "public_dataset" in request_ else None
    form = params(**request_["params"])
    limits = Limits(10**6, request_.get("rows"), 2**30, 600.0)
    found = LinkedHistograms().check(challenge(), TAXI, form, loss, facts, limits)
    assert request_["synthesizer"] == "linked_histograms"
    assert not found.problems


def test_every_param_is_on_the_page() -> None:
    for name in LinkedHistogramsParams.model_fields:
        assert f"`{name}`" in PAGE.read_text()
