"""What is refused before anything is charged, and where the fault is said to lie."""

from __future__ import annotations

from typing import Any

import pytest
from httpx import Response
from release_world import World, wanted

from app.datasets.models import DatasetRow


def pointers(answer: Any) -> list[str]:
    return [error["pointer"] for error in answer.json()["errors"]]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"synthesizer": "no_such"}, "/synthesizer"),
        ({"params": {"columns": ["colour"], "colums": 1}}, "/params/colums"),
        ({"params": {"columns": ["nothing"]}}, "/params/columns/0"),
        ({"params": {"threshold": 1e400}}, "/params/threshold"),
        ({"params": {"threshold": "high"}}, "/params/threshold"),
        ({"params": {"contribution": {"rule": "distinct", "limit": 0}}}, "/params/contribution"),
        ({"guarantee": {}}, "/guarantee"),
        ({"guarantee": {"epsilon": "1e-9"}}, "/guarantee/epsilon"),
        ({"guarantee": {"epsilon": 1, "rho": 1}}, "/guarantee"),
        ({"guarantee": {"rho": 1}}, "/guarantee"),
        ({"rows": 0}, "/rows"),
        ({"rows": 10**9}, "/rows"),
        ({"rows": "many"}, "/rows"),
        ({"public_dataset": "ds_nowhere"}, "/public_dataset"),
        ({"epsilon": 1}, "/epsilon"),
    ],
)
def test_a_fault_is_named_with_a_remedy_and_costs_nothing(
    service: World, changes: dict[str, Any], pointer: str
) -> None:
    dataset = service.add_dataset()
    body = wanted(**changes)
    text = str(body).replace("'", '"').replace("None", "null").replace("inf", "1e400")
    answer = service.custodian.request(
        "POST",
        f"/v1/datasets/{dataset}/releases",
        content=text,
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 422, answer.text
    assert any(found.startswith(pointer) for found in pointers(answer)), answer.text
    assert all(error["remedy"] for error in answer.json()["errors"])
    assert service.custodian.get("/v1/releases").json()["items"] == []


@pytest.mark.parametrize("tail", ["releases", "releases/preflight"])
def test_endless_nesting_is_refused(service: World, tail: str) -> None:
    nested = '{"columns":' + "[" * 400 + "]" * 400 + "}"
    answer = ask_with_params(service, nested, tail)
    assert answer.status_code == (422 if tail == "releases" else 200), answer.text
    found = answer.json()["errors" if tail == "releases" else "problems"]
    assert found[0]["pointer"].startswith("/params")


@pytest.mark.parametrize("tail", ["releases", "releases/preflight"])
@pytest.mark.parametrize("params", ['{"columns":["\\ud800"]}', '{"\\ud800":1}'])
def test_half_a_character_is_malformed(service: World, params: str, tail: str) -> None:
    answer = ask_with_params(service, params, tail)
    assert answer.status_code == 400, answer.text
    assert answer.json()["type"] == "/problems/malformed-request"


def test_the_remedy_for_an_unknown_param_lists_those_that_there_are(service: World) -> None:
    answer = ask_with_params(service, '{"colums":["colour"]}', "releases")
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/params/colums"
    assert "`columns`, " in error["remedy"]


def ask_with_params(service: World, params: str, tail: str) -> Response:
    text = f'{{"synthesizer":"histogram","params":{params},"guarantee":{{"epsilon":1}}}}'
    answer: Response = service.custodian.request(
        "POST",
        f"/v1/datasets/{service.add_dataset()}/{tail}",
        content=text,
        headers={"Content-Type": "application/json"},
    )
    return answer


def test_null_is_the_same_as_omitted_everywhere(service: World) -> None:
    dataset = service.add_dataset()
    body = wanted(
        rows=None,
        public_dataset=None,
        params={"columns": ["colour"], "threshold": None, "contribution": None},
        guarantee={"epsilon": 1, "delta": None, "rho": None},
    )
    answer = service.custodian.post(f"/v1/datasets/{dataset}/releases", body)
    assert answer.status_code == 202, answer.text


def test_a_dataset_that_takes_no_releases_says_so(service: World) -> None:
    waiting = service.add_dataset(state="awaiting_data", rows=None)
    answer = service.custodian.release(waiting)
    assert answer.status_code == 409
    assert "not ready" in answer.json()["detail"]


def test_a_public_dataset_is_accepted_as_a_prior_and_takes_no_releases(service: World) -> None:
    private, public = service.add_dataset(), service.add_dataset()
    with service.database.write() as session:
        row = session.get_one(DatasetRow, public)
        row.visibility, row.account_id = "public", None
    answer = service.custodian.release(private, public_dataset=public)
    assert answer.status_code == 202, answer.text
    assert answer.json()["public_dataset"] == public
    assert service.custodian.release(public).status_code == 409
    assert pointers(service.custodian.release(private, public_dataset=private)) == [
        "/public_dataset"
    ]


def test_a_closed_dataset_takes_no_releases(service: World) -> None:
    dataset = service.add_dataset()
    with service.database.write() as session:
        session.get_one(DatasetRow, dataset).closed = True
    answer = service.custodian.release(dataset)
    assert answer.status_code == 409
    assert "closed" in answer.json()["detail"]


def test_a_dataset_of_others_is_absent(service: World) -> None:
    dataset = service.add_dataset()
    analyst = service.add_analyst("ana")
    mine = analyst.release(dataset)
    absent = analyst.release("ds_" + "x" * 20)
    assert mine.status_code == absent.status_code == 404
    assert {**mine.json(), "instance": ""} == {**absent.json(), "instance": ""}


def test_an_analyst_without_show_budget_reads_no_totals(service: World) -> None:
    dataset = service.add_dataset(epsilon="1.5")
    analyst = service.add_analyst("ana")
    service.grant(dataset, "ana")
    assert analyst.release(dataset).status_code == 202
    problem = analyst.release(dataset).json()
    assert problem["scope"] == "account"
    assert (problem["spent"], problem["remaining"], problem["largest_epsilon"]) == (None,) * 3


def test_a_hidden_budget_refuses_an_analyst_ten_times_an_hour(service: World) -> None:
    """Otherwise refusals, which are free, would find what is left."""
    dataset = service.add_dataset(epsilon="1.5")
    ana, ben = service.add_analyst("ana"), service.add_analyst("ben")
    service.grant(dataset, "ana")
    service.grant(dataset, "ben", show_budget=True)
    assert ana.release(dataset).status_code == 202
    big = {"guarantee": {"epsilon": "0.6"}}
    assert {ana.release(dataset, **big).status_code for _ in range(10)} == {409}
    for guarantee in (big, {"guarantee": {"epsilon": "0.1"}}):
        answer = ana.release(dataset, **guarantee)
        assert answer.status_code == 429
        assert 0 < int(answer.headers["Retry-After"]) <= 3600
    assert {ben.release(dataset, **big).status_code for _ in range(11)} == {409}
    assert ben.release(dataset, guarantee={"epsilon": "0.1"}).status_code == 202


def test_an_allowance_is_its_own_scope(service: World) -> None:
    dataset = service.add_dataset()
    analyst = service.add_analyst("ana")
    service.grant(dataset, "ana", epsilon=15 * 10**11, delta=0)
    assert analyst.release(dataset).status_code == 202
    problem = analyst.release(dataset).json()
    assert (problem["scope"], problem["largest_epsilon"]) == ("grant", "0.5")


def test_preflight_costs_without_charging(service: World) -> None:
    dataset = service.add_dataset()
    path = f"/v1/datasets/{dataset}/releases/preflight"
    for _ in range(2):
        found = service.custodian.post(path, wanted()).json()
        assert found["fits"] is True
        assert found["problems"] == []
        assert found["charge"] == {"epsilon": "1", "delta": "0"}
        assert found["remaining_after"] == {"epsilon": "9", "delta": "0.000001"}
        assert found["cells"] == 4 * 6
        assert found["expected_error"] > 0


def test_preflight_lists_what_a_request_would_be_refused_for(service: World) -> None:
    dataset = service.add_dataset()
    path = f"/v1/datasets/{dataset}/releases/preflight"
    body = wanted(params={"columns": ["nothing"]}, guarantee={"rho": "1"}, rows=10**9)
    answer = service.custodian.post(path, body)
    assert answer.status_code == 200
    found = answer.json()
    assert found["fits"] is False
    assert found["charge"] is None
    assert {problem["pointer"] for problem in found["problems"]} == {"/guarantee", "/rows"}
    found = service.custodian.post(path, wanted(params={"columns": ["nothing"]})).json()
    assert found["charge"] == {"epsilon": "1", "delta": "0"}
    assert found["problems"][0]["pointer"].startswith("/params/columns")


def test_preflight_of_what_the_budget_cannot_cover(service: World) -> None:
    dataset = service.add_dataset()
    path = f"/v1/datasets/{dataset}/releases/preflight"
    found = service.custodian.post(path, wanted(guarantee={"epsilon": 100})).json()
    assert (found["fits"], found["remaining_after"]) == (False, None)
    assert found["charge"] == {"epsilon": "100", "delta": "0"}
