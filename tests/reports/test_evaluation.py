"""The custodian's evaluation: exact arithmetic on small tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import Table
from app.problems import Invalid
from app.reports.evaluation import closeness, evaluating
from app.reports.evaluation.drawn import DrawnRows, NotMade, drawn, first_half
from app.reports.evaluation.figures import Evaluation, Regression
from app.reports.evaluation.form import ReportIn, check
from app.reports.evaluation.prediction import prediction
from app.reports.evaluation.propensity import propensity
from app.reports.evaluation.regression import overlap, regression
from app.reports.exact import ExactRows
from app.reports.synthetic import SyntheticRows

SCHEMA = Schema.parse(
    {
        "fields": [
            {
                "name": "x",
                "type": "number",
                "constraints": {"minimum": 0, "maximum": 99},
                "step": 1,
            },
            {"name": "y", "type": "integer", "constraints": {"minimum": 0, "maximum": 999}},
            {
                "name": "colour",
                "type": "string",
                "constraints": {"enum": ["red", "green", "blue"], "required": True},
            },
            {"name": "paid", "type": "boolean", "constraints": {"required": True}},
            {"name": "id", "type": "string", "role": "entity"},
        ]
    }
)
COLUMNS = list(SCHEMA.columns)
NAMES = [column.name for column in COLUMNS]
ROW, ENTITY = PrivacyUnit("row"), PrivacyUnit("entity", "id", 3)


def rows_of(owner: Sequence[int] | None = None, **columns: Any) -> DrawnRows:
    """Rows with 0 in the columns that are not given."""
    size = len(next(iter(columns.values())))
    codes = {name: np.asarray(columns.get(name, np.zeros(size, int))) for name in NAMES}
    return DrawnRows(codes, size, None if owner is None else np.asarray(owner))


def people(rows: int, seed: int) -> DrawnRows:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 100, rows)
    y = np.clip(5 * x + rng.integers(0, 100, rows), 0, 999)
    return rows_of(x=x, y=y, colour=rng.integers(0, 3, rows), paid=(x > 50).astype(int))


def nothing() -> None:
    return None


# Propensity.


def test_rows_that_share_no_value_are_told_apart_and_those_of_one_population_are_not() -> None:
    real, other = people(600, 1), people(600, 2)
    same = propensity(real, other, COLUMNS, nothing)
    assert same.ratio is not None
    assert 0.6 < same.ratio < 1.5
    apart = propensity(real, rows_of(**{**other.codes, "colour": [2] * 600}), COLUMNS, nothing)
    assert apart.ratio is not None
    assert apart.ratio > 3
    assert apart.columns[0].column == "colour"
    real = rows_of(colour=[0] * 50)
    split = propensity(real, rows_of(colour=[1] * 50), COLUMNS, nothing)
    assert split.pmse == 0.25  # (1 - 1/2)^2 for every row
    identical = propensity(real, real, COLUMNS, nothing)
    assert (identical.pmse, identical.ratio) == (0, None)


def test_labels_of_whole_entities_are_permuted() -> None:
    """Ten entities of ten equal rows each: the rows alone would look far apart."""
    owner = np.repeat(np.arange(10), 10)
    tables = [
        rows_of(owner, x=np.repeat(np.random.default_rng(seed).permutation(100)[:10], 10))
        for seed in (1, 2)
    ]
    found = propensity(*tables, COLUMNS, nothing)
    alone = propensity(*(rows_of(x=table.codes["x"]) for table in tables), COLUMNS, nothing)
    assert (found.permuted, alone.permuted) == ("entities", "rows")
    assert found.pmse == alone.pmse
    assert found.null_mean > 2 * alone.null_mean


def test_a_table_of_few_rows_is_not_told_apart() -> None:
    with pytest.raises(NotMade, match="fewer than 20 rows"):
        propensity(people(19, 1), people(100, 1), COLUMNS, nothing)


# Prediction.


@pytest.mark.parametrize(("target", "constant"), [("paid", 0.5), ("y", 0.0)])
def test_a_model_of_good_rows_predicts_and_one_of_wrong_rows_does_not(
    target: str, constant: float
) -> None:
    real, good = people(400, 1), people(400, 2)
    wrong = rows_of(**{**good.codes, "paid": 1 - good.codes["paid"], "y": 999 - good.codes["y"]})
    columns = [column for column in COLUMNS if column.name in ("x", target)]
    found = [
        prediction(real, made, SCHEMA.column(target), columns, nothing) for made in (good, wrong)
    ]
    assert found[0].used.real == found[0].used.synthetic == found[0].tested == 200
    for score in (found[0].trained_on_synthetic, found[0].trained_on_real):
        assert (score.accuracy or score.r2 or 0) > 0.9
    score = found[0].constant
    assert abs((score.accuracy or score.r2 or 0) - constant) < 0.1
    score = found[1].trained_on_synthetic
    if target == "paid":
        assert (score.auc, score.r2) == (pytest.approx(0, abs=0.02), None)
        assert found[0].trained_on_synthetic.auc == pytest.approx(1, abs=0.01)
    else:
        assert (score.auc, score.accuracy) == (None, None)
        assert score.r2 is not None
        assert score.r2 < 0


def test_a_target_of_one_value_in_the_synthetic_rows_is_predicted_as_a_constant() -> None:
    real = people(100, 1)
    made = rows_of(**{**real.codes, "colour": [1] * 100})
    found = prediction(real, made, SCHEMA.column("colour"), COLUMNS, nothing)
    tested = real.codes["colour"][~first_half(100, None)]
    assert found.trained_on_synthetic.accuracy == pytest.approx(np.mean(tested == 1))
    assert found.trained_on_synthetic.auc is None
    assert found.trained_on_real.auc is not None


def test_rows_without_the_target_are_left_out() -> None:
    null = SCHEMA.column("y").null_code
    real, made = people(100, 1), people(100, 2)
    made = rows_of(**{**made.codes, "y": [null] * 90 + [3] * 10})
    with pytest.raises(NotMade, match="`y`"):
        prediction(real, made, SCHEMA.column("y"), COLUMNS, nothing)


# Regression.


def coefficients(found: Regression) -> Mapping[str, tuple[float, float]]:
    return {each.term: (each.real, each.real_error) for each in found.coefficients}


def test_least_squares_as_scipy_has_them() -> None:
    real, made = people(50, 1), people(60, 2)
    found = regression(real, made, SCHEMA.column("y"), [SCHEMA.column("x")])
    expected = [stats.linregress(table.codes["x"], table.codes["y"]) for table in (real, made)]
    assert coefficients(found) == {
        "intercept": pytest.approx((expected[0].intercept, expected[0].intercept_stderr)),
        "x": pytest.approx((expected[0].slope, expected[0].stderr)),
    }
    slope = found.coefficients[1]
    assert slope.synthetic == pytest.approx(expected[1].slope)
    assert slope.synthetic_error == pytest.approx(expected[1].stderr)
    assert (found.family, found.errors, found.used.real) == ("linear", "classical", 50)
    assert slope.overlap is not None
    assert 0 < slope.overlap <= 1


def test_a_logistic_regression_on_two_values_has_the_log_odds_ratio() -> None:
    """The closed form of a table of 2 x 2 counts, and its standard error (Woolf 1955)."""
    counts = {(0, 0): 30, (0, 1): 10, (1, 0): 15, (1, 1): 45}
    colour, paid = np.repeat(list(counts), list(counts.values()), axis=0).T
    table = rows_of(colour=colour, paid=paid)
    found = regression(table, table, SCHEMA.column("paid"), [SCHEMA.column("colour")])
    ratio = math.log(30 * 45 / (10 * 15))
    error = math.sqrt(1 / 30 + 1 / 10 + 1 / 15 + 1 / 45)
    assert coefficients(found) == {
        "intercept": pytest.approx((math.log(10 / 30), math.sqrt(1 / 10 + 1 / 30))),
        "colour = green": pytest.approx((ratio, error)),
    }
    assert (found.family, found.converged, found.dropped) == ("logistic", True, ["colour = blue"])
    assert found.mean_overlap == pytest.approx(1)


def test_rows_of_one_entity_do_not_make_an_estimate_more_precise() -> None:
    once = people(40, 3)
    twice = {name: np.repeat(codes, 2) for name, codes in once.codes.items()}
    found = [
        regression(table, table, SCHEMA.column("y"), [SCHEMA.column("x")])
        for table in (
            rows_of(np.arange(40), **once.codes),
            rows_of(np.repeat(np.arange(40), 2), **twice),
        )
    ]
    assert coefficients(found[0])["x"] == pytest.approx(coefficients(found[1])["x"])
    assert found[0].errors == "clustered by entity"


def test_a_separated_outcome_is_said_not_to_converge() -> None:
    table = people(100, 1)
    found = regression(table, table, SCHEMA.column("paid"), [SCHEMA.column("x")])
    assert not found.converged
    assert all(math.isfinite(each.real_error) for each in found.coefficients)


def test_too_few_rows_without_missing_values_fit_nothing() -> None:
    null = SCHEMA.column("x").null_code
    table = rows_of(x=[null] * 50 + [1, 2], y=range(52))
    with pytest.raises(NotMade, match="not more than 2 rows"):
        regression(table, table, SCHEMA.column("y"), [SCHEMA.column("x")])


def test_overlaps_by_hand() -> None:
    assert overlap((0, 2), (0, 2)) == 1
    assert overlap((0, 2), (1, 3)) == 0.5
    assert overlap((0, 4), (1, 2)) == (1 + 1 / 4) / 2
    assert overlap((0, 1), (5, 6)) == 0
    assert overlap((0, 0), (0, 1)) is None


# All together, from chunks.


def evaluation(real: DrawnRows, made: DrawnRows, unit: PrivacyUnit, **form: Any) -> Evaluation:
    source = ArraySource(SCHEMA, unit, dict(real.codes), real.owner, chunk_size=7)
    table = Table(dict(made.codes), made.rows, made.owner)
    stages: list[str] = []
    found = evaluating.evaluated(
        ExactRows(source, nothing),
        SyntheticRows.of([table], SCHEMA),
        SCHEMA,
        unit,
        NAMES,
        ReportIn.model_validate(form),
        lambda fraction, stage: stages.append(f"{fraction} {stage}"),
    )
    assert stages == sorted(stages)
    return found


def test_the_worst_subgroups_by_hand() -> None:
    real = rows_of(colour=[0] * 4 + [1] * 4, paid=[0, 0, 1, 1] + [0] * 4)
    made = rows_of(colour=[0] * 4 + [1] * 2, paid=[0, 1, 1, 1] + [1] * 2)
    found = evaluation(real, made, ROW, subgroups=["colour"]).subgroups
    assert found is not None
    assert found.compared == 2 * 3
    worst = found.worst[0]
    assert (worst.subgroup, worst.value, worst.column) == ("colour", "green", "paid")
    assert (worst.real, worst.synthetic, worst.distance) == (4, 2, 1.0)
    # shares 2/3 and 1/3 of both together, in two cells
    chance = 2 * math.sqrt(2 / 9 * (1 / 4 + 1 / 2)) * math.sqrt(2 / math.pi) / 2
    assert worst.by_chance == pytest.approx(chance)
    distances = {(each.value, each.column): each.distance for each in found.worst}
    assert distances["red", "paid"] == 0.25


def test_copied_rows_stand_out_from_those_that_match_by_chance() -> None:
    real = rows_of(y=range(100))  # every row occurs once
    copies = rows_of(y=[3] * 5 + [500] * 5)
    (found,) = evaluation(real, copies, ROW).real_rows.matches
    assert found.of == "rows"
    assert (found.synthetic_in_all.records, found.synthetic_in_all.matching) == (10, 5)
    assert (found.synthetic_in_all.among, found.synthetic_in_all.unique) == (100, 5)
    assert (found.held_out.records, found.held_out.among, found.held_out.matching) == (50, 50, 0)
    is_first = bool(first_half(100, None)[3])
    assert found.synthetic.matching == 5 * is_first
    common = rows_of(colour=[0] * 100)
    (found,) = evaluation(common, common, ROW).real_rows.matches
    assert found.held_out.matching == 50
    assert (found.synthetic.matching, found.synthetic.unique) == (100, 0)


def test_entities_match_with_all_their_rows_in_any_order() -> None:
    real = rows_of([0, 0, 1, 1, 2, 3], y=[1, 2, 3, 4, 5, 6])
    made = rows_of([0, 0, 1, 2, 2], y=[2, 1, 3, 5, 5])
    rows, entities = evaluation(real, made, ENTITY).real_rows.matches
    assert (rows.of, rows.synthetic_in_all.matching) == ("rows", 5)
    assert (entities.of, entities.synthetic_in_all.records) == ("entities", 3)
    assert (entities.synthetic_in_all.matching, entities.synthetic_in_all.among) == (1, 4)
    # Two whole entities are in each half.
    assert (entities.held_out.records, entities.held_out.among) == (2, 2)
    assert rows.held_out.records + rows.held_out.among == 6


def test_distances_to_the_closest_record_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closeness, "first_half", lambda *_: np.array([True, True, False, False]))
    null = SCHEMA.column("x").null_code
    real = rows_of(x=[10, 20, 30, null], colour=[0, 1, 0, 0])
    made = rows_of(x=[10, 20], colour=[0, 2])
    found = closeness.closest_records(real, made, COLUMNS, nothing)
    assert found is not None
    assert (found.among, found.held_out, found.synthetic) == (2, 2, 2)
    # Ranks of 10, 20 and 30 are 1/6, 1/2 and 5/6. Of two synthetic rows one is equal, the other has
    # another colour; of the held-out rows one is 2/3 away in x, and one has no x.
    quantiles = {each.q: (each.synthetic, each.held_out) for each in found.quantiles}
    assert quantiles[0.0] == pytest.approx((0, 2 / 3 / 4))
    assert quantiles[0.5] == pytest.approx((0, 2 / 3 / 4))
    monkeypatch.setattr(closeness, "QUANTILES", (1.0,))
    found = closeness.closest_records(real, made, COLUMNS, nothing)
    assert found is not None
    assert (found.quantiles[0].synthetic, found.quantiles[0].held_out) == (1 / 4, 1 / 4)


@pytest.mark.parametrize("unit", [ROW, ENTITY])
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_tables_of_almost_no_rows_are_evaluated_as_far_as_they_allow(
    unit: PrivacyUnit, rows: int
) -> None:
    owner = None if unit is ROW else np.arange(rows)
    tiny = rows_of(owner, y=np.arange(rows))
    found = evaluation(
        tiny,
        tiny,
        unit,
        target="colour",
        regression={"outcome": "y", "predictors": ["x"]},
        subgroups=["colour"],
    )
    assert (found.propensity, found.prediction, found.regression) == (None, None, None)
    assert [each.partition(":")[0] for each in found.not_made] == [
        "propensity",
        "prediction",
        "regression",
    ]
    assert (found.real_rows.closest is None) == (rows < 2)
    assert "differential privacy" in found.real_rows.meaning


def test_rows_are_drawn_by_a_public_seed_and_entities_whole() -> None:
    made = rows_of(np.repeat(np.arange(10), 3), y=np.arange(30))
    table = SyntheticRows.of([Table(dict(made.codes), 30, made.owner)], SCHEMA)
    first, again = (drawn(table, NAMES, 10, entities=True) for _ in range(2))
    assert first.codes["y"].tolist() == again.codes["y"].tolist()
    assert first.rows == 9
    assert first.owner is not None
    assert set(np.bincount(first.owner)) == {0, 3}
    rows = drawn(table, NAMES, 10, entities=False)
    assert (rows.rows, len(set(rows.codes["y"]))) == (10, 10)
    assert drawn(table, NAMES, 2, entities=True).rows == 3


# The form.


@pytest.mark.parametrize(
    ("form", "faults"),
    [
        ({"target": "ghost"}, {"/target": "no such column"}),
        ({"target": "id"}, {"/target": "no such column"}),
        ({"target": "paid"}, {"/target": "does not model"}),
        (
            {"regression": {"outcome": "colour", "predictors": ["y", "ghost", "y"]}},
            {
                "/regression/outcome": "neither numbers nor exactly two values",
                "/regression/predictors": "named twice",
                "/regression/predictors/1": "no such column",
            },
        ),
        (
            {"regression": {"outcome": "y", "predictors": ["y"]}},
            {"/regression/predictors/0": "cannot explain itself"},
        ),
        (
            {"subgroups": ["colour", "colour", "y"]},
            {"/subgroups": "named twice", "/subgroups/2": "200 are the most"},
        ),
    ],
)
def test_faults_of_the_form_have_their_place(form: dict[str, Any], faults: dict[str, str]) -> None:
    with pytest.raises(Invalid) as error:
        check(ReportIn.model_validate(form), SCHEMA, ["x", "y", "colour"])
    found = {fault.pointer: fault.message for fault in error.value.errors}
    assert found.keys() == faults.keys()
    for place, words in faults.items():
        assert words in found[place]
    assert all(fault.remedy for fault in error.value.errors)
