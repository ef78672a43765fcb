from __future__ import annotations

import numpy as np
import pytest
from small_tables import EXACT, LIMITS, ROW, colours, digits, quiet, random_codes, session_on

from app.engine.method.model_file import ModelFormatError, pack, unpack
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.independent import Independent, IndependentModel, IndependentParams
from app.engine.table import generator

HOUSEHOLD = PrivacyUnit("entity", "id", 3)
GAUSSIAN = PrivacyLoss.zcdp(10**12)
LAPLACE = PrivacyLoss.pure(10**13)


def params(**form: object) -> IndependentParams:
    return IndependentParams.model_validate(form)


def fit(
    form: IndependentParams | None = None, loss: PrivacyLoss = EXACT, unit: PrivacyUnit = ROW
) -> IndependentModel:
    entity = unit.kind == "entity"
    schema = colours(entity)
    entities = np.arange(300) % 100 if entity else None
    session = session_on(schema, random_codes(schema, 300), loss, unit, entities)
    model = Independent().fit(session, form or params(), None, 7, quiet)
    assert session.remaining.amount <= 5, "all is spent but what rounding down leaves"
    return model


def test_without_noise_each_column_has_the_distribution_of_the_table() -> None:
    model = fit()
    codes = random_codes(colours(), 300)
    assert model.size.rows == 300
    assert np.allclose(model.probabilities[0], np.bincount(codes["colour"], minlength=4) / 300)
    assert np.allclose(model.probabilities[1], np.bincount(codes["size"], minlength=10) / 300)


@pytest.mark.parametrize("loss", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("unit", [ROW, HOUSEHOLD])
@pytest.mark.parametrize("rule", [{"rule": "rows"}, {"rule": "distinct", "limit": 2}])
def test_probabilities_are_not_negative_and_add_up(
    loss: PrivacyLoss, unit: PrivacyUnit, rule: dict[str, object]
) -> None:
    model = fit(params(contribution=rule), loss, unit)
    for column in model.probabilities:
        assert (column >= 0).all()
        assert column.sum() == pytest.approx(1)
    assert abs(model.size.rows - 300) < 100


def test_columns_that_go_together_come_out_independent() -> None:
    same = np.arange(20_000) % 10
    schema = digits({"x": 10, "y": 10})
    session = session_on(schema, {"x": same, "y": same})
    table = Independent().fit(session, params(), None, 7, quiet).sample(None, generator(8))
    x, y = table.codes["x"], table.codes["y"]
    assert np.bincount(x).tolist() == np.bincount(y).tolist() == [2000] * 10
    # Each has standard deviation 0.007 under independence; 5.2 of them: 2e-7.
    assert abs(np.corrcoef(x, y)[0, 1]) < 0.037
    assert abs(np.corrcoef(x[1:], y[:-1])[0, 1]) < 0.037
    assert abs(np.corrcoef(np.arange(x.size), x)[0, 1]) < 0.037


def test_sampled_counts_are_within_one_of_the_expected_ones() -> None:
    model = fit(loss=GAUSSIAN)
    table = model.sample(777, generator(9))
    counts = np.bincount(table.codes["size"], minlength=10)
    assert np.abs(counts - 777 * model.probabilities[1]).max() < 1


def test_entities_hold_no_more_rows_than_the_unit_allows() -> None:
    table = fit(loss=GAUSSIAN, unit=HOUSEHOLD).sample(None, generator(10))
    assert table.entity is not None
    assert np.bincount(table.entity).max() <= HOUSEHOLD.max_rows


def test_the_same_answers_give_the_same_bytes_and_the_bytes_the_same_sample() -> None:
    model = fit()
    assert fit().dump() == model.dump()
    loaded = Independent().load(colours(), ROW, model.dump())
    before, after = (each.sample(50, generator(11)) for each in (model, loaded))
    assert all(np.array_equal(before.codes[name], after.codes[name]) for name in before.codes)


@pytest.mark.parametrize("change", [2.0, -1.0, np.nan])
def test_a_model_with_impossible_probabilities_is_refused(change: float) -> None:
    header, arrays = unpack(fit().dump())
    with pytest.raises(ModelFormatError):
        Independent().load(
            colours(), ROW, pack(header, {**arrays, "shares1": arrays["shares1"] * change})
        )


def test_the_forecast_counts_the_cells_of_all_columns() -> None:
    preflight = Independent().check(colours(), ROW, params(), GAUSSIAN, None, LIMITS)
    assert preflight.cells == 4 + 10 + 7
    assert preflight.problems == ()
    # rho 1, 96 % of it on three columns: sigma = 1 / sqrt(2 * 0.96 / 3).
    assert preflight.expected_error == pytest.approx(1.25, abs=1e-3)


def test_columns_of_too_many_cells_are_told() -> None:
    wide = digits({"a": 400_000, "b": 200_000})
    preflight = Independent().check(wide, ROW, params(), GAUSSIAN, None, LIMITS)
    assert "/params/columns" in [problem.pointer for problem in preflight.problems]


@pytest.mark.parametrize(
    ("form", "loss", "pointer"),
    [
        ({"columns": []}, GAUSSIAN, "/params/columns"),
        ({"columns": ["weight"]}, GAUSSIAN, "/params/columns/0"),
        ({"contribution": {"rule": "clipped", "norm": 2}}, LAPLACE, "/params/contribution/rule"),
        ({}, PrivacyLoss.pure(2), "/guarantee"),
    ],
)
def test_what_cannot_run_is_told_before_it_is_charged(
    form: dict[str, object], loss: PrivacyLoss, pointer: str
) -> None:
    preflight = Independent().check(colours(True), HOUSEHOLD, params(**form), loss, None, LIMITS)
    assert pointer in [problem.pointer for problem in preflight.problems]
