"""Cross-column constraints judge rows as a reader of the dictionary would."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.schema import Schema, SchemaError

FIELDS = [
    {"name": "fare", "type": "number", "constraints": {"minimum": 0, "maximum": 10}, "step": 0.1},
    {"name": "tip", "type": "number", "constraints": {"minimum": 0, "maximum": 10}, "step": 0.1},
    {"name": "total", "type": "number", "constraints": {"minimum": 0, "maximum": 20}, "step": 0.1},
    {"name": "from", "type": "date",
     "constraints": {"minimum": "2020-01-01", "maximum": "2020-12-31"}},
    {"name": "to", "type": "date",
     "constraints": {"minimum": "2019-01-01", "maximum": "2021-12-31"}},
    {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}},
    {"name": "married", "type": "boolean"},
    {"name": "code", "type": "integer", "constraints": {"enum": [7, 3]}},
    {"name": "city", "type": "string", "constraints": {"enum": ["A", "B"]}},
]  # fmt: skip


def schema(*constraints: Any) -> Schema:
    return Schema.parse({"fields": FIELDS, "constraints": list(constraints)})


def broken(constraint: dict[str, Any], **columns: list[Any]) -> list[bool]:
    """Which rows, given as values, break the one constraint."""
    parsed = schema(constraint)
    codes = {}
    for name, values in columns.items():
        column = parsed.column(name)
        known = column.decode(np.arange(column.codes)).to_pylist()
        codes[name] = np.array([known.index(value) for value in values], column.dtype)
    (mask,) = parsed.violations(codes)
    return mask.tolist()


def test_a_total_is_the_sum_of_its_parts() -> None:
    rule = {"kind": "sum", "total": "total", "parts": ["fare", "tip"], "tolerance": 0.05}
    assert broken(
        rule, total=[0.3, 0.3, 5.0, None], fare=[0.1, 0.1, None, 1.0], tip=[0.2, 0.3, 1.0, 1.0]
    ) == [False, True, False, False]


def test_a_sum_of_one_declared_step_is_exact() -> None:
    rule = {"kind": "sum", "total": "total", "parts": ["fare", "tip"]}
    totals = [0.2, 0.3, 0.4]
    assert broken(rule, total=totals, fare=[0.1] * 3, tip=[0.2] * 3) == [True, False, True]


def money(most: int, **more: Any) -> dict[str, Any]:
    return {"type": "number", "constraints": {"minimum": 0, "maximum": most}, **more}


@pytest.mark.parametrize("tolerance", [None, 0, 0.009])
@pytest.mark.parametrize("most", [1000, 100_000, 40_000_000])
def test_sums_of_cents_are_exact(tolerance: float | None, most: int) -> None:
    """Of 800 exact rows none is broken, and of those that are a cent off all are."""
    rule = {"kind": "sum", "total": "total", "parts": ["net", "tax", "fee"]}
    rule |= {} if tolerance is None else {"tolerance": tolerance}
    fields = [{"name": name, **money(most, step=0.01)} for name in ("net", "tax", "fee", "total")]
    parsed = Schema.parse({"fields": fields, "constraints": [rule]})
    net, tax, fee = np.random.default_rng(0).integers(1, most * 25, (3, 800))
    for off in (0, 1, -1):
        codes = {"net": net, "tax": tax, "fee": fee, "total": net + tax + fee + off}
        (mask,) = parsed.violations(codes)
        assert mask.tolist() == [off != 0] * 800


def test_a_sum_allows_what_rounding_to_the_grid_can_move() -> None:
    """Without a declared step, and where the total is kept in larger steps than its parts."""
    rule = {"kind": "sum", "total": "total", "parts": ["net"]}
    for total, allowed in ((money(1_000_000), 0.05), (money(100, step=1), 0.5)):
        fields = [{"name": "net", **money(100, step=0.01)}, {"name": "total", **total}]
        parsed = Schema.parse({"fields": fields, "constraints": [rule]})
        (sum_,) = parsed.constraints
        assert sum_.allowed == pytest.approx(allowed)
        most = round(allowed * 100)
        codes = {"net": np.array([most, most + 1]), "total": np.array([0, 0])}
        (mask,) = parsed.violations(codes)
        assert mask.tolist() == [False, True]


def test_sums_beyond_64_bits_are_exact() -> None:
    fields = [
        {"name": "fine", "type": "number", "constraints": {"enum": [1e-15, 0.25]}},
        {"name": "large", "type": "number", "constraints": {"enum": [1e14, 1e15]}},
        {"name": "total", "type": "number", "constraints": {"enum": [1e14, 1e15]}},
    ]
    rule = {"kind": "at_least", "column": "total", "sum_of": ["fine", "large"]}
    parsed = Schema.parse({"fields": fields, "constraints": [rule]})
    codes = {"fine": np.array([0, 0]), "large": np.array([0, 0]), "total": np.array([0, 1])}
    (mask,) = parsed.violations(codes)
    assert mask.tolist() == [True, False]


@pytest.mark.parametrize(("strict", "last"), [(False, 4), (True, 7)])
def test_an_order_is_held_past_a_missing_value(strict: bool, last: int) -> None:
    """7, nothing, 4 falls, as 7, 4 does."""
    fields = [
        {"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": 9}}
        for name in ("first", "second", "third", "fourth")
    ]
    rule = {"kind": "order", "columns": [field["name"] for field in fields], "strict": strict}
    parsed = Schema.parse({"fields": fields, "constraints": [rule]})
    null = parsed.column("first").null_code
    rows = np.array(
        [[7, null, last, null], [7, null, null, last], [null, 7, null, 8], [null, null, 4, null]]
    )
    codes = {field["name"]: column for field, column in zip(fields, rows.T, strict=True)}
    (mask,) = parsed.violations(codes)
    assert mask.tolist() == [True, True, False, False]


def test_a_number_is_at_least_a_sum_and_an_offset() -> None:
    rule = {"kind": "at_least", "column": "total", "sum_of": ["fare", "tip"], "offset": -0.1}
    assert broken(
        rule, total=[0.3, 0.2, 0.1, None, 0.0], fare=[0.1] * 3 + [1.0, None], tip=[0.2] * 5
    ) == [False, False, True, False, False]
    assert schema(rule).to_wire()["constraints"] == [rule]
    plain = {"kind": "at_least", "column": "total", "sum_of": ["tip"]}
    assert broken(plain, total=[0.3, 0.2], tip=[0.3, 0.3]) == [False, True]
    assert schema({**plain, "offset": 0}).to_wire()["constraints"] == [plain]


def test_order_holds_across_columns_of_other_ranges() -> None:
    new_year, eve = dt.date(2020, 1, 1), dt.date(2019, 12, 31)
    columns = {"from": [new_year] * 3 + [None], "to": [new_year, eve, None, eve]}
    assert broken({"kind": "order", "columns": ["from", "to"]}, **columns) == [
        False,
        True,
        False,
        False,
    ]
    assert broken({"kind": "order", "columns": ["from", "to"], "strict": True}, **columns) == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("strict", "expected"),
    [(False, [False, False, True, False]), (True, [False, True, True, False])],
)
def test_a_date_beside_a_datetime_is_its_whole_day(strict: bool, expected: list[bool]) -> None:
    ends = {"minimum": "2020-05-01", "maximum": "2020-05-09"}
    fields = [
        {"name": "day", "type": "date", "constraints": ends},
        {"name": "moment", "type": "datetime", "constraints": ends},
    ]
    noon = 43_200
    for names in (["day", "moment"], ["moment", "day"]):
        rule = {"kind": "order", "columns": names, "strict": strict}
        parsed = Schema.parse({"fields": fields, "constraints": [rule]})
        # The moment is a day later, on the day, a day earlier, missing.
        days, moments = np.array([2, 2, 2, 2]), np.array([3, 2, 1, 0]) * 86_400 + noon
        if names[0] == "moment":
            moments = np.array([1, 2, 3, 0]) * 86_400 + noon
        moments[3] = parsed.column("moment").null_code
        (mask,) = parsed.violations({"day": days, "moment": moments})
        assert mask.tolist() == expected


def test_two_datetimes_with_a_date_between_them_are_held_to_the_second() -> None:
    ends = {"minimum": "2020-05-01", "maximum": "2020-05-09"}
    fields = [
        {"name": "start", "type": "datetime", "constraints": ends},
        {"name": "day", "type": "date", "constraints": ends},
        {"name": "end", "type": "datetime", "constraints": ends},
    ]
    rule = {"kind": "order", "columns": ["start", "day", "end"]}
    parsed = Schema.parse({"fields": fields, "constraints": [rule]})
    null = parsed.column("day").null_code
    codes = {
        "start": np.array([20, 20]),
        "day": np.array([0, null]),
        "end": np.array([10, 10]),
    }
    (mask,) = parsed.violations(codes)
    assert mask.tolist() == [False, True]


def test_a_forbidden_combination_needs_every_condition() -> None:
    rule = {"kind": "forbidden", "when": {"age": {"maximum": 14}, "married": [True]}}
    assert broken(rule, age=[14, 15, 14, None], married=[True, True, None, True]) == [
        True,
        False,
        False,
        False,
    ]


def test_an_implication_leaves_null_alone_unless_null_is_asked_for() -> None:
    adult = {"kind": "implied", "when": {"married": [True]}, "then": {"age": {"minimum": 18}}}
    assert broken(adult, married=[True, True, False, True], age=[17, 18, 3, None]) == [
        True,
        False,
        False,
        False,
    ]
    blank = {"kind": "implied", "when": {"married": [None]}, "then": {"age": [None]}}
    assert broken(blank, married=[None, None, True], age=[None, 3, 3]) == [False, True, False]


def test_a_lookup_admits_its_rows_alone() -> None:
    rule = {"kind": "lookup", "columns": ["code", "city"], "rows": [[7, "A"], [3, "B"]]}
    assert broken(rule, code=[7, 7, 3, None], city=["A", "B", "B", "B"]) == [
        False,
        True,
        False,
        False,
    ]
    with_null = {**rule, "rows": [[7, "A"], [None, "B"]]}
    assert broken(with_null, code=[None, None, 3], city=["A", "B", "B"]) == [True, False, True]


@given(
    rows=st.sets(st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from("AB")), min_size=1),
    table=st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from("AB"))),
)
def test_a_lookup_agrees_with_a_set_of_rows(rows: set[Any], table: list[Any]) -> None:
    rule = {"kind": "lookup", "columns": ["age", "married", "city"], "rows": list(map(list, rows))}
    columns = {name: [row[i] for row in table] for i, name in enumerate(("age", "married", "city"))}
    assert broken(rule, **columns) == [row not in rows for row in table]


ALL = [
    {"kind": "sum", "total": "total", "parts": ["fare", "tip"], "tolerance": 0.5},
    {"kind": "order", "columns": ["from", "to"], "strict": True},
    {"kind": "forbidden", "when": {"age": {"maximum": 14}, "from": ["2020-05-05"]}},
    {"kind": "implied", "when": {"married": [True, None]}, "then": {"city": ["A"]}},
    {"kind": "lookup", "columns": ["code", "city"], "rows": [[7, None]]},
]


def test_constraints_are_read_back_from_the_wire() -> None:
    parsed = schema(*ALL)
    assert parsed.to_wire()["constraints"] == ALL
    assert Schema.parse(parsed.to_wire()) == parsed


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"kind": "product"}, "/kind"),
        (3, "/kind"),
        ({"kind": "sum", "total": "nothing", "parts": ["fare"]}, "/total"),
        ({"kind": "sum", "total": "total", "parts": []}, "/parts"),
        ({"kind": "sum", "total": "total", "parts": ["city"]}, "/parts"),
        ({"kind": "sum", "total": "fare", "parts": ["fare", "tip"]}, "/parts"),
        ({"kind": "sum", "total": "total", "parts": ["fare"], "tolerance": -1}, "/tolerance"),
        ({"kind": "sum", "total": "total", "parts": ["fare"], "about": 1}, "/about"),
        ({"kind": "order", "columns": ["from"]}, "/columns"),
        ({"kind": "order", "columns": ["from", "age"]}, "/columns"),
        ({"kind": "order", "columns": ["city", "married"]}, "/columns"),
        ({"kind": "order", "columns": ["age", "age"]}, "/columns"),
        ({"kind": "order", "columns": ["from", "to"], "strict": 1}, "/strict"),
        ({"kind": "forbidden", "when": {}}, "/when"),
        ({"kind": "forbidden", "when": {"nothing": [1]}}, "/when/nothing"),
        ({"kind": "forbidden", "when": {"city": ["A", "C"]}}, "/when/city/1"),
        ({"kind": "forbidden", "when": {"city": {"minimum": "A"}}}, "/when/city"),
        ({"kind": "forbidden", "when": {"age": {"minimum": "A"}}}, "/when/age/minimum"),
        ({"kind": "implied", "when": {"age": [1]}}, "/then"),
        ({"kind": "lookup", "columns": ["code", "city"], "rows": []}, "/rows"),
        ({"kind": "lookup", "columns": ["code", "city"], "rows": [[7]]}, "/rows/0"),
        ({"kind": "lookup", "columns": ["code", "city"], "rows": [[8, "A"]]}, "/rows/0/0"),
    ],
)
def test_a_wrong_constraint_is_refused_where_it_is_wrong(wrong: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        schema(wrong)
    assert [error.pointer for error in refusal.value.errors] == [f"/constraints/0{pointer}"]
