"""Blocks of a file become the codes that the dictionary declares."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.encoding import EncodedBlock, Encoder, TableError
from app.engine.files import TableLayout
from app.engine.schema import PrivacyUnit, Schema, SchemaError

ROW = PrivacyUnit("row")


def whole(low: int, high: int, **keys: Any) -> dict[str, Any]:
    return {
        "name": "x",
        "type": "integer",
        "constraints": {"minimum": low, "maximum": high},
        **keys,
    }


def field(kind: str, **keys: Any) -> dict[str, Any]:
    return {"name": "x", "type": kind, **keys}


def encoder(*fields: Any, **table: Any) -> Encoder:
    return Encoder(Schema.parse({"fields": list(fields), **table}), ROW)


def block(**columns: Any) -> pa.RecordBatch:
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(values, pa.string())
        for values in columns.values()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def read(wire: dict[str, Any], *cells: str | None, **table: Any) -> list[Any]:
    """The values that the cells of one column mean; problems fail."""
    coder = encoder(wire, **table)
    encoded = coder.encode(block(x=list(cells)))
    assert not encoded.problems, encoded.problems
    return list(coder.schema.column("x").decode(encoded.codes["x"]).to_pylist())


def messages(wire: dict[str, Any], *cells: str | None) -> list[str]:
    """The problem of each cell that has one: of a whole block only some are listed."""
    blocks = [block(x=[cell]) for cell in cells]
    return [problem.message for each in blocks for problem in encoder(wire).encode(each).problems]


def test_whole_numbers_may_be_padded_signed_or_written_as_decimals() -> None:
    assert read(whole(-9, 99), "7", "007", "+7", "-7", " 7 ", "7.0", "") == [
        7,
        7,
        7,
        -7,
        7,
        7,
        None,
    ]


def test_what_is_no_whole_number_is_refused() -> None:
    assert len(messages(whole(0, 99), "x", "1.5", "0x10", "1e3", "9" * 30, "nan", "1_0")) == 7


def test_integers_of_19_digits_are_kept_without_rounding() -> None:
    low = 2**63 - 1_000_000
    texts = [str(low), str(low + 1), str(low + 123_457), str(2**63 - 1)]
    assert read(whole(low, 2**63 - 1), *texts) == [int(text) for text in texts]
    listed = field("integer", constraints={"enum": [low + 1, low + 2]})
    assert read(listed, str(low + 2), str(low + 1)) == [low + 2, low + 1]
    ends = [-(2**63), 2**63 - 1]
    assert read({**whole(0, 9), "special": ends}, *map(str, ends)) == ends
    assert len(messages(whole(low, 2**63 - 1), str(2**63), "9" * 30, "9" * 5000)) == 3


def test_a_wide_range_of_integers_is_kept_in_steps() -> None:
    step = 10**10
    wire = {**whole(-(2**63), 2**63 - 1), "step": step, "bins": 20}
    low = -(2**63)
    cells = [low, low + step // 2, low + step // 2 + 1, low + 3 * step // 2, 0]
    nearest = [low, low, low + step, low + 2 * step, low + round((0 - low) / step) * step]
    assert read(wire, *map(str, cells)) == nearest
    assert read({**wire, "undeclared": "clip"}, str(low))[0] == low


def test_moments_over_centuries_are_kept_in_steps() -> None:
    limits = {"minimum": "1800-01-01", "maximum": "2100-01-01"}
    wire = field("datetime", constraints=limits, step=60)
    kept = read(wire, "1815-06-18 11:30:29", "1815-06-18 11:30:31")
    assert list(map(str, kept)) == ["1815-06-18 11:30:00", "1815-06-18 11:31:00"]
    weeks = field("date", constraints={"minimum": "2024-01-01", "maximum": "2024-12-31"}, step=7)
    assert read(weeks, "2024-01-03", "2024-01-05") == [dt.date(2024, 1, 1), dt.date(2024, 1, 8)]


def test_numbers_land_on_the_nearest_point_of_the_grid() -> None:
    wire = field("number", constraints={"minimum": 0, "maximum": 1}, step=0.1)
    assert read(wire, "0.1", ".26", "1e-1", "1.", "0.99") == [0.1, 0.3, 0.1, 1.0, 1.0]
    assert len(messages(wire, "1.01", "-0.01", "inf", "nan", "1,0", "")) == 5


def test_numbers_are_spelled_as_the_dictionary_says() -> None:
    wire = field("number", constraints={"minimum": 0, "maximum": 5000}, step=0.01)
    assert read({**wire, "decimalChar": ",", "groupChar": "."}, "1.234,5", "7") == [1234.5, 7.0]
    assert read({**wire, "bareNumber": False}, "€ 95.5", "95%", "95") == [95.5, 95.0, 95.0]
    assert len(messages({**wire, "decimalChar": ","}, "1.5")) == 1


@pytest.mark.parametrize("mark", [".", " ", "\u00a0", "'", "]", "^"])
def test_marks_group_three_digits_or_make_a_text_unreadable(mark: str) -> None:
    limits = {"minimum": -5_000_000, "maximum": 5_000_000}
    wire = field("number", constraints=limits, step=0.01, decimalChar=",", groupChar=mark)
    good = {"1.234,5": 1234.5, "-1.234.567": -1_234_567.0, "12.345": 12345.0, "7": 7.0, "0,5": 0.5}
    spelled = [text.replace(".", mark) for text in good]
    assert read(wire, *spelled) == list(good.values())
    bad = ["1.5", "1..234", "12.34", "1234.567", "1.2345", "1,234.5", "1.23.456"]
    spelled = [text.replace(".", mark) for text in bad]
    assert len(messages(wire, *spelled)) == len(bad)


def test_marks_group_digits_among_text() -> None:
    wire = field("number", constraints={"minimum": 0, "maximum": 5000}, step=0.01, groupChar="'")
    wire |= {"bareNumber": False}
    assert read(wire, "CHF 1'234.50", "Fr 5", "1'234 CHF") == [1234.5, 5.0, 1234.0]
    assert len(messages(wire, "CHF 1'23.50", "1''234 CHF")) == 2


def test_the_decimal_mark_of_the_file_holds_where_a_field_declares_none() -> None:
    schema = Schema.parse({"fields": [field("number", constraints={"minimum": 0, "maximum": 9})]})
    coder = Encoder(schema, ROW, TableLayout(("x",), decimal=","))
    encoded = coder.encode(block(x=["2,5"]))
    assert schema.column("x").decode(encoded.codes["x"]).to_pylist() == [2.5]


def test_categories_match_exactly_or_without_blanks_around_them() -> None:
    wire = field("string", constraints={"enum": ["a", " a", "é"]})
    assert read(wire, "a", " a", "  a ", "é", "") == ["a", " a", "a", "é", None]
    assert messages(wire, "A") == ['"A" is not declared']


def test_categories_of_numbers_match_by_value() -> None:
    assert read(field("integer", constraints={"enum": [3, 1]}), "01", "3") == [1, 3]
    assert read(field("number", constraints={"enum": [0.5, 2]}), "0.50", "2.0") == [0.5, 2.0]


def test_booleans_have_the_spellings_declared() -> None:
    assert read(field("boolean"), "true", "FALSE", "1", "0", "") == [True, False, True, False, None]
    assert read(field("boolean", trueValues=["S"], falseValues=["N"]), "S", "N") == [True, False]
    assert len(messages(field("boolean"), "yes")) == 1


def test_missing_values_are_the_tables_or_the_fields_own() -> None:
    assert read(whole(0, 9), "NA", "1", missingValues=["NA"]) == [None, 1]
    assert read({**whole(0, 9), "missingValues": ["-"]}, "-", missingValues=["NA"]) == [None]
    assert len(messages(whole(0, 9, missingValues=[]), "")) == 1


def test_dates_are_read_strictly_in_their_format() -> None:
    year = {"minimum": "2020-01-01", "maximum": "2020-12-31"}
    leap = dt.date(2020, 2, 29)
    assert read(field("date", constraints=year), "2020-02-29", "2020-02-29T00:00:00") == [leap] * 2
    assert (
        read(field("date", constraints=year, format="%d/%m/%Y"), "29/02/2020", "29/2/2020")
        == [leap] * 2
    )
    assert read(field("date", constraints=year, format="%d.%m.%y"), "29.02.20") == [leap]
    assert read(field("date", constraints=year, format="%d %b %Y"), "29 Feb 2020") == [leap]
    assert read(field("date", constraints=year, format=["%Y%m%d", "%B %d, %Y"]), "20200229",
                "february 29, 2020") == [leap] * 2  # fmt: skip
    assert len(messages(field("date", constraints=year), "2020-02-30", "2020-13-01", "x",
                        "2020-02-29T01:00:00", "2021-02-29")) == 5  # fmt: skip


def test_moments_and_clocks_drop_fractions_of_a_second() -> None:
    day = {"minimum": "2020-01-01T00:00:00", "maximum": "2020-01-02T00:00:00"}
    five_past = dt.datetime.fromisoformat("2020-01-01T13:05:09")
    assert read(field("datetime", constraints=day), "2020-01-01T13:05:09.999Z",
                "2020-01-01 13:05:09") == [five_past] * 2  # fmt: skip
    assert read(field("datetime", constraints=day, format="%m/%d/%Y %I:%M:%S %p"),
                "1/1/2020 1:05:09 PM") == [five_past]  # fmt: skip
    assert read(field("time"), "13:05", "13:05:09.5") == [dt.time(13, 5), dt.time(13, 5, 9)]
    assert read(field("time", format="%I %p"), "12 am", "12 PM") == [dt.time(0), dt.time(12)]
    assert len(messages(field("time"), "24:00:00", "12:60:00", "1:2")) == 3


@given(
    marks=st.permutations(["%d", "%m", "%Y"]),
    between=st.text(st.characters(codec="utf-8", exclude_characters="%"), min_size=1, max_size=3),
)
def test_dates_may_be_written_with_any_marks_between(marks: list[str], between: str) -> None:
    form = between.join(marks)
    wire = {
        "name": "x",
        "type": "date",
        "format": form,
        "constraints": {"minimum": "2020-01-01", "maximum": "2020-12-31"},
    }
    try:
        schema = Schema.parse({"fields": [wire]})
    except SchemaError:
        assert not form.isprintable()
        return
    cell = between.join({"%d": "05", "%m": "11", "%Y": "2020"}[mark] for mark in marks)
    encoded = Encoder(schema, ROW).encode(block(x=[cell]))
    assert schema.column("x").decode(encoded.codes["x"]).to_pylist() == [dt.date(2020, 11, 5)]


def test_point_masses_keep_their_own_cell() -> None:
    wire = whole(0, 9, special=[0, 99])
    coder = encoder(wire)
    codes = coder.encode(block(x=["0", "99", "9"])).codes["x"]
    assert codes.tolist() == [10, 11, 9]


@pytest.mark.parametrize(
    ("wire", "cells", "values", "treatment"),
    [
        (whole(0, 9, other=-1), ["4", "77", "x"], [4, -1, -1], "other"),
        (whole(0, 9, undeclared="null"), ["4", "77", "x"], [4, None, None], "null"),
        (whole(0, 9, undeclared="clip", special=[50]), ["-4", "77", "50"], [0, 9, 50], "clip"),
        (whole(0, 9, other=5, undeclared="null"), ["5", "77"], [5, None], "null"),
    ],
)
def test_undeclared_values_are_treated_as_declared_and_counted(
    wire: dict[str, Any], cells: list[str], values: list[Any], treatment: str
) -> None:
    coder = encoder(wire)
    encoded = coder.encode(block(x=cells))
    assert coder.schema.column("x").decode(encoded.codes["x"]).to_pylist() == values
    treated = sum(value != cell for value, cell in zip(map(str, values), cells, strict=True))
    assert coder.totals.treated == {"x": {treatment: treated}}


def test_clipping_does_not_make_a_number_of_text() -> None:
    assert messages(whole(0, 9, undeclared="clip"), "x") == ['"x" is not of type integer']


def test_a_missing_value_in_a_required_column_is_a_problem_unless_other_takes_it() -> None:
    wire = field("string", constraints={"enum": ["a"], "required": True})
    assert messages(wire, "") == ["a value is missing in a required column"]
    assert read({**wire, "other": "b"}, "", "a") == ["b", "a"]


def test_problems_name_row_record_column_and_remedy_across_blocks() -> None:
    layout = TableLayout(("x",), first_record=4)
    coder = Encoder(Schema.parse({"fields": [whole(0, 9)]}), ROW, layout)
    coder.encode(block(x=["1", "2"]))
    (problem,) = coder.encode(block(x=["3", "x"])).problems
    assert (problem.row, problem.record, problem.column) == (4, 7, "x")
    assert '"x"' in problem.message
    assert problem.remedy


def test_problems_are_grouped_by_column_and_cause_with_a_few_examples_of_each() -> None:
    fields = [{**whole(0, 9), "name": name} for name in ("x", "y", "z")]
    fields[1]["constraints"] = {**fields[1]["constraints"], "required": True}
    coder = encoder(*fields)
    for _ in range(3):
        bad = coder.encode(block(x=["10"] * 68 + ["11", "x"], y=[""] + ["1"] * 69, z=["1"] * 70))
        assert bad.problem_count == 71
    tally = coder.totals.problems
    counts = {key: group.count for key, group in tally.groups.items()}
    assert counts == {("x", "undeclared"): 207, ("x", "unreadable"): 3, ("y", "missing"): 3}
    assert tally.count == 213
    # Cells that differ are shown before a cell that occurs again.
    rows = [problem.row for problem in tally.groups["x", "undeclared"].examples]
    assert rows == [1, 69, 2, 3, 4]
    assert [problem.row for problem in tally.listed()][:3] == [1, 1, 2]


def test_columns_without_problems_make_no_group() -> None:
    coder = encoder(field("string", constraints={"enum": ["a"], "required": True}))
    assert not coder.encode(block(x=["a"])).problem_count
    assert not coder.totals.problems.groups


def test_a_long_cell_is_shortened_in_its_message() -> None:
    assert len(messages(whole(0, 9), "y" * 10_000)[0]) < 120


def entity_encoder(kind: str) -> Encoder:
    fields = [{"name": "id", "type": kind, "role": "entity"}, whole(0, 9)]
    return Encoder(Schema.parse({"fields": fields}), PrivacyUnit("entity", "id", 5))


def ids(encoded: EncodedBlock) -> list[str]:
    assert encoded.entity_text is not None
    return list(encoded.entity_text.to_pylist())


def test_rows_without_an_id_are_dropped_and_counted() -> None:
    coder = entity_encoder("string")
    encoded = coder.encode(block(id=["a", "", None, "b"], x=["1", "2", "3", "4"]))
    assert ids(encoded) == ["a", "b"]
    assert encoded.codes["x"].tolist() == [1, 4]
    assert (encoded.rows, encoded.dropped_without_id) == (2, 2)
    assert (coder.totals.rows_read, coder.totals.rows_kept) == (4, 2)


def test_a_dropped_row_still_counts_in_the_numbers_of_later_rows() -> None:
    encoded = entity_encoder("string").encode(block(id=["", "b"], x=["bad", "bad"]))
    assert [problem.row for problem in encoded.problems] == [2]


def test_ids_are_compared_as_decoded_text() -> None:
    same = {"id": ["007", "7"], "x": ["1", "1"]}
    assert ids(entity_encoder("integer").encode(block(**same))) == ["7", "7"]
    assert ids(entity_encoder("string").encode(block(**same))) == ["007", "7"]


def test_an_id_that_is_not_of_its_type_is_a_problem() -> None:
    (problem,) = entity_encoder("integer").encode(block(id=["A1"], x=["1"])).problems
    assert problem.column == "id"


def test_columns_are_found_by_name_by_position_or_by_order() -> None:
    named = Schema.parse({"fields": [field("boolean"), {"name": "y", "type": "boolean"}]})
    placed = Schema.parse({"fields": [field("boolean", column=2)]})
    assert TableLayout(("y", " x")).bind(named) == {"x": 1, "y": 0}
    assert TableLayout(("", "")).bind(placed) == {"x": 1}
    assert TableLayout(("column 1", "column 2"), has_header=False).bind(named) == {"x": 0, "y": 1}
    assert TableLayout(("a", "x", "z")).undeclared(placed) == ("a", "z")


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (TableLayout(("a", "b")), "no column of this name"),
        (TableLayout(("x", "x")), "2 columns of this name"),
        (TableLayout(("column 1", "column 2"), has_header=False), "2 columns, the dictionary 1"),
    ],
)
def test_a_file_without_the_declared_columns_is_refused(layout: TableLayout, message: str) -> None:
    with pytest.raises(TableError, match=message):
        layout.bind(Schema.parse({"fields": [field("boolean")]}))


def test_a_header_read_as_one_column_points_to_the_delimiter() -> None:
    declared = Schema.parse({"fields": [field("boolean")]})
    for names, hint in ((("x;y",), "`delimiter`"), (("a", "b"), "`column`")):
        with pytest.raises(TableError) as refused:
            TableLayout(names).bind(declared)
        (problem,) = refused.value.problems
        assert hint in problem.remedy


def test_a_position_beyond_the_file_is_refused() -> None:
    with pytest.raises(TableError, match="not 3"):
        TableLayout(("x",)).bind(Schema.parse({"fields": [field("boolean", column=3)]}))


def test_typed_columns_are_read_by_value_whatever_the_spelling_of_text() -> None:
    number = field("number", constraints={"minimum": 0, "maximum": 9}, step=0.5, decimalChar=",")
    typed: list[tuple[dict[str, Any], pa.Array, list[Any]]] = [
        (number, pa.array([2.5, float("nan"), None]), [2.5, None, None]),
        (whole(0, 9), pa.array([7.0, 1.0]), [7, 1]),
        (whole(0, 9), pa.array([7, None], pa.uint8()), [7, None]),
        (field("boolean", trueValues=["S"]), pa.array([True, None]), [True, None]),
        (
            field("date", format="%d/%m/%Y",
                  constraints={"minimum": "2020-01-01", "maximum": "2020-12-31"}),
            pa.array([dt.date(2020, 5, 6)]),
            [dt.date(2020, 5, 6)],
        ),
        (
            field("datetime", constraints={"minimum": "2020-01-01", "maximum": "2020-12-31"}),
            pa.array([1_590_000_000_500], pa.timestamp("ms", "Europe/Paris")),
            [dt.datetime.fromisoformat("2020-05-20T20:40:00")],  # as a clock in Paris showed it
        ),
        (field("time"), pa.array([dt.time(3, 4)]), [dt.time(3, 4)]),
    ]  # fmt: skip
    for wire, array, values in typed:
        coder = encoder(wire)
        encoded = coder.encode(block(x=array))
        assert not encoded.problems, encoded.problems
        assert coder.schema.column("x").decode(encoded.codes["x"]).to_pylist() == values


def test_a_typed_column_without_any_value_is_null_throughout() -> None:
    coder = encoder(whole(0, 9))
    encoded = coder.encode(block(x=pa.nulls(2)))
    assert coder.schema.column("x").decode(encoded.codes["x"]).to_pylist() == [None, None]


def test_nested_columns_are_refused_by_name() -> None:
    with pytest.raises(TableError) as refusal:
        encoder(whole(0, 9)).encode(block(x=pa.array([[1], [2]])))
    assert refusal.value.problems[0].column == "x"


def test_dictionary_encoded_and_chunked_columns_are_read_alike() -> None:
    chunked = pa.chunked_array([pa.array(["1", "2"]), pa.array(["2", None])])
    table = pa.table({"x": chunked})
    coder = encoder(whole(0, 9))
    plain = coder.encode(table).codes["x"]
    coded = coder.encode(pa.table({"x": chunked.dictionary_encode()})).codes["x"]
    assert plain.tolist() == coded.tolist() == [1, 2, 2, 10]


def test_rows_that_break_a_constraint_are_kept_and_counted() -> None:
    coder = Encoder(
        Schema.parse(
            {
                "fields": [whole(0, 9), {**whole(0, 9), "name": "y"}],
                "constraints": [{"kind": "order", "columns": ["x", "y"]}],
            }
        ),
        ROW,
    )
    encoded = coder.encode(block(x=["1", "5", "5"], y=["2", "4", "5"]))
    assert encoded.rows == 3
    assert coder.totals.violations == [1]


@pytest.mark.parametrize(
    ("minimum", "maximum", "text", "means"),
    [
        ("1920-01-01", "2010-12-31", "03/04/25", dt.date(1925, 4, 3)),
        ("1920-01-01", "2010-12-31", "03/04/05", dt.date(2005, 4, 3)),
        ("1990-01-01", "2080-12-31", "03/04/75", dt.date(2075, 4, 3)),
        ("1890-01-01", "1960-12-31", "03/04/95", dt.date(1895, 4, 3)),
    ],
)
def test_a_year_of_two_digits_lies_in_the_declared_range(
    minimum: str, maximum: str, text: str, means: dt.date
) -> None:
    limits = {"minimum": minimum, "maximum": maximum}
    assert read(field("date", format="%d/%m/%y", constraints=limits), text) == [means]


def test_a_year_of_two_digits_that_two_centuries_have_cannot_be_read() -> None:
    limits = {"minimum": "1905-01-01", "maximum": "2024-12-31"}
    wire = field("date", format="%d/%m/%y", constraints=limits)
    assert read(wire, "03/04/30", "03/04/99") == [dt.date(1930, 4, 3), dt.date(1999, 4, 3)]
    assert len(messages(wire, "03/04/10")) == 1
