"""Rows keep what the dictionary declares between columns before anyone reads them."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from plugin import write_plugin
from release_world import BY_ROW, World, wanted
from reported import LARGE, released, reported, uploaded

from app.releases.catalogue import Catalogue
from app.sandbox.child import ChildHost

RULES = [
    {"kind": "forbidden", "when": {"colour": ["red"], "size": [0, 1, None]}},
    {"kind": "implied", "when": {"size": {"minimum": 3}}, "then": {"colour": ["=green"]}},
]
RULED = {**BY_ROW, "constraints": RULES}
TABLE = "colour,size,day\n" + "".join(
    f"{colour},{size},2024-01-0{1 + size}\n"
    for colour in ("red", "=green", '"b,lue"')
    for size in range(5)
)

ZEROS = """
class Synthesizer(Base):
    name = "zeros"

    def fit(self, session, params, public, seed, progress):
        return Model(session.schema, [])
"""


def rows_of(service: World, sample: str) -> list[dict[str, str]]:
    text = service.custodian.get(f"/v1/samples/{sample}/data").text
    return list(csv.DictReader(text.splitlines()))


def breaking(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [
        row
        for row in rows
        if (row["colour"] == "red" and row["size"] in ("0", "1", "", "NA"))
        or (row["size"] in ("3", "4") and row["colour"] in ("red", "b,lue"))
    ]


def first_sample(service: World, release: str) -> str:
    return str(service.custodian.get(release).json()["samples"][0]["id"])


def test_a_client_sees_rows_that_keep_the_rules_and_what_that_moved(
    service: World, host: ChildHost
) -> None:
    dataset = uploaded(service, host, TABLE, schema=RULED)
    release = released(service, host, dataset, synthesizer="independent", params={}, rows=300)
    first = first_sample(service, release)
    rows = rows_of(service, first)
    assert len(rows) == 300
    assert breaking(rows) == []
    asked = service.custodian.post(f"{release}/samples", {"rows": 70, "seed": 1}).json()
    assert asked["repairs"] is None
    service.work(host)
    assert breaking(rows_of(service, asked["id"])) == []

    repairs = service.custodian.get(f"/v1/samples/{first}").json()["repairs"]
    assert [each["number"] for each in repairs["constraints"]] == [0, 1]
    assert all(each["rows"] > 0 for each in repairs["constraints"])
    assert 0 < repairs["rows"] <= sum(each["rows"] for each in repairs["constraints"])
    assert {each["name"] for each in repairs["columns"]} == {"colour", "size"}
    assert 0 < max(each["distance"] for each in repairs["columns"]) < 1

    found = reported(service, host, release)
    assert found["public"]["repairs"] == repairs
    assert [each["synthetic"] for each in found["exact"]["constraints"]] == [0, 0]
    service.custodian.request("DELETE", f"/v1/samples/{first}")
    assert service.custodian.get(f"{release}/report").json()["public"]["repairs"] is None


def test_rows_of_a_third_party_are_repaired_too(
    service: World,
    host: ChildHost,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path_factory.mktemp("plugins")
    write_plugin(folder, "zeros", ZEROS)
    monkeypatch.syspath_prepend(str(folder))
    dataset = uploaded(service, host, TABLE, schema=RULED)
    service.http.app.state.catalogue = Catalogue(service.settings)
    release = released(service, host, dataset, synthesizer="zeros", params={}, rows=20)
    rows = rows_of(service, first_sample(service, release))
    assert len(rows) == 20
    assert breaking(rows) == []


def declared(*rules: dict[str, Any]) -> dict[str, Any]:
    limits = {"minimum": 0, "maximum": 10_000, "required": True}
    fields = [
        {"name": name, "type": "number", "step": 0.01, "constraints": limits} for name in "ab"
    ]
    return {"fields": fields, "constraints": list(rules)}


def test_rules_that_no_row_can_keep_are_refused_with_the_dictionary(service: World) -> None:
    rules = [
        {"kind": "order", "columns": ["a", "b"]},
        {"kind": "at_least", "column": "a", "sum_of": ["b"], "offset": 10_001},
    ]
    spec = {
        "name": "t",
        "visibility": "private",
        "schema": declared(*rules),
        "unit": {"kind": "row"},
        "budget": {"epsilon": "1", "delta": 0},
    }
    refused = service.custodian.post("/v1/datasets", spec)
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["pointer"] == "/schema/constraints/1"
    assert error["remedy"]


def test_a_contradiction_found_only_in_the_run_fails_it_and_tells_the_custodian(
    service: World, host: ChildHost
) -> None:
    rules = [
        {"kind": "order", "columns": ["a", "b"], "strict": True},
        {"kind": "order", "columns": ["b", "a"]},
    ]
    dataset = uploaded(service, host, "a,b\n1,2\n", schema=declared(*rules))
    body = wanted(guarantee=LARGE, synthesizer="independent", params={}, rows=10)
    asked = service.custodian.post(f"/v1/datasets/{dataset}/releases", body)
    service.work(host)
    found = service.custodian.get(asked.headers["Location"]).json()
    assert found["state"] == "failed"
    assert "no row was found that meets all of /constraints/0" in found["private_detail"]
