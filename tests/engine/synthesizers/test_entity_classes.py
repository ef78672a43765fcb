from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import ROW, colours, digits

from app.engine.privacy.declared import Feature
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.class_resampling.entity_classes import (
    EntityClasses,
    Split,
    default_splits,
    grouped,
    split_problems,
)
from app.engine.synthesizers.class_resampling.synthesizer import ClassResamplingParams


def split(**form: object) -> Split:
    return Split.model_validate({"feature": "rows"} | form)


def class_of(classes: EntityClasses, *numbers: float) -> int:
    """The class of an entity whose features are these numbers."""
    cuts = classes.function.cuts
    intervals = [
        int(np.searchsorted(each, number, side="right"))
        for each, number in zip(cuts, numbers, strict=True)
    ]
    place = np.ravel_multi_index(intervals, classes.function.shape)
    return classes.function.classes[place]


def path_of(classes: EntityClasses, *numbers: float) -> tuple[int, ...]:
    return classes.paths[class_of(classes, *numbers)]


def test_one_split_has_a_class_for_each_interval_closed_on_the_left() -> None:
    classes = EntityClasses.of([split(cuts=[2, 5])], {})
    assert [path_of(classes, rows) for rows in (1, 2, 4, 5, 9)] == [(0,), (1,), (1,), (2,), (2,)]


def test_intervals_closed_on_the_right_keep_the_cut_below() -> None:
    classes = EntityClasses.of(
        [split(cuts=[1 / 3], closed="right", feature="mean", column="x")], {}
    )
    assert path_of(classes, 1 / 3) == (0,)
    assert path_of(classes, math.nextafter(1 / 3, 1)) == (1,)


def test_several_splits_cross() -> None:
    classes = EntityClasses.of(
        [split(cuts=[2]), split(feature="distinct", column="size", cuts=[1, 3])], {}
    )
    found = {path_of(classes, *numbers) for numbers in product((1, 2), (0, 1, 3))}
    assert found == set(product(range(2), range(3))) == set(classes.paths)
    assert classes.function.cells == 6


def test_a_split_within_a_branch_leaves_the_others_whole() -> None:
    classes = EntityClasses.of(
        [split(cuts=[2]), split(feature="distinct", column="size", cuts=[3], within=[1])], {}
    )
    assert sorted(classes.paths) == [(0,), (1, 0), (1, 1)]
    assert class_of(classes, 1, 0) == class_of(classes, 1, 5)
    assert class_of(classes, 2, 0) != class_of(classes, 2, 5)


def test_splits_of_one_feature_share_its_cuts() -> None:
    share = {"feature": "top_share", "column": "size"}
    classes = EntityClasses.of(
        [
            split(cuts=[2]),
            split(**share, cuts=[0.5], within=[0]),
            split(**share, cuts=[0.25, 0.75], within=[1]),
        ],
        {},
    )
    assert classes.function.features == (Feature("rows"), Feature("top_share", "size"))
    assert classes.function.cuts == ((2.0,), (0.25, 0.5, 0.75))
    assert path_of(classes, 1, 0.3) == path_of(classes, 1, 0.2) == (0, 0)
    assert path_of(classes, 2, 0.5) == path_of(classes, 2, 0.3) == (1, 1)
    assert len(classes.paths) == 5


def test_branches_join_intervals() -> None:
    classes = EntityClasses.of([split(cuts=[2, 3], branches=[0, 1, 0])], {})
    assert class_of(classes, 1) == class_of(classes, 3) != class_of(classes, 2)
    assert classes.function.cells == 2


@given(
    st.lists(
        st.lists(st.floats(0, 10), min_size=1, max_size=3, unique=True).map(sorted),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.floats(-5, 15), min_size=3, max_size=3),
)
@settings(max_examples=50, deadline=None)
def test_every_combination_of_numbers_has_one_class(
    cuts: list[list[float]], numbers: list[float]
) -> None:
    columns = ("a", "b", "c")
    splits = [
        split(feature="mean", column=column, cuts=each)
        for column, each in zip(columns, cuts, strict=False)
    ]
    classes = EntityClasses.of(splits, {})
    expected = tuple(
        sum(number >= cut for cut in each) for each, number in zip(cuts, numbers, strict=False)
    )
    assert path_of(classes, *numbers[: len(cuts)]) == expected


def test_the_published_tree_has_38_classes() -> None:
    """Up to 5 rows a day 2; up to 11 3 x 6; up to 17 2 x 6; more 6."""
    form = ClassResamplingParams.model_validate({"preset": "sprint3"})
    classes = EntityClasses.of(form.classes or (), {})
    assert len(classes.paths) == 2 + 18 + 12 + 6
    of_branch = [sum(path[0] == branch for path in classes.paths) for branch in range(4)]
    assert of_branch == [2, 18, 12, 6]


@pytest.mark.parametrize(
    ("numbers", "path"),
    [
        # rows a day, deviation, top share, zones above a quarter
        ((5, 2, 0.9, 1), (0, 0)),
        ((5, 2.1, 0.2, 0), (0, 1)),
        ((5.01, 3, 1 / 3, 1), (1, 0, 0, 0)),
        ((11, 6, 0.34, 2), (1, 1, 1, 1)),
        ((11, 6.1, 0.5, 2), (1, 2, 1, 1)),
        ((11.5, 6, 0.51, 1), (2, 0, 2, 0)),
        ((17, 7, 0.51, 3), (2, 1, 2, 0)),
        ((17.1, 99, 0.3, 3), (3, 0, 0)),
        ((31, 0, 0.3, 2), (3, 0, 1)),
    ],
)
def test_the_published_edges(numbers: tuple[float, ...], path: tuple[int, ...]) -> None:
    form = ClassResamplingParams.model_validate({"preset": "sprint3"})
    classes = EntityClasses.of(form.classes or (), {})
    assert path_of(classes, *numbers) == path


def test_by_default_classes_double_in_rows() -> None:
    classes = EntityClasses.of(default_splits(PrivacyUnit("entity", "id", 9)), {})
    assert classes.function.cuts == ((2.0, 4.0, 8.0),)
    assert EntityClasses.of(default_splits(PrivacyUnit("entity", "id", 1)), {}).function.cells == 2


def test_too_many_combinations_are_refused() -> None:
    cuts = list(range(500))
    with pytest.raises(ValueError, match="20000 combinations"):
        EntityClasses.of([split(feature="mean", column=c, cuts=cuts) for c in ("a", "b")], {})


@pytest.mark.parametrize(
    "form",
    [
        {"cuts": []},
        {"cuts": [2, 2]},
        {"cuts": [float("nan")]},
        {"cuts": [1], "column": "size"},
        {"cuts": [1], "feature": "distinct"},
        {"cuts": [1], "feature": "median"},
        {"cuts": [1], "rank": 2},
        {"cuts": [1], "above": 0.5},
        {"cuts": [1], "branches": [0]},
        {"cuts": [1], "branches": [0, 2]},
        {"cuts": [1], "within": [-1]},
    ],
)
def test_a_split_that_means_nothing_is_refused(form: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        split(**form)


@pytest.mark.parametrize(
    ("form", "pointer"),
    [
        ({"feature": "distinct", "column": "weight"}, "/params/classes/1/column"),
        ({"feature": "mean", "column": "colour"}, "/params/classes/1/column"),
        ({"within": [2]}, "/params/classes/1/within"),
    ],
)
def test_splits_that_do_not_fit_the_dictionary_are_told(
    form: dict[str, object], pointer: str
) -> None:
    splits = [split(cuts=[2]), split(cuts=[1], **form)]
    assert [each.pointer for each in split_problems(splits, colours(True))] == [pointer]


def test_the_first_split_is_within_nothing() -> None:
    problems = split_problems([split(cuts=[2], within=[0])], colours(True))
    assert [each.pointer for each in problems] == ["/params/classes/0/within"]


def test_a_group_of_values_is_one_cell_and_other_values_keep_theirs() -> None:
    column = digits({"shift": 6}).column("shift")
    grouping = grouped(column, column.grouping, [[5, 0], [1, 2]])
    assert grouping.cell_of(np.arange(6)).tolist() == [0, 1, 1, 2, 3, 0]


def test_groups_of_text_may_be_written_as_numbers() -> None:
    wire = {"name": "shift", "type": "string", "constraints": {"enum": ["0", "1", "2"]}}
    column = Schema.parse({"fields": [wire]}).column("shift")
    assert grouped(column, column.grouping, [[0, 2]]).cell_of(np.arange(4)).tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("groups", [[["x"]], [[10]], [[0, 1], [1]]])
def test_groups_of_undeclared_or_repeated_values_are_refused(groups: list[list[object]]) -> None:
    column = digits({"shift": 6}).column("shift")
    with pytest.raises(ValueError):
        grouped(column, column.grouping, groups)  # type: ignore[arg-type]


def test_a_row_unit_too_has_default_splits() -> None:
    assert default_splits(ROW)
