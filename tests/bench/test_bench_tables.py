"""The bench's codings, on small files of the real ones' form."""

import json

import numpy as np
import pandas as pd
import pytest

from bench.synthesizers import tables


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "DATA", tmp_path)
    return tmp_path


def write_adult(data, rows=10):
    (data / "adult").mkdir()
    (data / "adult/adult-domain.json").write_text(json.dumps({"age": 85, "race": 12}))
    lines = ["age,race", *(f"{row},{row % 12}" for row in range(rows))]
    (data / "adult/adult.csv").write_text("\n".join(lines))


def write_census(data):
    (data / "census_ma").mkdir()
    lines = ["AGEP,INDP,EDU,PINCP,POVPIP,PWGTP,WGTP"]
    lines += [f"{row % 95},{row},{row % 12 + 1},{row}.0,{row % 3},7,{row}" for row in range(200)]
    lines += ["3,N,N,N,N,7,5"]
    (data / "census_ma/ma2019.csv").write_text("\n".join(lines))


def test_a_fifth_of_adult_is_held_out_and_no_row_is_in_both_parts(data):
    write_adult(data)
    table = tables.adult()
    used, held_out = set(table.used["age"]), set(table.held_out["age"])
    assert (len(used), len(held_out)) == (8, 2)
    assert used | held_out == set(range(10))


def test_a_declared_code_is_the_code_that_is_stored(data):
    write_adult(data)
    table = tables.adult()
    assert table.cells == {"age": 85, "race": 12}
    frame = table.decoded({"age": np.array([84, 2]), "race": np.array([10, 9])})
    assert frame.to_dict("list") == {"age": [84, 2], "race": ["10", "9"]}
    assert {name: list(codes) for name, codes in table.coded(frame).items()} == {
        "age": [84, 2],
        "race": [10, 9],
    }


def test_a_value_that_no_dictionary_declares_is_an_error(data):
    write_adult(data)
    table = tables.adult()
    frame = table.decoded({"age": np.array([1]), "race": np.array([1])}).replace("1", "12")
    with pytest.raises(ValueError, match="`race` holds undeclared values"):
        table.coded(frame)


def test_the_census_drops_industries_and_keeps_not_applicable_as_a_value(data):
    write_census(data)
    table = tables.census_ma()
    assert list(table.cells) == ["AGEP", "EDU", "PINCP", "POVPIP", "PWGTP", "WGTP"]
    assert table.cells["AGEP"] == 95
    assert table.decoded(table.used).iloc[-1].to_list() == [3, "N", "N", "N", "0", "0"]


def test_the_census_cuts_amounts_into_at_most_twenty_bins_of_as_many_rows(data):
    write_census(data)
    used, cells = tables.census_ma().used, tables.census_ma().cells
    assert cells["PINCP"] == 21
    assert list(np.bincount(used["PINCP"])) == [10] * 20 + [1]
    assert cells["POVPIP"] <= 4
    assert cells["PWGTP"] == 1


def test_categories_stand_in_the_order_of_their_numbers(data):
    write_census(data)
    (edu,) = (field for field in tables.census_ma().wire["fields"] if field["name"] == "EDU")
    assert edu["constraints"]["enum"] == [*(str(value) for value in range(1, 13)), "N"]


def test_the_widened_table_has_each_column_again_one_row_further_down(data, monkeypatch):
    (data / "acs_wide").mkdir()
    (data / "acs_wide/acs_il_oh-domain.json").write_text(json.dumps({"AGE": 40, "SEX": 2}))
    rows = pd.DataFrame({"AGE": [30, 31, 32], "SEX": [0, 1, 0]})
    rows.to_csv(data / "acs_wide/acs_il_oh.csv.gz", index=False)
    monkeypatch.setattr(tables, "WIDE_ORDERED", ("AGE",))
    monkeypatch.setattr(tables, "WIDENED_TO", 5)
    table = tables.acs_100()
    assert {name: list(codes) for name, codes in table.used.items()} == {
        "AGE": [30, 31, 32],
        "SEX": [0, 1, 0],
        "AGE_1": [32, 30, 31],
        "SEX_1": [0, 0, 1],
        "AGE_2": [31, 32, 30],
    }
    assert table.cells == {"AGE": 40, "SEX": 2, "AGE_1": 40, "SEX_1": 2, "AGE_2": 40}
    assert table.numeric == ("AGE", "AGE_1", "AGE_2")
    assert [field["type"] for field in table.wire["fields"]] == [
        "integer",
        "string",
        "integer",
        "string",
        "integer",
    ]
