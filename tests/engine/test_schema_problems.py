"""A wrong dictionary is refused with every problem, where it is, and what to do."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.schema import Schema, SchemaError


def pointers(*fields: Any, **table: Any) -> list[str]:
    with pytest.raises(SchemaError) as refusal:
        Schema.parse({"fields": list(fields), **table})
    assert all(error.message and error.remedy for error in refusal.value.errors)
    return [error.pointer for error in refusal.value.errors]


GOOD = {"name": "good", "type": "boolean"}


def field(kind: str, /, **keys: Any) -> dict[str, Any]:
    return {"name": "x", "type": kind, **keys}


def whole(**keys: Any) -> dict[str, Any]:
    return field("integer", constraints={"minimum": 0, "maximum": 9}, **keys)


def test_all_problems_are_told_at_once() -> None:
    assert pointers(
        GOOD,
        field("integer"),
        field("number", constraints={"enum": [1, "two"]}),
        {"type": "boolean"},
    ) == [
        "/fields/1/constraints/minimum",
        "/fields/1/constraints/maximum",
        "/fields/2/constraints/enum/1",
        "/fields/3/name",
        "/fields/2/name",
    ]


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ("text", ""),
        (field("text"), "/type"),
        (field("boolean", colour="red"), "/colour"),
        (field("boolean", name=""), "/name"),
        (field("boolean", name="n" * 201), "/name"),
        (field("boolean", name="\ud800"), "/name"),
        (field("string", constraints={"enum": ["\ud800"]}), "/constraints/enum/0"),
        (field("boolean", missingValues=["\ud800"]), "/missingValues"),
        (field("boolean", column=0), "/column"),
        (field("boolean", role="key"), "/role"),
        (field("boolean", title=3), "/title"),
        (field("boolean", bins=2), "/bins"),
        (field("boolean", proposed=True), "/proposed"),
        (field("boolean", constraints=[]), "/constraints"),
        (field("boolean", constraints={"required": "yes"}), "/constraints/required"),
        (field("boolean", constraints={"unique": True}), "/constraints/unique"),
        (field("boolean", constraints={"enum": [True]}), "/constraints/enum"),
        (field("boolean", trueValues="yes"), "/trueValues"),
        (field("boolean", falseValues=[]), "/falseValues"),
        (field("boolean", trueValues=["x"], falseValues=["x"]), "/falseValues"),
        (field("boolean", undeclared="clip"), "/undeclared"),
        (field("boolean", decimalChar=","), "/decimalChar"),
        (field("boolean", format="%d"), "/format"),
        (field("string", constraints={"enum": []}), "/constraints/enum"),
        (field("string", constraints={"enum": ["a", "a"]}), "/constraints/enum/1"),
        (field("string", constraints={"enum": ["a"], "maximum": 3}), "/constraints/maximum"),
        (field("string", constraints={"enum": ["a"]}, special=["a"]), "/special"),
        (field("string", constraints={"enum": ["a"]}, other=3), "/other"),
        (field("string", constraints={"enum": ["a"]}, bins=3), "/bins"),
        (field("string", other="b"), "/other"),
        (field("string", values="find", other="b"), "/values"),
        (field("string", values={"discover": 0}, other="b"), "/values"),
        (field("string", values={"discover": True}, other="b"), "/values"),
        (field("string", values={"discover": 9, "of": 2}, other="b"), "/values"),
        (field("string", values=["discover"], other="b"), "/values"),
        (field("string", values="discover"), "/other"),
        (field("string", values="discover", other=3), "/other"),
        (field("string", values="discover", other="b", bins=2), "/bins"),
        (field("string", values="discover", other="b", special=["a"]), "/special"),
        (field("string", values="discover", other="b", undeclared="null"), "/undeclared"),
        (field("string", values="discover", other="b", constraints={"enum": ["a"]}), "/values"),
        (field("integer", values="discover", other=2), "/values"),
        (whole(bins="quartiles"), "/bins"),
        (whole(bins={"quantiles": 1}), "/bins"),
        (whole(bins={"quantiles": 257}), "/bins"),
        (whole(bins={"quantiles": 4.0}), "/bins"),
        (whole(bins={"quantiles": True}), "/bins"),
        (whole(bins={"quantiles": 4, "of": 2}), "/bins"),
        (whole(bins={}), "/bins"),
        (field("boolean", bins="quantiles"), "/bins"),
        (field("string", constraints={"enum": ["a"]}, bins="quantiles"), "/bins"),
        (field("integer", constraints={"enum": [1, 2]}, bins="quantiles"), "/bins"),
        (whole(bins=0), "/bins"),
        (whole(bins=True), "/bins"),
        (whole(bins=[]), "/bins"),
        (whole(bins=[0, 10]), "/bins/1"),
        (whole(bins=[5, 5]), "/bins/1"),
        (whole(bins=[0, "5"]), "/bins/1"),
        (whole(special=[1, 1]), "/special/1"),
        (whole(special=1), "/special"),
        (whole(undeclared="other"), "/undeclared"),
        (whole(undeclared="drop"), "/undeclared"),
        (whole(step=0.5), "/step"),
        (whole(step=0), "/step"),
        (whole(groupChar="00"), "/groupChar"),
        (whole(bareNumber=1), "/bareNumber"),
        (whole(missingValues=""), "/missingValues"),
        (field("integer", constraints={"minimum": 5, "maximum": 4}), "/constraints/maximum"),
        (field("integer", constraints={"minimum": 0.5, "maximum": 4}), "/constraints/minimum"),
        (field("integer", constraints={"minimum": True, "maximum": 4}), "/constraints/minimum"),
        (field("integer", constraints={"minimum": 0, "maximum": 2**32}), "/constraints/maximum"),
        (field("integer", constraints={"minimum": 0, "maximum": 2**60}), "/constraints/maximum"),
        (field("integer", constraints={"minimum": 0, "maximum": 2**21}), "/bins"),
        (
            field("number", constraints={"minimum": 0, "maximum": float("nan")}),
            "/constraints/maximum",
        ),
        (
            field("number", constraints={"minimum": 0, "maximum": Decimal("1e400")}),
            "/constraints/maximum",
        ),
        (field("number", constraints={"minimum": 0, "maximum": 1}, step=0), "/step"),
        (
            field("number", constraints={"minimum": 0, "maximum": 1}, decimalChar=".",
                  groupChar="."),
            "/groupChar",
        ),
        (
            field("number", constraints={"minimum": 0, "maximum": 1}, step=1e-12),
            "/constraints/maximum",
        ),
        (field("date", constraints={"minimum": "2020-02-30", "maximum": "2020-12-31"}),
         "/constraints/minimum"),
        (field("date", format="%Q", constraints={"minimum": "2020-01-01",
                                                 "maximum": "2020-12-31"}), "/format"),
        (field("time", constraints={"minimum": "25:00"}), "/constraints/minimum"),
        (field("time", format="%H %H"), "/format"),
        (field("time", format="%H\n"), "/format"),
        (field("time", format="hour"), "/format"),
        (field("time", format=["%H:%M", "%Y"]), "/format/1"),
        (field("time", format=[]), "/format"),
        (whole(special=list(range(1001))), "/special"),
        (field("string", role="entity", bins=3), "/bins"),
        (field("number", role="entity"), "/type"),
        (field("date", role="entity"), "/type"),
        (field("boolean", role="entity"), "/type"),
        (
            field("string", constraints={"enum": ["a"], "required": True}, undeclared="null"),
            "/undeclared",
        ),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_where_it_is_wrong(wrong: Any, pointer: str) -> None:
    assert pointers(wrong, GOOD) == [f"/fields/0{pointer}"]


def test_a_pointer_escapes_what_json_pointers_escape() -> None:
    assert pointers(field("boolean", **{"a/b~c": 1})) == ["/fields/0/a~1b~0c"]


@pytest.mark.parametrize(
    "wire", [None, [], {}, {"fields": []}, {"fields": {}}, {"fields": [GOOD] * 2001}]
)
def test_a_dictionary_lists_its_columns(wire: Any) -> None:
    with pytest.raises(SchemaError):
        Schema.parse(wire)


def test_a_table_needs_a_usable_column() -> None:
    assert pointers(field("string")) == ["/fields"]
    assert pointers(field("string", role="entity")) == ["/fields"]


def test_names_positions_and_the_entity_are_declared_once() -> None:
    assert pointers(GOOD, GOOD) == ["/fields/1/name"]
    assert pointers(field("boolean", column=1), {**GOOD, "column": 1}) == ["/fields/1/column"]
    ids = [{"name": name, "type": "string", "role": "entity"} for name in "ab"]
    assert pointers(GOOD, *ids) == ["/fields/2/role"]


def test_a_category_is_not_a_spelling_of_null_too() -> None:
    answers = field("string", constraints={"enum": ["yes", "NA"]})
    assert pointers(GOOD, answers, missingValues=["NA"]) == ["/fields/1/constraints/enum/1"]
    Schema.parse({"fields": [{**answers, "missingValues": []}], "missingValues": ["NA"]})


def test_no_more_than_a_thousand_problems_are_told() -> None:
    assert len(pointers(field("string", constraints={"enum": [1] * 5000}))) == 1000


def test_no_rule_is_about_values_that_are_to_be_found() -> None:
    town = {"name": "town", "type": "string", "values": "discover", "other": "b"}
    rule = {"kind": "forbidden", "when": {"town": ["b"], "x": [1]}}
    assert pointers(town, whole(), constraints=[rule]) == ["/constraints/0/when/town"]


def test_values_are_other_until_they_are_discovered() -> None:
    for asked, most in (("discover", 1000), ({"discover": 2}, 2)):
        town = field("string", values=asked, other="b")
        schema = Schema.parse({"fields": [town]})
        column = schema.columns[0]
        assert (column.regular, column.discovers) == (0, most)
        assert column.labels() == ["b", "null"]
        assert Schema.parse(schema.to_wire()) == schema
        known = schema.with_values(column.name, ["c", "d"])
        assert known.columns[0].labels() == ["c", "d", "b", "null"]
        assert Schema.parse(known.to_wire()) == known
    for wrong in (["b"], ["x", "x"], ["x", "y", "z"]):
        with pytest.raises(ValueError, match=r"discovered values|twice"):
            schema.with_values(column.name, wrong)
    with pytest.raises(ValueError, match="discovered values"):
        known.with_values(column.name, ["c"])


def test_unknown_keys_of_the_table_are_refused() -> None:
    assert pointers(GOOD, primaryKey="x") == ["/primaryKey"]


SCALARS = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        -7,
        2**70,
        0.5,
        1e308,
        float("inf"),
        "",
        "%d",
        "2020-01-01",
        "12:00",
        "\ud800",
    ]
)
JSON = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.sampled_from("ab"), SCALARS)
KEYS = [
    "name", "type", "format", "constraints", "bins", "special", "other", "undeclared", "values",
    "role", "step", "column", "missingValues", "decimalChar", "groupChar", "bareNumber",
    "trueValues", "falseValues", "proposed", "title",
]  # fmt: skip


@given(
    kind=st.sampled_from(["integer", "number", "date", "time", "string", "boolean", "year"]),
    keys=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4),
    limits=st.dictionaries(st.sampled_from(["minimum", "maximum", "enum", "required"]), JSON),
)
def test_any_json_is_read_or_refused_never_a_crash(
    kind: str, keys: dict[str, Any], limits: dict[str, Any]
) -> None:
    wire = {"name": "x", "type": kind, "constraints": limits, **keys}
    try:
        schema = Schema.parse({"fields": [wire, GOOD]})
    except SchemaError:
        return
    assert Schema.parse(schema.to_wire()) == schema


@pytest.mark.parametrize(
    ("kind", "ends", "named"),
    [
        ("integer", (0, 2**33), '"step", such as 10:'),
        ("integer", (-(2**63), 2**63 - 1), '"step", such as 10000000000:'),
        ("number", (0, 10), '"step", such as 1e-08:'),
        ("datetime", ("1850-01-01", "2050-01-01"), '"step", such as 60: values are then kept as'),
    ],
)
def test_a_range_of_too_many_points_names_a_step_that_mends_it(
    kind: str, ends: tuple[Any, Any], named: str
) -> None:
    step: dict[str, Any] = {"step": 1e-9} if kind == "number" else {}
    wire = field(kind, constraints=dict(zip(("minimum", "maximum"), ends, strict=True)), **step)
    with pytest.raises(SchemaError) as refusal:
        Schema.parse({"fields": [wire]})
    (problem,) = refusal.value.errors
    assert named in problem.remedy
    mended = json.loads(problem.remedy.split("such as ")[1].split(":")[0])
    whole = Schema.parse({"fields": [{**wire, "step": mended, "bins": 20}]})
    assert Schema.parse(whole.to_wire()) == whole


def test_rules_do_not_compare_numbers_that_doubles_cannot_hold() -> None:
    ids = [
        field("integer", constraints={"minimum": 2**60, "maximum": 2**60 + 9}) | {"name": name}
        for name in ("x", "y")
    ]
    rule = {"kind": "order", "columns": ["x", "y"]}
    assert pointers(*ids, constraints=[rule]) == ["/constraints/0/columns"] * 2
