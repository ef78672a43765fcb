from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic import TypeAdapter
from small_tables import colours

from app.engine.columns.axes import Axes, Bins, choose_axes
from app.engine.method.model_file import ModelFormatError


def test_all_columns_with_the_dictionarys_cells_by_default() -> None:
    axes, problems = choose_axes(colours(entity=True), None, {})
    assert not problems
    assert axes.names == ("colour", "size", "fare")
    assert axes.shape == (4, 10, 7)
    assert axes.cells == 280


def test_bins_of_the_params_replace_those_of_the_dictionary() -> None:
    axes, problems = choose_axes(colours(), ["fare", "size"], {"fare": [0, 50, 100], "size": 2})
    assert not problems
    assert axes.names == ("fare", "size")
    assert axes.shape == (4, 2)


@pytest.mark.parametrize(
    ("columns", "bins", "pointer"),
    [
        (["size", "weight"], {}, "/params/columns/1"),
        (["size", "size"], {}, "/params/columns"),
        ([], {}, "/params/columns"),
        (["size"], {"fare": 3}, "/params/bins/fare"),
        (None, {"colour": 3}, "/params/bins/colour"),
        (None, {"fare": [0, 500]}, "/params/bins/fare"),
        (None, {"fare": [50, 50]}, "/params/bins/fare"),
        (None, {"fare": ["cheap"]}, "/params/bins/fare"),
        (None, {"fare": 10**9}, "/params/bins/fare"),
        (None, {"a/b~c": 3}, "/params/bins/a~1b~0c"),
    ],
)
def test_a_choice_that_does_not_fit_says_where(
    columns: list[str] | None, bins: dict[str, Bins], pointer: str
) -> None:
    _, problems = choose_axes(colours(), columns, bins)
    assert [problem.pointer for problem in problems] == [pointer]
    assert problems[0].message
    assert problems[0].remedy


def test_edges_may_come_as_exact_decimals() -> None:
    bins: Bins = TypeAdapter(Bins).validate_python([Decimal("0"), Decimal("2.5"), Decimal("100")])
    axes, problems = choose_axes(colours(), ["fare"], {"fare": bins})
    assert not problems
    assert axes.shape == (4,)


def test_stored_axes_come_back() -> None:
    axes, _ = choose_axes(colours(), None, {"size": 3})
    merged = Axes({**axes.groupings, "size": axes.groupings["size"].merged([0, 1, 0])})
    assert Axes.from_json(merged.to_json(), colours()) == merged


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [["weight", {"regular": 3, "tail": 0}]],
        [["size", {"regular": 10**12, "tail": 0}]],
        [["size", {"regular": 10, "tail": 1}]],
        [["size", {"edges": [0, 5], "tail": 0}]],
        [["size", {"edges": [], "tail": 0}]],
        [["size", {"regular": 10, "tail": 0, "merge": [0]}]],
        [["size"]],
        [["size", None]],
    ],
)
def test_stored_axes_that_do_not_fit_the_dictionary_are_refused(wire: object) -> None:
    with pytest.raises(ModelFormatError):
        Axes.from_json(wire, colours())
