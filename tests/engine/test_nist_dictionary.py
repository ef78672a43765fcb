"""The data dictionary of NIST's excerpts becomes ours, and says where it cannot be read."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.importers import import_nist_dictionary
from app.engine.schema import Schema, SchemaError

DICTIONARY: dict[str, Any] = {
    "AREA": {"description": "Area", "values": {"01-7": "Harbour", "02-1": "Hill"}},
    "AGE": {"description": "Age", "values": {"min": 0, "max": 99}},
    "WORK": {
        "description": "Work",
        "details": "As asked in the form.",
        "link": "https://example.org/form",
        "values": {"N": "N/A (under 15 years)", "2": "Part time", "1": "Full time"},
    },
    "CHILDREN": {"values": {"N": "N/A", "0": "None", "min": 1, "max": 9}},
    "RATIO": {"values": {"min": 0, "max": 500, "501": "more than 5 times", "N": "n/a"}},
    "DENSITY": {"description": "Density", "values": {"min": 16.3, "max": 52864.7}},
    "TRADE": {"description": "Trade", "details": "271 codes"},
}


def field(name: str, document: Any = DICTIONARY) -> dict[str, Any]:
    fields = {field["name"]: field for field in import_nist_dictionary(document)["fields"]}
    found: dict[str, Any] = fields[name]
    return found


def values(**given: Any) -> dict[str, Any]:
    return {"X": {"values": given}}


def test_the_whole_dictionary_becomes_a_schema_without_the_columns_it_does_not_list() -> None:
    schema = Schema.parse(import_nist_dictionary(DICTIONARY))
    assert [(column.name, column.type, column.nullable) for column in schema.columns] == [
        ("AREA", "string", False),
        ("AGE", "integer", False),
        ("WORK", "integer", True),
        ("CHILDREN", "integer", True),
        ("RATIO", "integer", True),
        ("DENSITY", "number", False),
    ]


def test_codes_are_numbers_only_where_all_are_written_as_whole_numbers() -> None:
    assert field("AREA")["constraints"]["enum"] == ["01-7", "02-1"]
    assert field("WORK")["constraints"]["enum"] == [1, 2]
    assert field("X", values(**{"01": "a", "2": "b"}))["constraints"]["enum"] == ["01", "2"]


def test_a_code_that_means_not_applicable_is_a_spelling_of_null() -> None:
    work = field("WORK")
    assert (work["missingValues"], work["constraints"]["required"]) == (["", "N"], False)
    assert "missingValues" not in field("AREA")
    blank = field("X", values(**{"": "no answer", "1": "yes"}))
    assert (blank["missingValues"], blank["constraints"]) == (
        [""],
        {"required": False, "enum": [1]},
    )
    letters = field("X", values(N="North", S="South"))
    assert letters["constraints"] == {"required": True, "enum": ["N", "S"]}


def test_a_code_beside_a_range_is_a_point_mass() -> None:
    ratio, children = field("RATIO"), field("CHILDREN")
    assert (ratio["special"], ratio["constraints"]["maximum"]) == ([501, 0], 500)
    assert (children["special"], children["constraints"]["minimum"]) == ([0], 1)
    assert field("X", values(min=1, max=2, **{"2.5": "half"}))["type"] == "number"


def test_zero_is_a_point_mass_where_bins_are_private() -> None:
    assert field("X", values(min=-9000, max=1341000))["special"] == [0]
    assert field("X", values(min=0.5, max=99.5)).get("special") is None
    assert field("X", values(min=-1.5, max=99.5))["special"] == [0]
    assert field("X", values(min=0, max=500, **{"501": "above"}))["special"] == [501, 0]
    assert "special" not in field("X", values(min=0, max=99))


def test_bins_are_bought_where_a_range_has_many_values() -> None:
    assert "bins" not in field("AGE")
    assert "bins" not in field("X", values(min=1, max=100))
    for name, document in (("X", values(min=0, max=100)), ("DENSITY", DICTIONARY)):
        assert field(name, document)["bins"] == "quantiles"


def test_what_it_says_of_a_column_is_kept_for_readers() -> None:
    work = field("WORK")
    assert work["title"] == "Work"
    assert work["description"] == (
        "As asked in the form. https://example.org/form. "
        "N: N/A (under 15 years); 2: Part time; 1: Full time"
    )


@pytest.mark.parametrize(
    ("document", "pointer", "remedy"),
    [
        (None, "", "whole data_dictionary.json"),
        ([], "", "whole data_dictionary.json"),
        ({}, "", "whole data_dictionary.json"),
        ({"X": "age"}, "/X", '"description"'),
        ({"a/b": 1}, "/a~1b", '"description"'),
        ({"X": {"value": {}}}, "/X/value", "values"),
        ({"X": {"description": 7}}, "/X/description", "quotes"),
        ({"X": {"values": []}}, "/X/values", '"min"'),
        ({"X": {"values": {}}}, "/X/values", '"min"'),
        (values(**{"1": 7}), "/X/values/1", '{"1": "what it means"}'),
        (values(N="N/A"), "/X/values", "list the others"),
        (values(min=0), "/X/values/max", '"max": 0'),
        (values(max=9), "/X/values/min", '"min": 0'),
        (values(min="0", max=9), "/X/values/min", '"min": 0'),
        (values(min=True, max=9), "/X/values/min", '"min": 0'),
        (values(min=0, max=float("inf")), "/X/values/max", '"max": 0'),
        (values(min=9, max=0), "/X/values/max", "swap"),
        (values(min=0, max=9, T="top coded"), "/X/values/T", '"N/A"'),
    ],
)
def test_what_cannot_be_read_is_named_with_its_remedy(
    document: Any, pointer: str, remedy: str
) -> None:
    with pytest.raises(SchemaError) as refusal:
        import_nist_dictionary(document)
    (problem,) = refusal.value.errors
    assert problem.pointer == pointer
    assert remedy in problem.remedy


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(SchemaError) as refusal:
        import_nist_dictionary({"A": 1, "B": {"values": {"min": 1}}, "C": {"values": {"1": "x"}}})
    assert [error.pointer for error in refusal.value.errors] == ["/A", "/B/values/max"]


NUMBERS = st.integers() | st.floats() | st.text(max_size=2)
CODES = st.sampled_from(["min", "max", "N", "0", "1", "-1", "01", "2.5", "x"])
MEANINGS = st.sampled_from(["N/A", "not applicable", "yes", ""]) | NUMBERS | st.none()
COLUMNS = st.fixed_dictionaries(
    {},
    optional={
        "description": st.text(max_size=3) | st.none(),
        "values": st.dictionaries(CODES, MEANINGS, max_size=5) | st.none() | NUMBERS,
    },
)


@given(st.dictionaries(st.sampled_from("abc"), COLUMNS | NUMBERS, max_size=3))
def test_every_document_is_imported_or_refused(document: Any) -> None:
    names = list(document)
    with contextlib.suppress(SchemaError):
        assert [each["name"] for each in import_nist_dictionary(document)["fields"]] == names
