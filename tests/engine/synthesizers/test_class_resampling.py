from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_tables import EXACT, LIMITS, ROW, colours, quiet, random_codes, session_on

from app.engine.method import Preflight, PublicFacts
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Measurement
from app.engine.public.rows import PublicDataUnfit
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.class_resampling.entity_pool import ClassResamplingModel
from app.engine.synthesizers.class_resampling.synthesizer import (
    ClassResampling,
    ClassResamplingParams,
)
from app.engine.table import PublicTable, Table, generator

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "reference/synthesizers/class_resampling.md"
REQUESTS = PAGE.read_text() + (DOCS / "results/class_resampling.md").read_text()
TAXI = PrivacyUnit("entity", "taxi_id", 200)
GAUSSIAN = PrivacyLoss.zcdp(10**10)
EPSILON_1 = PrivacyLoss.pure(10**12)

Codes = dict[str, NDArray[np.int64]]


def params(**form: object) -> ClassResamplingParams:
    return ClassResamplingParams.model_validate(form)


def taxi(entity: bool = True) -> Schema:
    """The columns that the preset names, as the challenge declares them."""
    fields: list[dict[str, object]] = [
        {"name": name, "type": "integer", "constraints": {"required": True, "enum": values}}
        for name, values in (
            ("shift", list(range(21))),
            ("pickup_community_area", [-1, *range(1, 78)]),
        )
    ]
    fields.append(
        {
            "name": "fare",
            "type": "integer",
            "constraints": {"required": True, "minimum": -1, "maximum": 100},
        }
    )
    if entity:
        fields.append({"name": "taxi_id", "type": "integer", "role": "entity"})
    return Schema.parse({"fields": fields})


def taxis(*trips: list[int]) -> tuple[Codes, NDArray[np.int64]]:
    """Taxis with so many trips on each day (Monday's shifts first), all from one area."""
    shifts, owner = [], []
    for number, days in enumerate(trips):
        for day, count in enumerate(days):
            shifts += [3 * day + 1] * count
            owner += [number] * count
    codes = {
        "shift": np.array(shifts, dtype=np.int64),
        "pickup_community_area": np.zeros(len(shifts), dtype=np.int64),
        "fare": np.arange(len(shifts), dtype=np.int64) % 100,
    }
    return codes, np.array(owner, dtype=np.int64)


def public(schema: Schema, codes: Codes, entity: NDArray[np.int64] | None) -> PublicTable:
    return PublicTable(schema, Table(codes, len(next(iter(codes.values()))), entity))


def fit(
    form: ClassResamplingParams,
    private: tuple[Codes, NDArray[np.int64]],
    prior: PublicTable,
    loss: PrivacyLoss = EXACT,
    schema: Schema | None = None,
    unit: PrivacyUnit = TAXI,
    seed: int = 7,
) -> ClassResamplingModel:
    codes, entities = private
    session = session_on(schema or taxi(), codes, loss, unit, entities)
    model = ClassResampling().fit(session, form, prior, seed, quiet)
    assert session.remaining.amount == 0, "the one question costs all"
    return model


def asked(
    form: ClassResamplingParams,
    private: tuple[Codes, NDArray[np.int64]],
    loss: PrivacyLoss,
    prior: PublicTable,
) -> Measurement:
    """The answer to the one question of a run."""
    codes, entities = private
    session = session_on(taxi(), codes, loss, TAXI, entities)
    heard: list[Measurement] = []

    def count(*question: object) -> tuple[Measurement, ...]:
        heard.extend(session.count(*question))  # type: ignore[arg-type]
        return tuple(heard)

    listening = SimpleNamespace(
        schema=session.schema, unit=session.unit, allowance=session.allowance, count=count
    )
    ClassResampling().fit(listening, form, prior, 7, quiet)
    (answer,) = heard
    return answer


def check(
    form: ClassResamplingParams,
    loss: PrivacyLoss = GAUSSIAN,
    schema: Schema | None = None,
    unit: PrivacyUnit = TAXI,
    facts: PublicFacts | None = PublicFacts(taxi(), 1000),
) -> Preflight:
    return ClassResampling().check(schema or taxi(), unit, form, loss, facts, LIMITS)


def pointers(preflight: Preflight) -> list[str]:
    return [problem.pointer for problem in preflight.problems]


def test_without_noise_each_class_gets_its_private_number_of_public_entities() -> None:
    quiet_day, busy_day = [2], [20]
    prior = public(taxi(), *taxis(quiet_day, busy_day, [3], [40]))
    model = fit(params(preset="sprint3"), taxis(quiet_day, quiet_day, busy_day), prior)
    sizes = np.bincount(model.sample(None, generator(1)).entity)  # type: ignore[arg-type]
    assert sorted(np.isin(sizes, (2, 3)).tolist()) == [False, True, True]
    assert np.isin(sizes, (2, 3, 20, 40)).all()


def test_the_counts_are_noisy_and_not_the_ids() -> None:
    """The published program added noise to the ids and kept the exact counts. Here 38 classes
    of a table with 3 taxis come out with discrete Laplace noise of scale 1 / epsilon."""
    prior = public(taxi(), *taxis([2], [20]))
    counts = asked(params(preset="sprint3"), taxis([2], [2], [2]), EPSILON_1, prior)
    assert counts.shape == (38,)
    assert (counts.l1_sensitivity, counts.l2_sensitivity) == (1, 1)
    assert counts.scale == pytest.approx(1.0)
    assert counts.values.dtype == np.int64
    # P[one count has no noise] = (1 - q) / (1 + q) = 0.46 with q = 1/e; all 38: 2e-13
    assert not np.array_equal(np.sort(counts.values), [0] * 37 + [3])


def test_the_noise_of_the_classes_is_what_the_budget_buys() -> None:
    """Sums of squares of 120 x 38 counts of an empty table, against a discrete Gaussian with
    sigma = 1 / sqrt(2 rho): by the chi-square law with a false alarm of 1e-6, while one that
    is 10 % off is rejected."""
    rho = 0.005
    sigma = 1 / math.sqrt(2 * rho)
    form, prior = params(preset="sprint3"), public(taxi(), *taxis([2]))
    drawn = np.concatenate(
        [asked(form, taxis(), PrivacyLoss.zcdp(5 * 10**9), prior).values for _ in range(120)]
    )

    def accepts(scale: float) -> bool:
        tail = float(scipy.stats.chi2.cdf(float((drawn**2).sum()) / scale**2, len(drawn)))
        return 5e-7 <= tail <= 1 - 5e-7

    assert accepts(sigma)
    assert not accepts(1.1 * sigma)
    assert not accepts(0.9 * sigma)


def test_a_taxi_with_35_trips_and_the_last_of_the_file_have_a_class() -> None:
    """The published program lost both; and it divides by seven, so that these are the trips
    that lie on its edge."""
    everyone = taxis([5] * 7, [36], [31] * 2, [5] * 7)
    model = fit(params(preset="sprint3"), everyone, public(taxi(), *everyone))
    assert model.class_counts.sum() == 4
    table = model.sample(None, generator(1))
    assert table.entity is not None
    assert table.entity.max() == 3


@given(st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_every_private_entity_is_counted_once_whatever_its_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 300))
    codes = random_codes(taxi(), rows, seed)
    entities = rng.integers(0, rng.integers(1, 20), rows)
    model = fit(params(preset="sprint3"), (codes, entities), public(taxi(), *taxis([2])))
    assert model.class_counts.sum() == len(np.unique(entities))
    assert len(model.class_counts) == 38


def test_no_public_entity_is_drawn_again_before_all_of_its_class_are() -> None:
    """By default: every repeat leaves out another, which makes the sample rougher for nothing."""
    everyone = taxis(*[[size] for size in range(1, 41)])
    model = fit(params(preset="sprint3"), everyone, public(taxi(), *everyone))
    owner = model.sample(None, generator(3)).entity
    assert owner is not None
    assert sorted(np.bincount(owner).tolist()) == list(range(1, 41))


def test_an_empty_public_class_is_drawn_from_what_there_is() -> None:
    """The published program stopped here."""
    model = fit(params(preset="sprint3"), taxis([20], [20], [2]), public(taxi(), *taxis([2])))
    table = model.sample(None, generator(1))
    assert table.rows == 3 * 2


def test_public_rows_are_translated_to_the_private_dictionary() -> None:
    """The public dictionary lists the areas in another order, and one that is not private."""
    wire = taxi().to_wire()
    wire["fields"][1]["constraints"]["enum"] = [99, *range(77, 0, -1), -1]
    other = Schema.parse(wire)
    codes, entity = taxis([1, 1, 1])
    codes["pickup_community_area"] = np.array(
        [other.column("pickup_community_area").code(value) for value in (99, 5, -1)]
    )
    model = fit(params(preset="sprint3"), taxis([1]), public(other, codes, entity))
    table = model.sample(None, generator(1))
    own = taxi().column("pickup_community_area")
    assert sorted(table.codes["pickup_community_area"].tolist()) == sorted(
        [own.code(-1), own.code(5)]  # type: ignore[type-var]
    )


def test_public_rows_without_a_place_in_the_dictionary_end_the_run() -> None:
    wire = taxi().to_wire()
    wire["fields"][1]["constraints"]["enum"] = [99, 1]
    with pytest.raises(PublicDataUnfit):
        fit(params(preset="sprint3"), taxis([1]), public(Schema.parse(wire), *taxis([1])))


def test_public_entities_are_cut_at_max_rows_like_private_ones() -> None:
    unit = PrivacyUnit("entity", "taxi_id", 4)
    model = fit(params(), taxis([9], [2]), public(taxi(), *taxis([9], [2])), unit=unit)
    assert sorted(model.pool.sizes.tolist()) == [2, 4]
    sizes = np.bincount(model.sample(60, generator(1)).entity)  # type: ignore[arg-type]
    assert sizes.max() <= 4


def test_requested_rows_are_honoured() -> None:
    model = fit(params(preset="sprint3"), taxis([2], [20]), public(taxi(), *taxis([3], [17])))
    for rows in (0, 1, 50, 333):
        assert model.sample(rows, generator(1)).rows == rows


def test_more_rows_than_the_most_are_scaled_down_in_proportion() -> None:
    everyone = taxis(*[[2]] * 60, *[[20]] * 20)
    prior = public(taxi(), *taxis([2], [20]))
    model = fit(params(preset="sprint3", most_rows=130), everyone, prior)
    assert model.class_counts.sum() == 20
    assert sorted(model.class_counts[model.class_counts > 0].tolist()) == [5, 15]
    assert model.sample(None, generator(1)).rows == 5 * 20 + 15 * 2


@pytest.mark.parametrize("loss", [GAUSSIAN, EPSILON_1])
def test_projected_counts_keep_the_noisy_sum_and_clipped_ones_invent_entities(
    loss: PrivacyLoss,
) -> None:
    """Twenty releases of 38 classes, 37 of them empty. Clipping keeps the positive half of
    760 noises, 0.31 of a standard deviation each (Laplace; Gaussian 0.40). The projection
    keeps the positive part of 20 sums of noises, 0.07 for each noise. What lies between, 0.2,
    is passed from either side with probability below 1e-6."""
    deviation = 7.07 if loss is GAUSSIAN else math.sqrt(2 * math.e) / (math.e - 1)
    made = {}
    for choice in ("project", "clip"):
        form = params(preset="sprint3", post_processing=choice)
        models = [fit(form, taxis([2]), public(taxi(), *taxis([2])), loss) for _ in range(20)]
        assert all((model.class_counts >= 0).all() for model in models)
        made[choice] = sum(int(model.class_counts.sum()) for model in models)
    assert made["project"] < 0.2 * deviation * 20 * 38 < made["clip"]


def test_the_run_goes_the_same_way_again() -> None:
    everyone = taxis([2], [9], [20])
    one, two = (
        fit(params(preset="sprint3"), everyone, public(taxi(), *everyone), seed=3) for _ in range(2)
    )
    assert one.dump() == two.dump()
    assert ClassResampling().load(taxi(), TAXI, one.dump()).dump() == one.dump()


def test_any_dictionary_with_entities_will_do() -> None:
    """Text, nulls, numbers in bins: classes by the mean fare and the number of colours."""
    unit = PrivacyUnit("entity", "id", 5)
    schema = colours(True)
    codes, entities = random_codes(schema, 300), np.arange(300) % 80
    form = params(
        classes=[
            {"feature": "mean", "column": "fare", "cuts": [25, 75]},
            {"feature": "distinct", "column": "colour", "cuts": [2]},
            {"feature": "share_count", "column": "fare", "above": 0.4, "cuts": [1]},
        ],
        bins={"fare": 3},
        groups={"colour": [["red", "blue"]]},
        columns=["colour", "fare"],
    )
    preflight = check(form, EPSILON_1, schema, unit, PublicFacts(schema, 300))
    assert preflight.problems == ()
    prior = public(schema, random_codes(schema, 200, 1), np.arange(200) % 40)
    model = fit(form, (codes, entities), prior, EXACT, schema, unit)
    assert model.class_counts.sum() == 80
    assert preflight.cells == len(model.class_counts)
    table = model.sample(100, generator(1))
    assert list(table.codes) == ["colour", "fare"]
    for name, column in table.codes.items():
        assert 0 <= column.min() <= column.max() < schema.column(name).codes


def test_without_params_entities_are_told_apart_by_their_rows() -> None:
    preflight = check(params())
    assert preflight.problems == ()
    assert preflight.cells == 8


@pytest.mark.parametrize("loss", [GAUSSIAN, EPSILON_1, PrivacyLoss.pure(10**9)])
def test_the_forecast_error_is_that_of_one_count_with_the_whole_budget(loss: PrivacyLoss) -> None:
    answer = asked(params(preset="sprint3"), taxis([2]), loss, public(taxi(), *taxis([2])))
    preflight = check(params(preset="sprint3"), loss)
    assert preflight.expected_error == pytest.approx(answer.standard_error, rel=0.05)
    assert preflight.cells == 38


def test_it_needs_a_public_dataset() -> None:
    assert pointers(check(params(preset="sprint3"), facts=None)) == ["/public_dataset"]
    assert ClassResampling.uses_public == "required"


def test_it_needs_public_entities_with_the_same_columns() -> None:
    facts = PublicFacts(taxi(entity=False), 10)
    assert pointers(check(params(preset="sprint3"), facts=facts)) == ["/public_dataset"]
    facts = PublicFacts(colours(True), 10)
    preflight = check(params(preset="sprint3"), facts=facts)
    assert set(pointers(preflight)) == {"/public_dataset"}
    assert len(preflight.problems) == 2, "one for each column that the public dataset lacks"
    assert check(params(preset="sprint3"), facts=PublicFacts(taxi(), 0)).problems


def test_it_needs_a_column_of_the_classes_even_where_it_is_not_made() -> None:
    wire = taxi().to_wire()
    wire["fields"] = [field for field in wire["fields"] if field["name"] != "shift"]
    facts = PublicFacts(Schema.parse(wire), 10)
    form = params(preset="sprint3", columns=["fare"])
    assert pointers(check(form, facts=facts)) == ["/public_dataset"]


def test_a_row_unit_is_told_that_classes_are_of_entities() -> None:
    schema = taxi(entity=False)
    preflight = check(params(preset="sprint3"), GAUSSIAN, schema, ROW)
    assert pointers(preflight) == ["/synthesizer"]
    assert "entity" in preflight.problems[0].remedy


@pytest.mark.parametrize(
    ("form", "pointer"),
    [
        ({"columns": ["weight"]}, "/params/columns/0"),
        ({"columns": []}, "/params/columns"),
        (
            {"classes": [{"feature": "distinct", "column": "weight", "cuts": [1]}]},
            "/params/classes/0/column",
        ),
        ({"bins": {"fare": 3}}, "/params/bins/fare"),
        ({"groups": {"fare": [[1, 2]]}}, "/params/groups/fare"),
        ({"preset": "sprint3", "groups": {"shift": [[1, 99]]}}, "/params/groups/shift"),
        (
            {
                "classes": [
                    {"feature": "distinct", "column": name, "cuts": list(range(400))}
                    for name in ("shift", "fare")
                ]
            },
            "/params/classes",
        ),
    ],
)
def test_what_cannot_run_is_told_before_it_is_charged(
    form: dict[str, object], pointer: str
) -> None:
    assert pointers(check(params(**form))) == [pointer]


def test_the_preset_names_the_columns_that_a_dictionary_lacks() -> None:
    preflight = check(params(preset="sprint3"), schema=colours(True), facts=None)
    assert "/params/classes/0/column" in pointers(preflight)
    assert "/params/classes/4/column" in pointers(preflight)


@pytest.mark.parametrize("loss", [PrivacyLoss.pure(0), PrivacyLoss.zcdp(0)])
def test_noise_that_cannot_be_drawn_is_told(loss: PrivacyLoss) -> None:
    assert pointers(check(params(), loss)) == ["/guarantee"]


def test_a_public_table_beyond_the_memory_is_told() -> None:
    assert pointers(check(params(), facts=PublicFacts(taxi(), 10**9))) == ["/params"]


@pytest.mark.parametrize(
    "form",
    [
        {"preset": "sprint4"},
        {"classes": []},
        {"classes": [{"feature": "rows"}]},
        {"redraw": 1.1},
        {"redraw": float("nan")},
        {"post_processing": "threshold"},
        {"groups": {"shift": []}},
        {"most_rows": 0},
    ],
)
def test_a_malformed_form_is_refused(form: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        params(**form)


def test_other_params_override_the_preset() -> None:
    form = params(preset="sprint3", classes=[{"feature": "rows", "cuts": [3]}], groups={})
    assert check(form).cells == 2
    assert params(preset="sprint3", classes=None) == params(preset="sprint3")


def test_a_form_as_it_is_stored_means_the_same() -> None:
    form = params(preset="sprint3", redraw=0.5)
    stored = json.loads(json.dumps(form.model_dump(mode="json", exclude_none=True)))
    assert ClassResamplingParams.model_validate(stored) == form


def test_the_page_shows_requests_that_work() -> None:
    examples = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", REQUESTS, re.S)]
    assert len(examples) == 2
    for request in examples:
        assert request["synthesizer"] == ClassResampling.name
        assert check(params(**request["params"])).problems == ()


def test_the_page_names_every_param() -> None:
    text = PAGE.read_text()
    fields = {**ClassResamplingParams.model_fields, "within": 0, "branches": 0, "closed": 0}
    assert all(f"`{name}`" in text for name in fields)


def test_the_documents_edge_can_be_had() -> None:
    """30 % or more instead of over a third, as the page tells."""
    form = params(preset="sprint3").model_dump(mode="json", exclude_none=True)
    (split,) = (each for each in form["classes"] if each["feature"] == "top_share")
    split |= {"cuts": [0.3, 0.5], "closed": "left"}
    codes, entity = taxis([10, 10])
    codes["pickup_community_area"] = np.repeat([0, 1, 2, 3, 4, 5, 6], [6, 4, 3, 2, 2, 2, 1])
    published, documented = (
        fit(params(**each), (codes, entity), public(taxi(), codes, entity))
        for each in ({"preset": "sprint3"}, form)
    )
    path_of = [
        model.paths[int(np.flatnonzero(model.class_counts)[0])] for model in (published, documented)
    ]
    assert path_of == [(1, 0, 0, 0), (1, 0, 1, 0)]


def test_limits_on_rows_count_in_the_forecast() -> None:
    limits = dataclasses.replace(LIMITS, rows=10**8, time_s=3600.0)
    preflight = ClassResampling().check(
        taxi(), TAXI, params(), GAUSSIAN, PublicFacts(taxi(), 10), limits
    )
    assert pointers(preflight) == ["/params"]
