"""Codes of places: the nearest values that a column has below and above."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruled_tables import number

from app.engine.constraints.points import Points
from app.engine.schema import Schema

COLUMNS: list[dict[str, Any]] = [
    number("price", -1, 2) | {"step": 0.1},
    {"name": "rank", "type": "integer", "constraints": {"minimum": 3, "maximum": 9}},
    {"name": "code", "type": "integer", "constraints": {"enum": [7, -3, 4]}},
    {"name": "flag", "type": "boolean"},
    {"name": "day", "type": "date",
     "constraints": {"minimum": "1969-12-20", "maximum": "1970-01-09"}},
]  # fmt: skip


@pytest.mark.parametrize("field", COLUMNS, ids=lambda field: str(field["name"]))
@given(place=st.floats(-12, 12).map(lambda place: round(place, 2)))
def test_points_are_the_nearest_on_either_side(field: dict[str, Any], place: float) -> None:
    column = Schema.parse({"fields": [field]}).columns[0]
    places, null = column.places(np.arange(column.codes))
    known = places[~null].astype(float)
    points, asked = Points(column), np.array([place])
    for found, among in (
        (points.below(asked), known[known <= place + 1e-9]),
        (points.above(asked), known[known >= place - 1e-9]),
    ):
        assert found[1].item() == (among.size > 0)
        if among.size:
            best = min(among, key=lambda known: abs(known - place))
            assert points.places(found[0]).item() == best
    nearest = points.places(points.nearest(asked)).item()
    assert abs(nearest - place) == pytest.approx(np.abs(known - place).min())


def test_special_values_are_met_where_they_are_asked_for_exactly() -> None:
    fare = Schema.parse({"fields": [number("fare", 1, 9, special=[0, 5])]}).columns[0]
    zero, five = fare.regular, fare.regular + 1
    codes, found = Points(fare).below(np.array([0.0, 5.0, 0.5, 5.004]))
    assert codes[:2].tolist() == [zero, five]
    assert found.tolist() == [True, True, False, True]
    assert codes[3] == five
    assert Points(fare).above(np.array([0.0, 0.5]))[0].tolist() == [zero, 0]
