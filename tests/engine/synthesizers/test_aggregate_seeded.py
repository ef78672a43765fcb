"""`aggregate_seeded` on the real kernel, and the flaws of what was published."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest
from aggregate_formulas import sigmas
from numpy.typing import NDArray
from small_tables import LIMITS, ROW, colours, digits, quiet, random_codes, session_on

from app.engine.catalog import registry
from app.engine.method import Preflight
from app.engine.method.model_file import ModelFormatError
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.messages import decode_question, encode_question
from app.engine.privacy.queries import Measurement, Parts, Quantile, TupleCount, TupleNumber, Tuples
from app.engine.privacy.questions import CountQuestion
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aggregate_seeded import AggregateSeeded
from app.engine.synthesizers.aggregate_seeded.model import AggregateSeededModel
from app.engine.synthesizers.aggregate_seeded.params import AggregateSeededParams
from app.engine.synthesizers.aggregate_seeded.parts import cells_of_sets, parts_of
from app.engine.table import Table, generator
from app.reports.combinations import counted

EXACT = PrivacyLoss.zcdp(10**18)
"""A rho of a million: sigma is under 0.02 counts, and noise is 0 but for e^-1000."""

Codes = dict[str, NDArray[np.int64]]
SYNTHESIZER = AggregateSeeded()


class Watched:
    """A session that remembers what it was asked of tuples, and the answers."""

    def __init__(self, session: LocalSession) -> None:
        self._session = session
        self.counts: list[TupleCount] = []
        self.quantiles: list[Quantile] = []
        self.answers: list[Measurement] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    def tuples(self, query: TupleCount, loss: PrivacyLoss) -> Measurement:
        self.counts.append(query)
        self.answers.append(self._session.tuples(query, loss))
        return self.answers[-1]

    def quantile(self, query: Quantile, loss: PrivacyLoss) -> float:
        self.quantiles.append(query)
        return self._session.quantile(query, loss)


def fitted(
    schema: Schema,
    codes: Codes,
    loss: PrivacyLoss = EXACT,
    unit: PrivacyUnit = ROW,
    entities: NDArray[np.int64] | None = None,
    **form: object,
) -> tuple[AggregateSeededModel, Watched]:
    watched = Watched(session_on(schema, codes, loss, unit, entities))
    params = AggregateSeededParams.model_validate(form)
    model = SYNTHESIZER.fit(watched, params, None, 0, quiet)  # type: ignore[arg-type]
    return model, watched


def checked(
    schema: Schema, unit: PrivacyUnit = ROW, loss: PrivacyLoss = EXACT, **form: object
) -> Preflight:
    params = AggregateSeededParams.model_validate(form)
    return SYNTHESIZER.check(schema, unit, params, loss, None, LIMITS)


def linked(rows: int) -> tuple[Schema, Codes]:
    """Four columns of which the second repeats the first."""
    schema = digits({"a": 3, "b": 3, "c": 2, "d": 4})
    codes = random_codes(schema, rows, seed=1)
    return schema, codes | {"b": codes["a"]}


def test_it_is_registered() -> None:
    assert isinstance(registry.builtin("aggregate_seeded"), AggregateSeeded)


def test_without_noise_the_aggregates_are_the_exact_counts() -> None:
    schema, codes = linked(500)
    model, _ = fitted(schema, codes, percentile_percentage=100)
    exact = counted(model.layout.items(codes), model.layout.most_items, 3)
    for level, true in zip(model.aggregates.levels, exact.levels, strict=True):
        assert level.items.tolist() == true.items.tolist()
        assert level.counts.tolist() == true.counts.tolist()


def test_the_synthetic_rows_keep_what_the_aggregates_say() -> None:
    schema, codes = linked(2000)
    model, _ = fitted(schema, codes, percentile_percentage=100)
    table = model.sample(None, generator(0))
    assert table.rows == 2000
    assert table.codes["a"].tolist() == table.codes["b"].tolist()
    for name in codes:
        assert np.bincount(table.codes[name]).tolist() == np.bincount(codes[name]).tolist()


def test_the_whole_loss_is_spent_and_no_more() -> None:
    schema, codes = linked(3000)  # of fewer rows noise may leave no combination to count
    _, watched = fitted(schema, codes, PrivacyLoss.zcdp(5 * 10**11))
    assert 0 <= watched._session.remaining.amount <= 10


def test_the_noise_is_sigma_times_the_root_of_the_limit_also_for_one_row() -> None:
    schema, codes = linked(300)
    _, watched = fitted(
        schema, codes, PrivacyLoss.zcdp(10**11), number_of_records_epsilon_proportion=0.005
    )
    expected = sigmas(0.1 * 0.995, 0.01, (1, 1 / 2, 1 / 3))
    assert len(watched.answers) == 3
    for query, answer, sigma in zip(watched.counts, watched.answers, expected, strict=True):
        assert answer.l1_sensitivity == query.limit
        assert answer.l2_sensitivity == pytest.approx(query.limit**0.5)
        assert answer.scale == pytest.approx(sigma * query.limit**0.5, rel=1e-4)
    assert watched.counts[0].limit == 4


def test_the_preset_is_the_published_challenge_and_gives_way() -> None:
    params = AggregateSeededParams.model_validate({"preset": "sprint3", "reporting_length": 3})
    assert params.columns is not None
    assert (len(params.columns), params.reporting_length) == (10, 3)
    assert params.bins["trip_seconds"] == list(range(0, 2000, 200))
    assert params.percentile_percentage == 5


def test_every_declared_value_is_counted_whether_or_not_the_data_has_it() -> None:
    """Published: values are listed from the data before anything is bounded."""
    schema = digits({"a": 5, "b": 5})
    codes = {"a": np.zeros(50, np.int64), "b": np.zeros(50, np.int64)}
    loss = PrivacyLoss.zcdp(10**9)
    model, watched = fitted(schema, codes, loss, reporting_length=1)
    assert watched.counts[0].tuples.items.ravel().tolist() == list(range(10))
    # 8 empty items with noise above 0 half of the time: all absent by chance 2^-8 in a run
    kept = [len(fitted(schema, codes, loss, reporting_length=1)[0].aggregates.levels[0])]
    kept += [len(model.aggregates.levels[0])]
    kept += [
        len(fitted(schema, codes, loss, reporting_length=1)[0].aggregates.levels[0])
        for _ in range(4)
    ]
    assert max(kept) > 2


def test_the_number_of_rows_is_noisy() -> None:
    """Published: the exact number of records, and a delta made of it."""
    schema, codes = linked(400)
    loss = PrivacyLoss.zcdp(10**9)  # sigma of the rows is 316: an exact one by chance 1 in 800
    sizes = {fitted(schema, codes, loss)[0].size.rows for _ in range(4)}
    assert sizes != {400}


def test_one_record_more_does_not_move_the_percentile() -> None:
    """Published: 99,000 records with 5 combinations and 1,000 with 10 answer 5; one record more
    answers 10, with probability near 1 at epsilon 0.04. A hundredth of that table here."""
    schema = Schema.parse(
        {
            "fields": [
                {"name": f"c{i}", "type": "integer", "constraints": {"minimum": 0, "maximum": 0}}
                for i in range(10)
            ]
        }
    )
    groupings = {column.name: column.grouping for column in schema.columns}
    items = 2 * np.arange(10, dtype=np.int32)[:, None]  # a null beside each
    query = Quantile(
        TupleNumber(Tuples(tuple(groupings), groupings, items)), 0.99, tuple(range(11))
    )
    each = PrivacyLoss.zcdp(2 * 10**8)  # epsilon 0.04
    above = []
    for full in (10, 11):
        holds = np.concatenate([np.full(990, 5), np.full(full, 10)])
        codes = {f"c{i}": np.where(holds > i, 0, 1) for i in range(10)}
        session = session_on(schema, codes, EXACT)
        above.append(np.mean([session.quantile(query, each) > 5 for _ in range(150)]))
    # Shares differ by 1 % at most; their difference has a standard deviation of at most 0.058.
    assert abs(above[0] - above[1]) < 0.35


def test_the_range_of_the_percentile_is_public() -> None:
    schema, codes = linked(2000)
    _, watched = fitted(schema, codes, PrivacyLoss.zcdp(10**12), fabrication_mode="uncontrolled")
    assert watched.quantiles[0].grid == tuple(map(float, range(comb(4, 1) + 1)))
    for length, quantile in enumerate(watched.quantiles, start=1):
        assert quantile.grid[-1] == comb(4, length)


def test_an_entity_counts_once_in_a_combination_and_its_range_grows_with_its_rows() -> None:
    schema = colours(entity=True)
    unit = PrivacyUnit("entity", "id", 4)
    codes = random_codes(schema, 400, seed=2)
    entities = np.arange(400) // 4
    model, watched = fitted(schema, codes, EXACT, unit, entities, percentile_percentage=100)
    assert watched.quantiles[0].grid[-1] == 3 * 4
    for query in watched.counts:
        assert query.limit <= 4 * comb(3, query.tuples.length)
    assert max(model.aggregates.levels[0].counts) <= 100
    table = model.sample(200, generator(0))
    assert table.entity is not None
    assert np.bincount(table.entity).max() <= 4


def test_combinations_beyond_the_bought_limit_are_drawn_away() -> None:
    """Nine rows in ten hold one item, the others four: the median is 1, and each counts once."""
    schema = Schema.parse(
        {
            "fields": [
                {"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": 0}}
                for name in "abcd"
            ]
        }
    )
    holds = np.repeat([1, 4], [900, 100])
    codes = {name: np.where(holds > place, 0, 1) for place, name in enumerate("abcd")}
    model, watched = fitted(schema, codes, percentile_percentage=50, reporting_length=1)
    assert watched.counts[0].limit == 1
    counts = model.aggregates.levels[0].counts
    assert counts.sum() == 1000
    assert 900 < counts[0] < 960  # 900 and binomial (100, 1/4), within 8 standard deviations


def test_candidates_come_from_noisy_survivors_and_hold_combinations_that_never_occur() -> None:
    schema, codes = linked(400)
    _, watched = fitted(schema, codes, PrivacyLoss.zcdp(10**12), fabrication_mode="uncontrolled")
    listed = {tuple(row) for row in watched.counts[1].tuples.items.tolist()}
    assert (0, 4) in listed  # a = 0 with b = 1 is in no row


def test_columns_that_may_be_empty_stay_so_and_required_ones_are_filled() -> None:
    schema = colours()
    codes = random_codes(schema, 300, seed=3)
    model, _ = fitted(schema, codes, PrivacyLoss.zcdp(2 * 10**11))
    table = model.sample(300, generator(1))
    assert set(np.unique(table.codes["size"])) <= set(range(10))
    assert (table.codes["colour"] == schema.column("colour").null_code).any()
    filled, _ = fitted(schema, codes, PrivacyLoss.zcdp(2 * 10**11), complete="all")
    assert (filled.sample(300, generator(1)).codes["colour"] <= 3).all()


def test_with_columns_that_may_be_empty_no_combination_is_fabricated() -> None:
    schema = Schema.parse(
        {
            "fields": [
                {"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": 4}}
                for name in "abcd"
            ]
        }
    )
    codes = random_codes(schema, 400, seed=4)
    model, _ = fitted(schema, codes, PrivacyLoss.zcdp(10**11), fabrication_mode="balanced")
    items = model.layout.items(model.sample(400, generator(0)).codes)
    for size in (1, 2, 3):
        for columns in combinations(range(4), size):
            part = items[:, columns]
            assert model.aggregates.holds(part[(part >= 0).all(axis=1)]).all()


def fabricated(model: AggregateSeededModel, table: Table) -> int:
    """How many combinations of up to three values its rows hold that were not kept."""
    items = model.layout.items(table.codes)
    parts = [items[:, list(cs)] for size in (1, 2, 3) for cs in combinations(range(4), size)]
    return sum(
        int((~model.aggregates.holds(part[(part >= 0).all(axis=1)])).sum()) for part in parts
    )


def test_counted_rows_of_required_columns_hold_no_combination_that_was_not_kept() -> None:
    """Filling places makes up combinations where the noise has suppressed many."""
    schema = digits(dict.fromkeys("abcd", 5))
    codes = random_codes(schema, 2000, seed=4)
    codes["b"], codes["c"] = codes["a"], (codes["a"] + codes["d"]) % 5
    loss = PrivacyLoss.zcdp(2 * 10**10)
    filled, _ = fitted(schema, codes, loss)
    table = filled.sample(2000, generator(0))
    assert (table.rows, fabricated(filled, table) > 0) == (2000, True)
    model, _ = fitted(schema, codes, loss, complete="counted")
    table = model.sample(2000, generator(0))
    assert (table.rows, fabricated(model, table)) == (2000, 0)
    stored = AggregateSeededModel.load(schema, ROW, model.dump()).sample(2000, generator(0))
    assert all((stored.codes[name] == table.codes[name]).all() for name in codes)


def test_where_no_counted_combinations_make_a_row_none_comes_out() -> None:
    schema = digits(dict.fromkeys("abcd", 5))
    codes = random_codes(schema, 200, seed=4)
    form = {"fabrication_mode": {"type": "fixed", "values": [60.0, 60.0]}}
    model, _ = fitted(schema, codes, complete="counted", **form)
    table = model.sample(50, generator(0))
    assert table.rows == 0
    assert all(len(column) == 0 for column in table.codes.values())


def test_rows_that_are_tried_again_take_their_time() -> None:
    schema = digits(dict.fromkeys("abcd", 5))
    at = [
        tuple(each.pointer for each in checked(schema, complete=choice, **form).problems)
        for choice in ("required", "counted")
        for form in ({"target_number_of_records": 100_000},)
    ]
    assert at == [(), ("/params/target_number_of_records",)]


def tagged() -> Schema:
    return Schema.parse(
        {
            "fields": [
                {
                    "name": "tags",
                    "type": "string",
                    "constraints": {"enum": ["red", "red;blue", "blue;green", "none"]},
                },
                {"name": "a", "type": "integer", "constraints": {"minimum": 0, "maximum": 1}},
            ]
        }
    )


def test_each_part_of_a_list_is_an_item() -> None:
    schema = tagged()
    codes = {"tags": np.repeat([0, 1, 2, 4], 25), "a": np.tile([0, 1], 50)}
    model, watched = fitted(
        schema, codes, multi_value_columns={"tags": ";"}, percentile_percentage=100
    )
    counts = {text: count for length, text, count in model.long_form(schema) if length <= 2}
    assert counts["tags:red"] == 50  # red and red;blue; names come from declared texts
    assert counts["tags:blue;tags:red"] == 25
    assert counts["tags:blue;tags:green"] == 25
    assert "tags:green;tags:red" not in counts
    assert watched.quantiles[0].grid[-1] == 4 + 1
    table = model.sample(100, generator(0))
    assert set(np.unique(table.codes["tags"])) <= set(range(5))
    again = SYNTHESIZER.load(schema, ROW, model.dump())
    assert again.sample(9, generator(0)).codes["tags"].tolist() == (
        model.sample(9, generator(0)).codes["tags"].tolist()
    )


def test_a_set_of_parts_that_no_text_has_becomes_one_that_adds_none() -> None:
    parts = Parts(("blue", "green", "red"), ((2,), (0, 2), (0, 1), ()))
    held = np.array([[0, 1, 1], [1, 1, 1], [0, 0, 0], [1, 0, 1]], dtype=bool)
    assert cells_of_sets(parts, held).tolist() == [0, 1, 3, 1]


def test_tuples_of_parts_cross_the_pipe() -> None:
    schema = tagged()
    column = schema.column("tags")
    tuples = Tuples(
        ("tags",),
        {"tags": column.grouping},
        np.array([[0, 1]], dtype=np.int32),
        {"tags": parts_of(column, ";")},
    )
    question = CountQuestion((TupleCount(tuples, 2),), PrivacyLoss.zcdp(10**9), None)
    frame = encode_question(question)
    (query,) = decode_question(frame).queries  # type: ignore[union-attr]
    assert query == question.queries[0]


def test_zeros_that_are_not_sensitive_mean_nothing() -> None:
    schema = digits({"a": 3, "b": 3})
    codes = {"a": np.repeat([0, 1], 50), "b": np.repeat([0, 2], 50)}
    model, watched = fitted(schema, codes, sensitive_zeros=["b"], percentile_percentage=100)
    assert watched.counts[0].tuples.items.ravel().tolist() == [1, 2, 3, 4, 5]
    table = model.sample(100, generator(0))
    assert np.bincount(table.codes["a"]).tolist() == [50, 50]


def taxis() -> tuple[Schema, Codes, NDArray[np.int64]]:
    """200 taxis of five rows, four of which share a place but no hour."""
    schema = Schema.parse(
        {
            "fields": [
                {"name": "id", "type": "integer", "role": "entity"},
                *digits({"place": 2, "hour": 5}).to_wire()["fields"],
            ]
        }
    )
    codes = {"place": np.tile([0, 0, 0, 0, 1], 200), "hour": np.tile(np.arange(5), 200)}
    return schema, codes, np.repeat(np.arange(200), 5)


@pytest.mark.parametrize(
    ("choice", "share"), [("singles", 1 / 2), ("with_pairs", (1 / 2 + 4 / 5) / 2), (None, 0.65)]
)
def test_an_item_of_many_rows_is_used_more_where_pairs_tell(
    choice: str | None, share: float
) -> None:
    """Each taxi counts once for both places, but in four pairs with the one and in one with
    the other, as its rows are."""
    schema, codes, entities = taxis()
    unit = PrivacyUnit("entity", "id", 5)
    model, _ = fitted(schema, codes, EXACT, unit, entities, item_shares=choice)
    places = model.sample(1000, generator(0)).codes["place"]
    assert np.bincount(places, minlength=2)[0] == pytest.approx(1000 * share, abs=1)


def test_on_a_row_unit_an_item_is_used_as_its_own_count_says() -> None:
    schema, codes = linked(50)
    assert fitted(schema, codes)[0].in_pairs is None
    assert fitted(schema, codes, item_shares="with_pairs")[0].in_pairs is not None
    of_singles, _ = fitted(schema, codes, item_shares="with_pairs", reporting_length=1)
    assert of_singles.in_pairs is None


def test_the_pairs_of_an_item_are_summed_and_negative_sums_spread_over_their_column() -> None:
    model, _ = fitted(*linked(5))
    layout = model.layout  # the items of a: 0 to 2, b: 3 to 5, c: 6 and 7, d: 8 to 11
    items = np.array([[0, 3], [0, 6], [1, 3], [2, 7]], dtype=np.int32)
    sums = layout.sums_of_items(items, np.array([5, 4, 3, -2]))
    assert sums.tolist()[:6] == [8, 2, 0, 8, 0, 0]
    assert sums.tolist()[6:8] == [2, 0]


def test_a_stored_model_keeps_the_shares_of_pairs() -> None:
    schema, codes, entities = taxis()
    unit = PrivacyUnit("entity", "id", 5)
    model, _ = fitted(schema, codes, EXACT, unit, entities)
    again = SYNTHESIZER.load(schema, unit, model.dump())
    assert model.in_pairs is not None
    assert again.in_pairs is not None
    assert again.in_pairs.tolist() == model.in_pairs.tolist()
    wrong = replace(model, in_pairs=model.in_pairs[1:])
    with pytest.raises(ModelFormatError):
        SYNTHESIZER.load(schema, unit, wrong.dump())


def test_target_rows_and_scale() -> None:
    schema, codes = linked(300)
    model, _ = fitted(schema, codes, target_number_of_records=77)
    assert model.sample(None, generator(0)).rows == 77
    assert model.sample(5, generator(0)).rows == 5
    assert model.sample(0, generator(0)).rows == 0


def test_aggregates_come_in_the_long_form() -> None:
    schema = digits({"a": 2, "b": 2})
    codes = {"a": np.array([0, 0, 1]), "b": np.array([1, 1, 0])}
    model, _ = fitted(schema, codes, percentile_percentage=100)
    assert list(model.long_form(schema)) == [
        (1, "a:0", 2),
        (1, "a:1", 1),
        (1, "b:0", 1),
        (1, "b:1", 2),
        (2, "a:0;b:1", 2),
        (2, "a:1;b:0", 1),
    ]


def test_a_stored_model_samples_the_same_rows() -> None:
    schema, codes = linked(300)
    model, _ = fitted(schema, codes, PrivacyLoss.zcdp(10**12))
    again = SYNTHESIZER.load(schema, ROW, model.dump())
    one, other = model.sample(50, generator(3)), again.sample(50, generator(3))
    assert all(one.codes[name].tolist() == other.codes[name].tolist() for name in codes)
    assert again.dump() == model.dump()


def test_a_stored_model_that_is_impossible_is_refused() -> None:
    schema, codes = linked(300)
    model, _ = fitted(schema, codes)
    levels = model.aggregates.levels
    twice = replace(levels[1], counts=levels[1].counts + 1000)
    broken = replace(model, aggregates=replace(model.aggregates, levels=(levels[0], twice)))
    with pytest.raises(ModelFormatError):
        SYNTHESIZER.load(schema, ROW, broken.dump())
    with pytest.raises(ModelFormatError):
        SYNTHESIZER.load(colours(), ROW, model.dump())


@pytest.mark.parametrize(
    ("form", "loss", "pointer"),
    [
        ({}, PrivacyLoss.pure(10**12), "/guarantee"),
        ({"columns": ["nobody"]}, EXACT, "/params/columns/0"),
        ({"sensitive_zeros": ["nobody"]}, EXACT, "/params/sensitive_zeros/0"),
        ({"multi_value_columns": {"size": ";"}}, EXACT, "/params/multi_value_columns/size"),
        ({"multi_value_columns": {"nobody": ";"}}, EXACT, "/params/multi_value_columns/nobody"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    form: dict[str, object], loss: PrivacyLoss, pointer: str
) -> None:
    problems = checked(colours(), loss=loss, **form).problems
    assert pointer in [problem.pointer for problem in problems]


def test_a_part_of_the_loss_that_pays_nothing_is_refused() -> None:
    found = checked(colours(), loss=PrivacyLoss.zcdp(10**6), sigma_proportions=[1e6, 1, 1])
    assert [problem.pointer for problem in found.problems] == ["/guarantee"]


def test_more_rows_than_there_is_time_for_are_refused() -> None:
    found = checked(colours(), target_number_of_records=1_000_000)
    assert "/params/target_number_of_records" in [each.pointer for each in found.problems]


def test_too_many_items_are_refused() -> None:
    assert checked(digits({"a": 3000, "b": 3000})).problems[0].pointer == "/params/columns"
    assert not checked(digits({"a": 300, "b": 300})).problems


def test_more_combinations_of_a_row_than_the_kernel_looks_for_are_refused() -> None:
    wide = digits({f"c{number}": 2 for number in range(200)})
    assert not checked(wide, reporting_length=3).problems
    problems = checked(wide, reporting_length=4).problems
    assert problems[0].pointer == "/params/columns"
    crowd = PrivacyUnit("entity", "id", 2**26 // 200)
    assert not checked(wide, crowd, reporting_length=3).problems
    more = replace(crowd, max_rows=crowd.max_rows + 1)
    assert [each.pointer for each in checked(wide, more).problems] == ["/params/columns"]


def test_more_rows_of_an_entity_mean_more_noise() -> None:
    unit = PrivacyUnit("entity", "id", 9)
    rows = checked(colours(entity=True)).expected_error
    entities = checked(colours(entity=True), unit).expected_error
    assert entities > 2.9 * rows


DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "reference/synthesizers/aggregate_seeded.md"
REQUESTS = PAGE.read_text() + (DOCS / "results/aggregate_seeded.md").read_text()


@pytest.mark.parametrize("example", re.findall(r"```json\n(.*?)```", REQUESTS, re.DOTALL))
def test_the_examples_of_the_page_are_accepted(example: str) -> None:
    request = json.loads(example)
    bounds = {
        "shift": (0, 20),
        "company_id": (0, 100),
        "pickup_community_area": (-1, 77),
        "dropoff_community_area": (-1, 77),
        "payment_type": (0, 8),
        "fare": (-1, 10000),
        "tips": (-1, 1000),
        "trip_total": (-1, 9975),
        "trip_seconds": (-1, 100000),
        "trip_miles": (-1, 2000),
    }
    schema = Schema.parse(
        {
            "fields": [
                {"name": "taxi_id", "type": "integer", "role": "entity"},
                *(
                    {
                        "name": name,
                        "type": "integer",
                        "constraints": {"minimum": low, "maximum": high},
                    }
                    for name, (low, high) in bounds.items()
                ),
            ]
        }
    )
    assert request["synthesizer"] == SYNTHESIZER.name
    found = checked(schema, PrivacyUnit("entity", "taxi_id", 200), **request["params"])
    assert not found.problems


def test_the_page_names_every_param() -> None:
    for name in AggregateSeededParams.model_fields:
        assert f"`{name}`" in PAGE.read_text()
