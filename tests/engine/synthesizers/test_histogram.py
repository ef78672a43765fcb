from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import EXACT, LIMITS, ROW, colours, digits, quiet, random_codes, session_on

from app.engine.method import Params, Preflight
from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.histogram import Histogram, HistogramModel, HistogramParams
from app.engine.table import generator

HOUSEHOLD = PrivacyUnit("entity", "id", 3)
GAUSSIAN = PrivacyLoss.zcdp(10**12)
LAPLACE = PrivacyLoss.pure(10**13)


def params(**form: object) -> HistogramParams:
    return HistogramParams.model_validate(form)


def fit(
    form: HistogramParams, loss: PrivacyLoss = EXACT, unit: PrivacyUnit = ROW, rows: int = 200
) -> HistogramModel:
    entity = unit.kind == "entity"
    schema = colours(entity)
    entities = np.arange(rows) % 50 if entity else None
    session = session_on(schema, random_codes(schema, rows), loss, unit, entities)
    model = Histogram().fit(session, form, None, 7, quiet)
    assert session.remaining.amount <= 2, "all is spent but what rounding down leaves"
    return model


def check(
    form: HistogramParams, loss: PrivacyLoss = GAUSSIAN, unit: PrivacyUnit = ROW
) -> Preflight:
    schema = colours(unit.kind == "entity")
    return Histogram().check(schema, unit, form, loss, None, LIMITS)


def exact_counts(rows: int) -> np.ndarray:
    codes = random_codes(colours(), rows)
    grouping = colours().column("fare").grouping
    counts = np.zeros((4, 10, 7), dtype=int)
    np.add.at(counts, (codes["colour"], codes["size"], grouping.cell_of(codes["fare"])), 1)
    return counts


@pytest.mark.parametrize("post_processing", ["project", "clip", "threshold"])
def test_without_noise_the_counts_are_the_tables(post_processing: str) -> None:
    model = fit(params(post_processing=post_processing))
    assert np.array_equal(model.counts().values, exact_counts(200))
    assert model.size.rows == 200


def test_the_counts_name_their_columns_cells_and_rule() -> None:
    model = fit(params(columns=["size", "colour"], contribution={"rule": "distinct", "limit": 2}))
    count = model.counts().count
    assert count.columns == ("size", "colour")
    assert count.groupings["colour"] == colours().column("colour").grouping
    assert (count.contribution.rule, count.contribution.limit) == ("distinct", 2)


@pytest.mark.parametrize("loss", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("unit", [ROW, HOUSEHOLD])
def test_projected_counts_are_not_negative_and_add_up_to_the_noisy_rows(
    loss: PrivacyLoss, unit: PrivacyUnit
) -> None:
    model = fit(params(), loss, unit)
    values = model.counts().values
    assert (values >= 0).all()
    assert values.sum() == model.size.rows
    assert abs(model.size.rows - (150 if unit is HOUSEHOLD else 200)) < 150


def test_the_published_clipping_invents_mass_where_the_projection_does_not() -> None:
    clipped = fit(params(post_processing="clip"), PrivacyLoss.zcdp(10**10)).counts().values
    # 280 cells of noise with sigma 7.2, clipped, add about 2.9 each to the table's 200 rows:
    # 800 with a standard deviation of 71, of which 400 is over 5.
    assert clipped.sum() > 400


def test_a_prior_of_independent_columns_brings_sparse_counts_nearer() -> None:
    """2,000 rows in half the months of 12,000 cells, at epsilon 1: errors of some 1,050
    against 1,930 by the plain projection, with standard deviations of some 50 each, so that the
    bound of 1,640 is more than 8 of them away."""
    schema = digits({"place": 50, "month": 12, "type": 20})
    rng = np.random.default_rng(11)
    codes = {
        "place": rng.choice(50, 2000, p=rng.dirichlet(np.full(50, 0.3))),
        "month": rng.integers(0, 6, 2000),
        "type": rng.choice(20, 2000, p=rng.dirichlet(np.full(20, 0.3))),
    }
    exact = np.zeros((50, 12, 20), dtype=int)
    np.add.at(exact, tuple(codes.values()), 1)
    errors = {}
    for prior in ("independent", "none"):
        session = session_on(schema, codes, PrivacyLoss.pure(10**12), ROW)
        model = Histogram().fit(session, params(prior=prior), None, 7, quiet)
        assert model.values.sum() == model.size.rows
        assert (model.values >= 0).all()
        errors[prior] = int(np.abs(model.values - exact).sum())
    assert errors["independent"] < 0.85 * errors["none"], errors


def test_a_threshold_keeps_what_stands_out() -> None:
    kept = fit(params(post_processing="threshold", threshold=2.0), PrivacyLoss.zcdp(10**10))
    values = kept.counts().values
    assert ((values == 0) | (values >= 2 * 7.2)).all()


def test_distinct_counts_add_up_by_themselves() -> None:
    form = params(columns=["colour"], contribution={"rule": "distinct", "limit": 1})
    model = fit(form, EXACT, HOUSEHOLD)
    assert model.counts().values.sum() == 50
    assert model.size.rows == 150
    assert model.sample(None, generator(1)).rows == 150


def test_clipped_counts_are_bounded_by_the_norm() -> None:
    form = params(columns=["colour"], contribution={"rule": "clipped", "norm": 1.0})
    model = fit(form, PrivacyLoss.zcdp(10**18), HOUSEHOLD)
    assert 50 <= model.counts().values.sum() <= 50 * 3**0.5 + 2


@given(st.integers(0, 2**63 - 1), st.none() | st.integers(0, 2000))
@settings(max_examples=10, deadline=None)
def test_samples_lie_in_the_dictionary(seed: int, rows: int | None) -> None:
    model = fit(params(), GAUSSIAN, HOUSEHOLD)
    table = model.sample(rows, generator(seed))
    assert table.rows == (model.size.rows if rows is None else rows)
    for column in colours().columns:
        codes = table.codes[column.name]
        assert codes.shape == (table.rows,)
        assert not table.rows or 0 <= codes.min() <= codes.max() < column.codes
    assert table.entity is not None
    assert not table.rows or np.bincount(table.entity).max() <= HOUSEHOLD.max_rows


def test_a_sample_of_the_noisy_rows_has_the_models_counts() -> None:
    model = fit(params(columns=["colour", "size"]), GAUSSIAN)
    table = model.sample(None, generator(3))
    counts = np.zeros((4, 10), dtype=int)
    np.add.at(counts, (table.codes["colour"], table.codes["size"]), 1)
    assert np.array_equal(counts, model.counts().values)


def test_numbers_are_spread_over_their_bin() -> None:
    codes = fit(params(columns=["fare"]), rows=2000).sample(None, generator(4)).codes["fare"]
    column = colours().column("fare")
    regular = codes[codes < column.regular]
    assert np.unique(regular).size > 0.99 * regular.size


def test_a_table_of_no_rows_gives_a_sample_of_any_size() -> None:
    model = fit(params(), rows=0)
    assert model.counts().values.sum() == 0
    assert model.sample(None, generator(5)).rows == 0
    assert model.sample(9, generator(5)).rows == 9


@pytest.mark.parametrize("unit", [ROW, HOUSEHOLD])
def test_a_stored_model_samples_as_before(unit: PrivacyUnit) -> None:
    model = fit(params(contribution={"rule": "distinct", "limit": 2}), GAUSSIAN, unit)
    schema = colours(unit.kind == "entity")
    loaded = Histogram().load(schema, unit, model.dump())
    assert loaded.dump() == model.dump()
    assert loaded.counts().count == model.counts().count
    before, after = (each.sample(99, generator(6)) for each in (model, loaded))
    assert all(np.array_equal(before.codes[name], after.codes[name]) for name in before.codes)


def test_a_model_of_another_dictionary_is_refused() -> None:
    data = fit(params()).dump()
    with pytest.raises(ModelFormatError):
        Histogram().load(digits({"size": 10}), ROW, data)
    with pytest.raises(ModelFormatError):
        Histogram().load(colours(True), HOUSEHOLD, data)
    header, arrays = unpack(data)
    with pytest.raises(ModelFormatError):
        Histogram().load(colours(), ROW, pack(header, {"counts": -arrays["counts"]}))
    with pytest.raises(ModelFormatError):
        Histogram().load(colours(), ROW, pack({**header, "contribution": {}}, arrays))


@pytest.mark.parametrize("unit", [ROW, HOUSEHOLD])
@pytest.mark.parametrize("loss", [GAUSSIAN, LAPLACE, PrivacyLoss.pure(10**9)])
@pytest.mark.parametrize("rule", [{"rule": "rows"}, {"rule": "distinct", "limit": 2}])
def test_the_forecast_error_is_the_kernels(
    loss: PrivacyLoss, unit: PrivacyUnit, rule: dict[str, object]
) -> None:
    form = params(contribution=rule)
    schema = colours(unit.kind == "entity")
    entities = np.arange(9) if unit is HOUSEHOLD else None
    session = session_on(schema, random_codes(schema, 9), loss, unit, entities)
    asked = []

    class Listening:
        def __getattr__(self, name: str) -> object:
            return getattr(session, name)

        def count(self, *question: object) -> object:
            asked.append(session.count(*question))  # type: ignore[arg-type]
            return asked[-1]

    Histogram().fit(Listening(), form, None, 0, quiet)  # type: ignore[arg-type]
    assert check(form, loss, unit).expected_error == pytest.approx(
        asked[0][0].standard_error, rel=0.05
    )


def test_the_forecast_counts_cells_and_memory() -> None:
    preflight = check(params(columns=["colour", "fare"], bins={"fare": 10}))
    assert preflight.cells == 4 * 12
    assert 0 < preflight.memory_bytes <= LIMITS.memory_bytes
    assert preflight.problems == ()


def test_the_published_map_of_580464_cells_fits() -> None:
    schema = digits({"neighbourhood": 278, "month": 12, "type": 174})
    preflight = Histogram().check(schema, ROW, params(), LAPLACE, None, LIMITS)
    assert preflight.cells == 580_464
    assert preflight.problems == ()
    assert preflight.memory_bytes < 2**29 + 2**28


@pytest.mark.parametrize(
    ("form", "loss", "pointer"),
    [
        ({"columns": ["weight"]}, GAUSSIAN, "/params/columns/0"),
        (
            {"bins": {"fare": 300_000}, "columns": ["fare", "size", "colour"]},
            GAUSSIAN,
            "/params/columns",
        ),
        ({"contribution": {"rule": "clipped", "norm": 1}}, LAPLACE, "/params/contribution/rule"),
        ({}, PrivacyLoss.pure(1), "/guarantee"),
        ({}, PrivacyLoss.zcdp(0), "/guarantee"),
    ],
)
def test_what_cannot_run_is_told_before_it_is_charged(
    form: dict[str, object], loss: PrivacyLoss, pointer: str
) -> None:
    unit = PrivacyUnit("entity", "id", 20)
    assert pointer in [problem.pointer for problem in check(params(**form), loss, unit).problems]


def test_more_columns_than_an_array_has_dimensions_are_told() -> None:
    wide = digits({f"c{i}": 1 for i in range(33)})
    preflight = Histogram().check(wide, ROW, params(), GAUSSIAN, None, LIMITS)
    assert [problem.pointer for problem in preflight.problems] == ["/params/columns"]


def test_a_sample_beyond_the_memory_is_told_before_it_is_charged() -> None:
    limits = dataclasses.replace(LIMITS, rows=10**8, time_s=3600.0)
    preflight = Histogram().check(colours(), ROW, params(), GAUSSIAN, None, limits)
    assert [problem.pointer for problem in preflight.problems] == ["/params"]


def test_noise_that_takes_too_long_to_draw_is_told_before_it_is_charged() -> None:
    limits = dataclasses.replace(LIMITS, time_s=0.02)
    preflight = Histogram().check(colours(), ROW, params(), GAUSSIAN, None, limits)
    assert ["seconds" in problem.message for problem in preflight.problems] == [True]


@pytest.mark.parametrize(
    "form",
    [
        {"colour": 3},
        {"columns": "size"},
        {"bins": {"size": 0}},
        {"post_processing": "none"},
        {"threshold": float("nan")},
        {"contribution": {"rule": "rows", "limit": 3}},
        {"contribution": {"rule": "distinct"}},
        {"contribution": {"rule": "distinct", "limit": 0}},
        {"contribution": {"rule": "clipped", "norm": 0}},
        {"contribution": {"rule": "one"}},
    ],
)
def test_a_malformed_form_is_refused(form: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        params(**form)


def test_null_is_the_same_as_omitted() -> None:
    nulls: dict[str, object] = dict.fromkeys(HistogramParams.model_fields)
    assert params(**nulls) == params()
    assert isinstance(params(), Params)


def test_a_product_of_columns_without_end_is_refused_and_told_within_bounds() -> None:
    wide = Schema.parse(
        {"fields": [{"name": f"c{place}", "type": "boolean"} for place in range(2000)]}
    )
    forecast = Histogram().check(wide, ROW, params(), GAUSSIAN, None, LIMITS)
    assert forecast.cells == forecast.memory_bytes == 2**62
    assert {problem.pointer for problem in forecast.problems} == {"/params", "/params/columns"}
    assert all(len(problem.message) < 200 for problem in forecast.problems)
