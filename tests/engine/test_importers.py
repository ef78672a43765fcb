"""Dictionaries of others become ours, and proposals stay unconfirmed until someone confirms."""

from __future__ import annotations

from typing import Any

import pytest

from app.engine.importers import import_domain, import_nist, import_nist_unit
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
