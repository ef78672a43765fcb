"""Dictionaries of others become ours, and proposals stay unconfirmed until someone confirms."""

from __future__ import annotations

import io
from typing import Any

import pytest

from app.engine.files import open_table
from app.engine.importers import import_domain, import_nist, import_nist_unit
from app.engine.proposals import propose
from app.engine.schema import PrivacyUnit, Schema, SchemaError

SPRINT_3 = {
    "runs": [{"epsilon": 1.0, "max_records_per_individual": 200}],
    "schema": {
        "taxi_id": {"dtype": "int64", "kind": "id", "min": 1, "max": 9},
        "area": {"dtype": "int8", "kind": "categorical", "values": [-1, 1, 2]},
        "name": {"dtype": "str", "kind": "categorical", "values": ["a", "b"]},
        "fare": {"dtype": "int16", "kind": "numeric", "min": -1, "max": 100},
        "miles": {"dtype": "float32", "kind": "numeric", "min": 0, "max": 1.5},
    },
}
SPRINT_1 = {
    "runs": [{"max_records_per_individual": 20}],
    "schema": {
        "periods": [{"year": 2019, "month": 1}, {"year": 2019, "month": 2}],
        "neighborhood": [{"name": "Abell", "code": 0}, {"name": "Allendale", "code": 1}],
        "incident_type": [{"name": "4E", "code": 0}],
    },
}


def test_a_private_pgm_domain_becomes_required_codes_from_zero() -> None:
    schema = Schema.parse(import_domain({"age": 85, "sex": 2}))
    assert [(column.name, column.codes) for column in schema.columns] == [("age", 85), ("sex", 2)]


def test_the_parameters_of_sprint_3_become_columns_and_a_unit() -> None:
    schema = Schema.parse(import_nist(SPRINT_3))
    assert [(column.name, column.type) for column in schema.columns] == [
        ("area", "integer"),
        ("name", "string"),
        ("fare", "integer"),
        ("miles", "number"),
    ]
    unit = PrivacyUnit.parse(import_nist_unit(SPRINT_3))
    assert unit == PrivacyUnit("entity", "taxi_id", 200)
    schema.check_unit(unit)


@pytest.mark.parametrize(
    "runs",
    [
        None,
        True,
        3,
        "ab",
        {"a": 1},
        [],
        [7],
        [{"max_records_per_individual": "200"}],
        [{"max_records_per_individual": True}],
        [{"max_records_per_individual": 0}],
    ],
)
def test_runs_that_bound_nothing_leave_the_unit_a_row(runs: Any) -> None:
    assert import_nist_unit({**SPRINT_3, "runs": runs}) == {"kind": "row"}


def test_the_parameters_of_sprint_1_become_codes_and_a_resident() -> None:
    schema = Schema.parse(import_nist(SPRINT_1))
    assert [column.codes for column in schema.columns] == [1, 2, 2, 1]
    schema.check_unit(PrivacyUnit.parse(import_nist_unit(SPRINT_1)))


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        (None, "/schema"),
        ({"schema": {}}, "/schema"),
        ({"schema": {"x": 1}}, "/schema/x"),
        ({"schema": {"x": {"dtype": "int8", "kind": "text"}}}, "/schema/x/kind"),
        ({"schema": {"periods": [1]}}, "/schema/periods"),
        ({"schema": {**SPRINT_1["schema"], "neighborhood": [1]}}, "/schema/neighborhood"),
    ],
)
def test_other_documents_are_refused_where_they_differ(document: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        import_nist(document)
    assert refusal.value.errors[0].pointer == pointer


@pytest.mark.parametrize("domain", [None, {}, [], {"age": 0}, {"age": "85"}, {"age": True}])
def test_what_is_no_domain_is_refused(domain: Any) -> None:
    with pytest.raises(SchemaError):
        import_domain(domain)


def proposed(*lines: str) -> dict[str, Any]:
    return propose(open_table(io.BytesIO("\n".join([*lines, ""]).encode())))


def test_types_ranges_and_categories_are_read_off_a_file() -> None:
    wire = proposed(
        "city;visits;price;on;seen;when;ok;empty",
        "Rome;103;2.5;01/02/2020;2020-01-01T10:00:00;10:30;true;",
        "Oslo;NA;7.25;28/03/2020;2020-01-03T10:00:00;23:59;false;",
        *(f"Rome;{n};3;01/02/2020;2020-01-03T10:00:00;23:59;true;" for n in range(30, 60)),
    )
    fields = {field["name"]: field for field in wire["fields"]}
    assert all(field["proposed"] is True for field in wire["fields"])
    assert fields["city"]["constraints"] == {"enum": ["Oslo", "Rome"]}
    assert fields["visits"]["constraints"] == {"minimum": 30, "maximum": 110}
    assert fields["price"]["constraints"] == {"minimum": 2.5, "maximum": 7.3}
    assert (fields["on"]["type"], fields["on"]["format"]) == ("date", "%d/%m/%Y")
    assert fields["on"]["constraints"] == {"minimum": "2020-01-01", "maximum": "2020-12-31"}
    assert fields["seen"]["type"] == "datetime"
    assert (fields["when"]["type"], fields["ok"]["type"]) == ("time", "boolean")
    assert fields["empty"]["type"] == "string"
    assert wire["missingValues"] == ["", "NA"]


def test_columns_of_many_texts_are_proposed_as_free_text() -> None:
    wire = proposed("name,on", *(f"person {n}x,true" for n in range(300)))
    assert wire["fields"][0] == {"name": "name", "type": "string", "proposed": True}


def test_blank_and_double_names_are_proposed_by_position() -> None:
    wire = proposed("a,,a", "1,2,3")
    assert [(field["name"], field["column"]) for field in wire["fields"]] == [
        ("a (1)", 1),
        ("column (2)", 2),
        ("a (3)", 3),
    ]


def test_a_proposal_is_refused_until_every_field_is_confirmed() -> None:
    wire = proposed("n,city", *(f"{n * 1000},Rome" for n in range(5000)))
    with pytest.raises(SchemaError) as refusal:
        Schema.parse(wire)
    assert [error.pointer for error in refusal.value.errors] == [
        "/fields/0/proposed",
        "/fields/1/proposed",
    ]
    confirmed = [{**field, "proposed": False} for field in wire["fields"]]
    assert Schema.parse({**wire, "fields": confirmed}).column("n").grouping.cells == 21
