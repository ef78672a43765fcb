"""The registry over HTTP, and what the API description says of releases."""

from __future__ import annotations

import pytest
from release_world import World

from app.engine.catalog.registry import Entry
from app.engine.sandbox.protocol import Described
from app.releases import catalogue as catalogues
from app.releases.catalogue import Catalogue
from app.releases.schemas import ReleaseIn
from app.sandbox.child import ChildHost, ChildUnusable
from app.settings import Settings


def test_built_ins_are_listed_with_their_forms(service: World) -> None:
    listed = service.custodian.get("/v1/synthesizers").json()
    names = [item["name"] for item in listed["items"]]
    assert names[0] == "auto"
    assert {"histogram", "independent", "mst"} <= set(names)
    for name in names:
        form = service.custodian.get(f"/v1/synthesizers/{name}").json()
        assert form["params"]["type"] == "object"
        assert form["assurance"] == "enforced"
    assert service.custodian.get("/v1/synthesizers/none").status_code == 404


def test_the_list_comes_in_pages_like_every_other(service: World) -> None:
    whole = service.custodian.get("/v1/synthesizers").json()
    names, path = [], "/v1/synthesizers?limit=4"
    while path:
        page = service.custodian.get(path).json()
        names += [each["name"] for each in page["items"]]
        path = page["next"] and f"/v1/synthesizers?limit=4&cursor={page['next']}"
    assert names == [each["name"] for each in whole["items"]]
    assert service.custodian.get("/v1/synthesizers?cursor=bm9uZQ").status_code == 422


def test_auto_is_described_with_the_form_that_it_takes(service: World) -> None:
    form = service.custodian.get("/v1/synthesizers/auto").json()
    assert set(form["params"]["properties"]) == {"columns", "bins", "target"}
    assert form["state"] == "available"
    body = {"synthesizer": form["name"], "guarantee": {"epsilon": "1"}}
    asked = service.custodian.post(f"/v1/datasets/{service.add_dataset()}/releases", body).json()
    assert asked["synthesizer"] in {
        each["name"] for each in service.custodian.get("/v1/synthesizers").json()["items"][1:]
    }


def test_a_synthesizer_is_listed_in_the_version_that_releases_state(service: World) -> None:
    asked = service.custodian.release(service.add_dataset()).json()
    listed = service.custodian.get(f"/v1/synthesizers/{asked['synthesizer']}").json()
    assert listed["version"] == asked["synthesizer_version"]


def test_the_api_description_shows_each_form_with_examples_that_are_valid(service: World) -> None:
    description = service.http.get("/openapi.json").json()
    schema = description["components"]["schemas"]["ReleaseIn"]
    forms = {each["title"]: each for each in schema["oneOf"]}
    assert {"histogram", "independent", "mst"} <= set(forms)
    histogram = forms["histogram"]["properties"]["params"]["anyOf"][0]["properties"]
    assert "post_processing" in histogram
    assert "$ref" not in str(forms)
    for example in schema["examples"]:
        ReleaseIn.model_validate(
            {**example, "guarantee": {k: str(v) for k, v in example["guarantee"].items()}}
        )


def test_every_operation_on_releases_documents_its_refusals(service: World) -> None:
    description = service.http.get("/openapi.json").json()
    for path, operations in description["paths"].items():
        if not path.startswith(("/v1/releases", "/v1/samples", "/v1/synthesizers")):
            continue
        for operation in operations.values():
            assert operation["operationId"]
            assert operation["summary"]
            for status in ("401", *(["404"] if "{" in path else [])):
                assert "application/problem+json" in operation["responses"][status]["content"]
    refused = description["paths"]["/v1/datasets/{dataset_id}/releases"]["post"]["responses"]["409"]
    (members,) = [
        part["properties"]
        for part in refused["content"]["application/problem+json"]["schema"]["allOf"]
        if "properties" in part
    ]
    assert {"requested", "spent", "remaining", "scope", "limited_by", "largest_epsilon"} <= set(
        members
    )


def test_a_third_party_that_does_not_answer_is_unavailable_and_refused(service: World) -> None:
    catalogue: Catalogue = service.http.app.state.catalogue  # type: ignore[attr-defined]
    catalogue._entries["guest"] = Entry("guest", "halftone-guest", "1.0", False, "enforced")
    shown = service.custodian.get("/v1/synthesizers/guest").json()
    assert shown["state"] == "unavailable"
    dataset = service.add_dataset()
    answer = service.custodian.release(dataset, synthesizer="guest", params={})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/synthesizer"
    assert "UnknownSynthesizer" not in answer.text
    assert service.custodian.get("/v1/releases").json()["items"] == []


@pytest.mark.parametrize(
    ("kept_s", "available"), [(600.0, [False, False, False]), (0.0, [False, True, True])]
)
def test_a_third_party_that_did_not_answer_is_asked_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch, kept_s: float, available: list[bool]
) -> None:
    asked: list[str] = []

    def describe(host: ChildHost, name: str) -> Described:
        del host
        asked.append(name)
        if len(asked) == 1:
            raise ChildUnusable("it was slow")
        return Described(name, "Guest", "", {})

    monkeypatch.setattr(ChildHost, "describe", describe)
    monkeypatch.setattr(catalogues, "_FAILURE_KEPT_S", kept_s)
    catalogue = Catalogue(Settings())
    catalogue._entries["guest"] = Entry("guest", "halftone-guest", "1.0", False, "enforced")
    assert [catalogue.describe("guest").available for _ in available] == available
    assert len(asked) == len(set(available))
