"""Columns store what the dictionary declares, and say so in public labels."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.schema import Column, PrivacyUnit, Schema, SchemaError


def column(kind: str, /, **keys: Any) -> Column:
    limits = {
        key: keys.pop(key) for key in ("minimum", "maximum", "enum", "required") & keys.keys()
    }
    return Schema.parse(
        {"fields": [{"name": "x", "type": kind, "constraints": limits, **keys}]}
    ).column("x")


def test_codes_run_through_regular_special_other_and_null() -> None:
    x = column("integer", minimum=10, maximum=12, special=[-1, 0], other=99)
    assert (x.regular, x.tail, x.codes) == (3, 4, 7)
    assert (x.other_code, x.null_code) == (5, 6)
    assert x.decode(np.arange(7)).to_pylist() == [10, 11, 12, -1, 0, 99, None]


def test_a_required_column_has_no_null() -> None:
    x = column("string", enum=["a", "b"], required=True)
    assert x.null_code is None
    assert x.codes == 2


def test_other_may_be_a_value_that_has_a_code_already() -> None:
    x = column("string", enum=["a", "rest"], other="rest")
    assert (x.other_code, x.null_code, x.codes) == (1, 2, 3)
    y = column("integer", minimum=0, maximum=5, special=[9], other=9)
    assert (y.other_code, y.codes) == (6, 8)


@pytest.mark.parametrize(
    ("codes", "dtype"), [(256, "uint8"), (257, "uint16"), (65536, "uint16"), (65537, "uint32")]
)
def test_codes_take_the_smallest_type_that_holds_them(codes: int, dtype: str) -> None:
    assert column("integer", minimum=1, maximum=codes, required=True).dtype == np.dtype(dtype)


def test_numbers_decode_to_the_double_nearest_to_their_decimal() -> None:
    x = column("number", minimum=0, maximum=100, step=0.01, required=True)
    assert [str(value) for value in x.decode(np.array([1234, 7, 10000])).to_pylist()] == [
        "12.34",
        "0.07",
        "100.0",
    ]


@given(
    minimum=st.decimals(-1000, 1000, places=3),
    step=st.sampled_from(["0.001", "0.01", "0.05", "0.25", "1", "5"]),
    points=st.integers(1, 1000),
)
def test_every_point_of_a_grid_prints_as_its_decimal(
    minimum: Decimal, step: str, points: int
) -> None:
    maximum = minimum + Decimal(step) * points
    x = column("number", minimum=minimum, maximum=maximum, step=Decimal(step), required=True)
    assert x.regular == points + 1
    exact = [float(minimum + Decimal(step) * code) for code in range(points + 1)]
    assert x.decode(np.arange(points + 1)).to_pylist() == exact


def test_a_number_without_step_has_about_seven_digits() -> None:
    assert column("number", minimum=0, maximum=100).step == 1e-5
    assert column("number", minimum=0, maximum=101).step == 1e-4
    assert column("number", minimum=-0.5, maximum=0.5).step == 1e-7


def test_moments_decode_to_values_of_their_type() -> None:
    day = column("date", minimum="2020-02-28", maximum="2020-03-01")
    moment = column("datetime", minimum="2020-01-01T00:00:00", maximum="2020-01-01T00:01:00")
    clock = column("time")
    assert day.decode(np.arange(4)).to_pylist() == [
        dt.date(2020, 2, 28),
        dt.date(2020, 2, 29),
        dt.date(2020, 3, 1),
        None,
    ]
    assert moment.decode(np.array([1])).to_pylist() == [
        dt.datetime.fromisoformat("2020-01-01T00:00:01")
    ]
    assert clock.decode(np.array([86399])).to_pylist() == [dt.time(23, 59, 59)]
    assert [x.decode(np.array([0])).type for x in (day, moment, clock)] == [
        pa.date32(),
        pa.timestamp("s"),
        pa.time32("s"),
    ]


def test_booleans_and_years_decode() -> None:
    assert column("boolean").decode(np.arange(3)).to_pylist() == [False, True, None]
    assert column("year", minimum=1999, maximum=2000).decode(np.array([1])).to_pylist() == [2000]


def test_a_code_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="0 to 2"):
        column("boolean").decode(np.array([3]))


def test_an_integer_has_a_cell_for_each_value_and_a_number_twenty_bins() -> None:
    assert column("integer", minimum=0, maximum=9).grouping.cells == 11
    fare = column("number", minimum=0, maximum=100, special=[0])
    assert fare.grouping.cells == 22
    assert fare.labels()[:2] == ["[0, 5)", "[5, 10)"]
    assert fare.labels()[-3:] == ["[95, 100]", "0 (special)", "null"]


def test_bins_are_closed_on_the_left_and_the_last_on_both_sides() -> None:
    x = column("integer", minimum=0, maximum=20, bins=[0, 5, 10, 20], required=True)
    assert x.grouping.cell_of(np.array([0, 4, 5, 9, 10, 19, 20])).tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert x.labels() == ["[0, 5)", "[5, 10)", "[10, 20]"]


def test_params_may_cut_a_column_anew() -> None:
    x = column("number", minimum=0, maximum=10, step=0.5, required=True)
    assert x.labels(x.group(2)) == ["[0, 5)", "[5, 10]"]
    assert x.labels(x.group([2.5])) == ["[0, 2.5)", "[2.5, 10]"]
    day = column("date", minimum="2020-01-01", maximum="2020-12-31", required=True)
    assert day.labels(day.group(["2020-07-01"])) == [
        "[2020-01-01, 2020-07-01)",
        "[2020-07-01, 2020-12-31]",
    ]


def test_cuts_out_of_range_or_of_categories_are_refused() -> None:
    with pytest.raises(ValueError, match="between"):
        column("integer", minimum=0, maximum=5).group([0, 9])
    with pytest.raises(ValueError, match="increase strictly"):
        column("integer", minimum=0, maximum=5).group([3, 2])
    with pytest.raises(ValueError, match="categories"):
        column("string", enum=["a"]).group(3)


@given(length=st.integers(0, 500), bins=st.integers(1, 60), minimum=st.integers(-100, 100))
def test_equal_bins_partition_the_codes(length: int, bins: int, minimum: int) -> None:
    x = column("integer", minimum=minimum, maximum=minimum + length, bins=bins, required=True)
    cells = x.grouping.cell_of(np.arange(x.codes))
    assert x.grouping.widths().sum() == x.codes
    assert (np.diff(cells) >= 0).all()
    assert x.grouping.cells <= bins
    widths = x.grouping.widths()
    assert widths.max() - widths.min() <= 2


def test_merged_cells_are_labelled_by_what_they_hold() -> None:
    x = column("string", enum=["a", "b", "c"], required=True)
    assert x.labels(x.grouping.merged([0, 1, 1])) == ["a", "b | c"]


def test_labels_refuse_the_grouping_of_another_column() -> None:
    x, y = column("boolean"), column("integer", minimum=0, maximum=9)
    with pytest.raises(ValueError, match="does not fit"):
        x.labels(y.grouping)


FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string", "role": "entity", "title": "Person"},
    {"name": "a", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}, "other": 3},
    {"name": "b", "type": "integer", "constraints": {"enum": [3, 1]}, "undeclared": "null"},
    {"name": "c", "type": "number", "constraints": {"minimum": -1.5, "maximum": 2}, "step": 0.5},
    {"name": "d", "type": "string", "constraints": {"enum": ["x", "é"], "required": True}},
    {"name": "e", "type": "date", "format": "%d/%m/%Y", "bins": ["01/06/2020"],
     "constraints": {"minimum": "2020-01-01", "maximum": "31/12/2020"}},
    {"name": "f", "type": "datetime", "bins": 3,
     "constraints": {"minimum": "2020-01-01T00:00:00", "maximum": "2020-01-02T00:00:00"}},
    {"name": "g", "type": "time", "special": ["00:00:00"]},
    {"name": "h", "type": "year", "constraints": {"minimum": 1900, "maximum": 2000}},
    {"name": "i", "type": "boolean", "trueValues": ["S"], "falseValues": ["N"], "column": 12},
    {"name": "j", "type": "string", "description": "free text"},
    {"name": "k", "type": "geopoint"},
]  # fmt: skip


def test_the_wire_form_is_read_back_as_the_same_schema() -> None:
    schema = Schema.parse({"fields": FIELDS, "missingValues": ["", "NA"]})
    wire = json.loads(json.dumps(schema.to_wire()))
    assert Schema.parse(wire) == schema
    assert Schema.parse(wire).to_wire() == wire


def test_free_text_and_unsupported_columns_are_left_out_and_said_so() -> None:
    schema = Schema.parse({"fields": FIELDS})
    assert [field.name for field in schema.left_out] == ["j", "k"]
    assert "free text" in schema.left_out[0].reason
    assert [column.name for column in schema.columns] == list("abcdefghi")
    assert schema.entity is not None
    assert schema.entity.name == "id"


def test_exactly_the_units_column_is_the_entity() -> None:
    schema = Schema.parse({"fields": FIELDS})
    schema.check_unit(PrivacyUnit("entity", "id", 5))
    for unit in (PrivacyUnit("row"), PrivacyUnit("entity", "a", 5)):
        with pytest.raises(SchemaError) as refusal:
            schema.check_unit(unit)
        assert refusal.value.errors[0].pointer == "/fields/0/role"
    with pytest.raises(SchemaError):
        Schema.parse({"fields": FIELDS[1:]}).check_unit(PrivacyUnit("entity", "id", 5))


@pytest.mark.parametrize(
    ("wire", "pointer"),
    [
        ([], ""),
        ({"kind": "person"}, "/kind"),
        ({"kind": "row", "max_rows": 2}, "/kind"),
        ({"kind": "row", "k": 2}, "/k"),
        ({"kind": "entity", "max_rows": 2}, "/column"),
        ({"kind": "entity", "column": "id"}, "/max_rows"),
        ({"kind": "entity", "column": "id", "max_rows": 0}, "/max_rows"),
        ({"kind": "entity", "column": "id", "max_rows": True}, "/max_rows"),
    ],
)
def test_a_wrong_unit_is_refused_where_it_is_wrong(wire: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        PrivacyUnit.parse(wire)
    assert [error.pointer for error in refusal.value.errors] == [pointer]


def test_units_are_read_back() -> None:
    for unit in (PrivacyUnit("row"), PrivacyUnit("entity", "id", 7)):
        assert PrivacyUnit.parse(unit.to_wire()) == unit
