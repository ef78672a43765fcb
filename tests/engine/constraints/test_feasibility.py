"""Rules that no row can keep are found from the dictionary alone, where that is decidable."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruled_tables import BY_KIND, EVERY, dictionary, integer, number
from test_repair import FIELDS, feasible, rule

from app.engine.constraints.feasibility import check_feasible
from app.engine.schema import Schema, SchemaError


@settings(deadline=None, max_examples=100)
@given(rules=st.lists(rule(), min_size=1, max_size=4))
def test_small_domains_are_decided_exactly(rules: list[dict[str, Any]]) -> None:
    schema = dictionary(FIELDS, *rules)
    if feasible(schema):
        check_feasible(schema)
    else:
        with pytest.raises(SchemaError):
            check_feasible(schema)


@pytest.mark.parametrize("schema", [*BY_KIND.values(), EVERY])
def test_sound_rules_pass(schema: Schema) -> None:
    check_feasible(schema)


@pytest.mark.parametrize(
    ("rules", "pointer"),
    [
        ([{"kind": "sum", "total": "small", "parts": ["big", "far"]}], "/constraints/0"),
        ([{"kind": "at_least", "column": "small", "sum_of": ["far"]}], "/constraints/0"),
        ([{"kind": "order", "columns": ["far", "big", "small"]}], "/constraints/0"),
        (
            [
                {"kind": "order", "columns": ["big", "long"], "strict": True},
                {"kind": "at_least", "column": "small", "sum_of": ["long"], "offset": 0},
                {"kind": "at_least", "column": "big", "sum_of": ["small"], "offset": 1},
            ],
            "/constraints/2",
        ),
    ],
)
def test_bounds_show_a_contradiction_of_large_columns(
    rules: list[dict[str, Any]], pointer: str
) -> None:
    fields = [
        number("small", 0, 5), number("big", 0, 10**5), number("far", 20, 10**5),
        integer("long", 0, 10**6),
    ]  # fmt: skip
    with pytest.raises(SchemaError) as caught:
        check_feasible(dictionary(fields, *rules))
    assert [error.pointer for error in caught.value.errors] == [pointer]


@pytest.mark.parametrize(("strict", "is_sound"), [(False, True), (True, False)])
def test_bounds_take_a_date_beside_a_datetime_as_its_whole_day(
    strict: bool, is_sound: bool
) -> None:
    """The datetime reaches into the only day of the date, but not beyond it."""
    day = {"minimum": "2020-05-02", "maximum": "2020-05-02", "required": True}
    early = {"minimum": "1920-05-01T00:00:00", "maximum": "2020-05-02T12:00:00", "required": True}
    fields = [
        {"name": "day", "type": "date", "constraints": day},
        {"name": "moment", "type": "datetime", "constraints": early, "step": 1},
        integer("other", 0, 10**6),
    ]
    rule = {"kind": "order", "columns": ["day", "moment"], "strict": strict}
    schema = dictionary(fields, rule)
    if is_sound:
        check_feasible(schema)
    else:
        with pytest.raises(SchemaError):
            check_feasible(schema)


def test_a_column_that_may_be_null_can_always_keep_a_sum() -> None:
    fields = [integer("all", 0, 5), integer("part", 10, 10**6, required=False)]
    check_feasible(dictionary(fields, {"kind": "sum", "total": "all", "parts": ["part"]}))
