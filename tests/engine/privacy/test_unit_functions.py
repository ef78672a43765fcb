"""Declared functions of a unit's rows, on hand-computed cases and on any rows at all."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from privacy_tables import LOUD, session, table

from app.engine.grouping import Grouping
from app.engine.privacy.declared import (
    EntityFunction,
    Feature,
    FeatureClasses,
    MixtureMode,
    RowNumber,
    function_from_json,
)
from app.engine.privacy.functions import evaluate, likeliest_components
from app.engine.privacy.queries import Contribution, Count, QuestionRefused
from app.engine.schema import Schema

SCHEMA = Schema.parse(
    {
        "fields": [
            {
                "name": "day",
                "type": "integer",
                "constraints": {"minimum": 0, "maximum": 9, "required": True},
            },
            {
                "name": "fare",
                "type": "number",
                "step": 0.5,
                "constraints": {"minimum": -1, "maximum": 20},
            },
            {"name": "zone", "type": "string", "constraints": {"enum": ["x", "y", "z"]}},
        ]
    }
)
NULL_FARE = SCHEMA.column("fare").null_code


def mixture(**changes: Any) -> MixtureMode:
    arrays: dict[str, Any] = {
        "columns": ("day", "fare"),
        "centre": [1.0, 2.0],
        "scale": [2.0, 5.0],
        "weights": [0.5, 0.5],
        "means": [[0.0, 0.0], [3.0, 3.0]],
        "precisions": [[1.0, 1.0], [1.0, 1.0]],
    }
    return MixtureMode(**{**arrays, **changes})


FUNCTIONS: list[EntityFunction] = [
    RowNumber(3),
    mixture(),
    FeatureClasses(
        (Feature("rows_per", "day"), Feature("std_per", "day"), Feature("share_count", "zone")),
        ((1.5,), (0.5, 1.0), ()),
        (0, 1, 2, 0, 1, 3),
    ),
    FeatureClasses(
        (
            Feature("rows"),
            Feature("distinct", "fare", grouping=Grouping.equal(43, 1, 4)),
            Feature("top_share", "zone", rank=2),
            Feature("mean", "fare"),
        ),
        ((2.0,), (2.0,), (0.3,), (-0.5, 4.0)),
        tuple(range(24)),
    ),
]


def fares(*values: float) -> list[int]:
    return [round((value + 1) * 2) for value in values]


def value_of(feature: Feature, **codes: list[int]) -> float:
    """The feature of one unit with these rows, told by cutting at many points."""
    cuts = tuple(np.arange(-2, 12, 0.0625).tolist())
    function = FeatureClasses((feature,), (cuts,), tuple(range(len(cuts) + 1)))
    arrays = {name: np.array(column) for name, column in codes.items()}
    rows = len(next(iter(arrays.values())))
    (cell,) = evaluate(function, arrays, np.zeros(rows, dtype=np.int64), SCHEMA)
    return cuts[cell - 1]


def test_features_of_a_unit_are_as_computed_by_hand() -> None:
    days = [1, 1, 1, 1, 1, 4, 4, 7]  # 5, 2 and 1 rows: mean 8/3, deviation 1.70
    zones = [0, 0, 0, 0, 1, 1, 1, 2]
    assert value_of(Feature("rows"), day=days) == 8
    assert value_of(Feature("distinct", "day"), day=days) == 3
    assert value_of(Feature("rows_per", "day"), day=days) == 2.625  # 8 / 3 = 2.67
    assert value_of(Feature("std_per", "day"), day=days) == 1.6875  # sqrt(26) / 3 = 1.6997
    assert value_of(Feature("top_share", "zone"), zone=zones) == 0.5
    assert value_of(Feature("top_share", "zone", rank=2), zone=zones) == 0.375
    assert value_of(Feature("top_share", "zone", rank=9), zone=zones) == 0
    assert value_of(Feature("share_count", "zone", above=0.25), zone=zones) == 2
    assert value_of(Feature("share_count", "zone", above=0.5), zone=zones) == 0
    assert value_of(Feature("mean", "fare"), fare=[*fares(1, 2, 4.5), NULL_FARE]) == 2.5
    assert value_of(Feature("mean", "fare"), fare=[NULL_FARE]) == 0


def test_equal_numbers_of_rows_deviate_by_exactly_nothing() -> None:
    days = [day for day in range(7) for _ in range(3)]
    function = FeatureClasses((Feature("std_per", "day"),), ((1e-300,),), (0, 1))
    cells = evaluate(function, {"day": np.array(days)}, np.zeros(21, dtype=np.int64), SCHEMA)
    assert cells.tolist() == [0]


def test_a_number_at_a_cut_lies_above_it() -> None:
    function = FeatureClasses((Feature("rows"),), ((2.0,),), (0, 1))
    cells = evaluate(function, {}, np.array([0, 1, 1, 2, 2, 2]), SCHEMA)
    assert cells.tolist() == [0, 1, 1]


def test_row_numbers_end_in_or_more() -> None:
    assert evaluate(RowNumber(2), {}, np.array([1, 1, 1, 0, 2, 2]), SCHEMA).tolist() == [0, 1, 1]
    assert RowNumber(2).labels == ("1", "2 or more")


def test_a_mixture_labels_rows_as_scikit_learn_does() -> None:
    # Every process that runs tests collects this file, and the import takes a second.
    from sklearn.mixture import GaussianMixture

    rng = np.random.default_rng(3)
    points = np.concatenate([rng.normal(0, 1, (200, 2)), rng.normal([4, 2], [0.5, 2], (300, 2))])
    for kind in ("diag", "full"):
        fitted = GaussianMixture(3, covariance_type=kind, random_state=1).fit(points)
        ours = mixture(
            centre=[0, 0],
            scale=[1, 1],
            weights=fitted.weights_,
            means=fitted.means_,
            precisions=fitted.precisions_cholesky_,
        )
        labels = likeliest_components(ours, points)
        assert labels.tolist() == fitted.predict(points).tolist()


def test_values_are_scaled_before_they_are_labelled() -> None:
    ours = mixture()
    values = np.array([[1.0, 2.0], [7.0, 17.0], [3.0, 10.0]])
    scaled = (values - [1, 2]) / [2, 5]
    densities = [scipy.stats.multivariate_normal(mean).pdf(scaled) for mean in ([0, 0], [3, 3])]
    expected = np.argmax(densities, axis=0)
    assert likeliest_components(ours, values).tolist() == expected.tolist() == [0, 1, 0]


def test_the_mode_counts_rows_without_nulls() -> None:
    codes = {"day": np.array([0, 0, 9, 9, 9, 9]), "fare": np.array(fares(0, 0, 20, 20, 20, 20))}
    entity = np.array([0, 0, 0, 1, 1, 2])
    assert evaluate(mixture(), codes, entity, SCHEMA).tolist() == [0, 1, 1]
    codes["fare"][3:5] = NULL_FARE
    assert evaluate(mixture(), codes, entity, SCHEMA).tolist() == [0, 0, 1]


def test_tied_components_are_drawn_by_the_keys() -> None:
    codes = {"day": np.array([0, 9] * 500), "fare": np.array(fares(0, 20) * 500)}
    entity = np.repeat(np.arange(500), 2)
    drawn = evaluate(mixture(), codes, entity, SCHEMA)
    assert 150 < drawn.sum() < 350
    keyed = [evaluate(mixture(), codes, entity, SCHEMA, _keys(seed)) for seed in (1, 1, 2)]
    assert keyed[0].tolist() == keyed[1].tolist() != keyed[2].tolist()


def _keys(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return lambda count: rng.integers(0, 2**64, count, dtype=np.uint64)


def test_a_code_that_the_dictionary_lacks_is_no_cell_of_another_unit() -> None:
    schema = table({"a": 3}, [(0,)]).schema
    function = FeatureClasses((Feature("distinct", "a"),), ((2.0,),), (0, 1))
    with pytest.raises(ValueError, match="outside its histogram"):
        evaluate(function, {"a": np.array([0, 3, 1])}, np.array([0, 0, 1]), schema)


def test_units_are_numbered_without_gaps() -> None:
    with pytest.raises(ValueError, match="gaps"):
        evaluate(RowNumber(2), {}, np.array([0, 2]), SCHEMA)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: type(function).__name__)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_unit_is_in_exactly_one_cell_whatever_its_rows(
    function: EntityFunction, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    entity = np.repeat(np.arange(len(sizes)), sizes)
    codes = {
        column.name: np.array(
            data.draw(
                st.lists(st.integers(0, column.codes - 1), min_size=sum(sizes), max_size=sum(sizes))
            )
        )
        for column in SCHEMA.columns
    }
    cells = evaluate(function, codes, entity, SCHEMA, _keys(5))
    assert cells.shape == (len(sizes),)
    assert ((cells >= 0) & (cells < function.cells)).all()
    alone = [
        evaluate(
            function,
            {name: column[entity == unit] for name, column in codes.items()},
            np.zeros(size, dtype=np.int64),
            SCHEMA,
        )[0]
        for unit, size in enumerate(sizes)
    ]
    if not isinstance(function, MixtureMode):  # whose ties are drawn
        assert cells.tolist() == alone


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: type(function).__name__)
def test_functions_survive_json(function: EntityFunction) -> None:
    again = function_from_json(json.loads(json.dumps(function.to_json())))
    assert again == function
    assert hash(again) == hash(function)
    assert len(function.labels) == function.cells


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"function": "lambda"},
        {"function": "row_number"},
        {"function": "row_number", "most": 0},
        {"function": "row_number", "most": "many"},
        {"function": "mixture_mode", "columns": ["a"]},
        mixture().to_json() | {"scale": [1.0, 0.0]},
        mixture().to_json() | {"scale": [1.0, "wide"]},
        mixture().to_json() | {"means": [[1.0, 2.0]]},
        mixture().to_json() | {"weights": [1.0, float("nan")]},
        mixture().to_json() | {"precisions": [[1.0, 1.0], [1.0]]},
        FUNCTIONS[2].to_json() | {"classes": [0, 1]},
        FUNCTIONS[2].to_json() | {"classes": [0, 1, 2, 0, 1, 9]},
        FUNCTIONS[2].to_json() | {"cuts": [[2.0, 1.0], [], []]},
        FUNCTIONS[2].to_json() | {"features": [{"kind": "eval", "column": "a"}]},
        FUNCTIONS[2].to_json() | {"features": [7]},
    ],
)
def test_what_is_no_function_is_refused(wire: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        function_from_json(wire)


ROWS = [(0, 1), (0, 1), (2, 0), (1, 1)]
IDS = [1, 1, 1, 2]


def counted(function: EntityFunction) -> NDArray[np.int64]:
    source = table({"a": 3, "b": 2}, ROWS, IDS)
    (answer,) = session(source, LOUD).count([Count.of_units(function)], LOUD)
    assert (answer.l1_sensitivity, answer.l2_sensitivity) == (1, 1)
    return answer.values


def test_the_kernel_counts_units_by_a_function() -> None:
    assert counted(RowNumber(3)).tolist() == [1, 0, 1]
    distinct = FeatureClasses((Feature("distinct", "a"),), ((2.0,),), (0, 1))
    assert counted(distinct).tolist() == [1, 1]


def test_on_a_row_unit_each_row_is_a_unit() -> None:
    alone = session(table({"a": 3, "b": 2}, ROWS), LOUD)
    top = FeatureClasses((Feature("mean", "a"),), ((1.0,),), (1, 0))
    (answer,) = alone.count([Count.of_units(top)], LOUD)
    assert answer.values.tolist() == [2, 2]


@pytest.mark.parametrize(
    "query",
    [
        Count(("a",), function=RowNumber(2), contribution=Contribution("one")),
        Count(function=RowNumber(2)),
        Count.of_units(RowNumber(2**40)),
        Count.of_units(mixture()),
        Count.of_units(FeatureClasses((Feature("distinct", "c"),), ((2.0,),), (0, 1))),
        Count.of_units(
            FeatureClasses(
                (Feature("distinct", "a", grouping=Grouping.identity(9, 0)),), ((2.0,),), (0, 1)
            )
        ),
    ],
)
def test_functions_that_do_not_fit_are_refused(query: Count) -> None:
    with pytest.raises(QuestionRefused):
        session(table({"a": 3, "b": 2}, ROWS, IDS), LOUD).count([query], LOUD)


def test_the_component_of_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    """Two components that are equally likely but for rounding: the library's matrix product
    rounds a row alone otherwise than among others, and a unit would move with its neighbours."""
    rng = np.random.default_rng(5)
    width = 8
    first = rng.normal(size=(width, width))
    np.fill_diagonal(first, 1.0)
    # Whitening rotated by an orthogonal matrix leaves the density as it is.
    rotation, _ = np.linalg.qr(rng.normal(size=(width, width)))
    second = first @ (rotation * np.sign(np.diagonal(first @ rotation)))
    mixture = MixtureMode(
        tuple(f"c{number}" for number in range(width)),
        np.zeros(width),
        np.full(width, 0.7),
        np.array([0.5, 0.5]) / np.array([1.0, np.prod(second.diagonal())]),
        np.zeros((2, width)),
        np.stack([first, second]),
    )
    rows = rng.integers(0, 100, size=(500, width)).astype(np.float64)
    together = likeliest_components(mixture, rows)
    alone = np.concatenate([likeliest_components(mixture, row[None]) for row in rows])
    assert 0 < together.sum() < len(rows)  # rounding decides
    assert np.array_equal(together, alone)
