"""A request that names no synthesizer."""

from __future__ import annotations

from typing import Any

import pytest
from release_world import World, wanted

from app.datasets.models import DatasetRow
from app.engine.catalog.auto import AUTO, AutoParams, Request, choices, form_for
from app.engine.method import PublicFacts
from app.engine.privacy.loss import PrivacyLoss
from app.engine.schema import PrivacyUnit, Schema


def booleans(columns: int) -> Schema:
    return Schema.parse({"fields": [{"name": f"c{i}", "type": "boolean"} for i in range(columns)]})


def asked(
    schema: Schema,
    unit: PrivacyUnit = PrivacyUnit("row"),
    public: PublicFacts | None = None,
    *,
    params: AutoParams | None = None,
    loss: PrivacyLoss | None = PrivacyLoss.zcdp(10**10),
) -> Request:
    return Request(schema, unit, params or AutoParams(), loss, public)


def unnamed(**changes: Any) -> dict[str, Any]:
    body = wanted(params={}, **changes)
    del body["synthesizer"]
    return body


def preflight(service: World, dataset: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = service.custodian.post(f"/v1/datasets/{dataset}/releases/preflight", body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_preflight_says_what_would_run_and_why(service: World) -> None:
    found = preflight(service, service.add_dataset(), unnamed())
    assert found["fits"] is True
    assert found["synthesizer"] == "swift"
    assert found["why"]
    assert found["charge"] == {"epsilon": "1", "delta": "0"}


@pytest.mark.parametrize("word", [AUTO, None])
def test_auto_by_name_is_the_same_as_none_named(service: World, word: str | None) -> None:
    dataset = service.add_dataset()
    named = preflight(service, dataset, {**unnamed(), "synthesizer": word})
    assert named == preflight(service, dataset, unnamed())


def test_a_named_one_needs_no_reason(service: World) -> None:
    found = preflight(service, service.add_dataset(), wanted())
    assert (found["synthesizer"], found["why"]) == ("histogram", None)


def test_the_release_is_of_what_the_preflight_said_at_the_same_charge(service: World) -> None:
    dataset = service.add_dataset()
    said = preflight(service, dataset, unnamed())
    accepted = service.custodian.post(f"/v1/datasets/{dataset}/releases", unnamed())
    assert accepted.status_code == 202, accepted.text
    assert accepted.json()["synthesizer"] == said["synthesizer"]
    assert accepted.json()["charge"] == said["charge"]


def test_where_the_best_cannot_run_the_next_does_and_the_reason_is_told(service: World) -> None:
    """More columns than pairs are chosen of, so that only columns alone are left."""
    fields = [{"name": f"c{i}", "type": "boolean"} for i in range(201)]
    dataset = service.add_dataset(schema={"fields": fields})
    found = preflight(service, dataset, unnamed())
    assert found["problems"] == []
    assert found["synthesizer"] == "independent"
    assert "`swift` cannot run here" in found["why"]
    assert "`mst` cannot run here" in found["why"]


def test_what_stands_in_the_way_of_all_is_told_of_the_first(service: World) -> None:
    dataset = service.add_dataset()
    found = preflight(service, dataset, {**unnamed(), "params": {"columns": ["nothing"]}})
    assert found["fits"] is False
    assert found["problems"][0]["pointer"].startswith("/params/columns")


def test_a_target_that_there_is_not_is_refused_rather_than_left_out(service: World) -> None:
    dataset = service.add_dataset()
    body = {**unnamed(), "params": {"target": "nothing"}}
    answer = service.custodian.post(f"/v1/datasets/{dataset}/releases", body)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/params/target"]


def test_a_public_dataset_of_other_columns_is_refused_rather_than_left_out(service: World) -> None:
    other = {"fields": [{"name": "other", "type": "boolean"}]}
    public = service.add_dataset(schema=other)
    with service.database.write() as session:
        session.get_one(DatasetRow, public).visibility = "public"
    body = {**unnamed(), "public_dataset": public}
    answer = service.custodian.post(f"/v1/datasets/{service.add_dataset()}/releases", body)
    assert answer.status_code == 422
    assert {error["pointer"] for error in answer.json()["errors"]} == {"/public_dataset"}


def test_a_public_dataset_that_no_memory_holds_is_refused_rather_than_left_out(
    service: World,
) -> None:
    """Without it a method could run that learns how columns depend on each other."""
    schema = {"fields": [{"name": f"c{i}", "type": "boolean"} for i in range(3)]}
    dataset, public = service.add_dataset(schema=schema), service.add_dataset(schema=schema)
    with service.database.write() as session:
        row = session.get_one(DatasetRow, public)
        row.visibility, row.rows = "public", 40_000_000
    found = preflight(service, dataset, {**unnamed(), "public_dataset": public})
    assert found["fits"] is False
    assert found["problems"][-1]["pointer"] == "/public_dataset"
    assert "`swift` could" in found["problems"][-1]["message"]
    assert preflight(service, dataset, unnamed())["synthesizer"] == "swift"


def test_a_methods_own_params_need_its_name(service: World) -> None:
    dataset = service.add_dataset()
    body = {**unnamed(), "params": {"shares": {}}}
    answer = service.custodian.post(f"/v1/datasets/{dataset}/releases", body)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/params/shares"
    assert error["remedy"].startswith("Name the synthesizer")
    assert preflight(service, dataset, body)["problems"][0]["pointer"] == "/params/shares"


def test_every_choice_takes_the_form_made_for_it() -> None:
    params = AutoParams(columns=("a",), target="a")
    for choice in choices(asked(booleans(2), params=params)):
        form = form_for(choice.synthesizer, params)
        assert form["columns"] == ["a"]
        assert ("target" in form) == (choice.synthesizer == "swift")


def test_beside_a_public_dataset_it_is_told_what_that_is_used_for() -> None:
    public = PublicFacts(booleans(2), 10)
    units = PrivacyUnit("entity", "id", 3), PrivacyUnit("row")
    kept, started = (list(choices(asked(booleans(2), unit, public))) for unit in units)
    assert "keeps the entities of the public dataset" in kept[0].why
    assert "starts from the public dataset" in started[0].why
    names = ["swift", "public_reweighted", "mst", "independent"]
    assert [each.synthesizer for each in kept] == names
    assert [each.synthesizer for each in started] == [names[0], *names[2:]]


def test_the_reason_names_columns_cells_unit_and_noise() -> None:
    """A quarter of rho 0.18 for 9 columns: sigma is 10 rows, 30 of 3 rows a unit."""
    by_rows, by_entities = (
        next(choices(asked(booleans(9), unit, loss=PrivacyLoss.zcdp(18 * 10**10)))).why
        for unit in (PrivacyUnit("row"), PrivacyUnit("entity", "id", 3))
    )
    assert "(9 columns of 27 cells, unit: row, noise of about 10 rows " in by_rows
    assert "unit: entity of at most 3 rows, noise of about 30 rows " in by_entities


def test_the_reason_tells_of_a_second_look_at_many_columns() -> None:
    whys = [next(choices(asked(booleans(columns)))).why for columns in (24, 25)]
    assert ["twice" in why for why in whys] == [False, True]


def test_without_a_guarantee_or_columns_there_is_still_an_order() -> None:
    nothing = asked(booleans(2), params=AutoParams(columns=("nothing",)), loss=None)
    assert [each.synthesizer for each in choices(nothing)] == ["swift", "mst", "independent"]
    assert "noise" not in next(choices(nothing)).why
