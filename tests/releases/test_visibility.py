"""Who sees a release: every role, every visibility, every route."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from release_world import Client, World, colours, world

from app.ledger.models import GrantRow
from app.releases import feed
from app.releases.models import ReleaseRow
from app.routers.paging import LARGEST_LIMIT
from app.security.models import ApiKeyRow, PrincipalRow

SIGHT = {
    "requester": {"custodian", "requester"},
    "grantees": {"custodian", "requester", "grantee"},
    "public": {"custodian", "requester", "grantee", "revoked", "stranger", "colleague", "operator"},
}
PEOPLE = ("custodian", "requester", "grantee", "revoked", "stranger", "colleague", "operator")
PARTS = ("", "/samples", "/measurements", "/certificate", "/report", "/events")


@dataclass
class Shared:
    """A release that its requester made, of a dataset that two analysts and a former one used."""

    service: World
    dataset: str
    release: str

    def __post_init__(self) -> None:
        self.path = f"/v1/releases/{self.release}"
        (self.sample,) = (each["id"] for each in self.seen_by("custodian")["samples"])

    def by(self, who: str) -> Client:
        return self.service.client(who)

    def seen_by(self, who: str) -> dict[str, Any]:
        answer = self.by(who).get(self.path)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def put(self, who: str, visibility: str) -> Any:
        return self.by(who).request(
            "PUT", f"{self.path}/visibility", json={"visibility": visibility}
        )

    def listed_by(self, who: str, **query: str) -> bool:
        items = self.by(who).get("/v1/releases", params=query).json()["items"]
        return self.release in {item["id"] for item in items}


def shared(service: World) -> Shared:
    dataset = service.add_dataset()
    for name in ("requester", "grantee", "revoked", "stranger"):
        service.add_analyst(name)
    service.add_person("colleague", "custodian")
    service.add_person("operator", "admin")
    for name in ("requester", "grantee", "revoked"):
        service.grant(dataset, name)
    _revoke(service, dataset, "revoked")
    service.client("requester").release(dataset, rows=20)
    return Shared(service, dataset, service.run_fit(colours(200)))


def _revoke(service: World, dataset: str, who: str) -> None:
    with service.database.write() as session:
        held = session.query(GrantRow).filter_by(
            dataset_id=dataset, principal_id=service.principal_id(who)
        )
        held.one().state = "revoked"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """One for all tests that set a visibility themselves and revoke nothing."""
    with (
        pytest.MonkeyPatch.context() as patch,
        world(tmp_path_factory.mktemp("shared"), patch) as service,
    ):
        yield shared(service)


@pytest.mark.parametrize("visibility", SIGHT)
def test_every_route_shows_a_release_to_those_it_is_for_and_to_nobody_else(
    case: Shared, visibility: str
) -> None:
    assert case.put("custodian", visibility).status_code == 200
    paths = [case.path + part for part in PARTS]
    paths += [f"/v1/samples/{case.sample}", f"/v1/samples/{case.sample}/data"]
    for who in PEOPLE:
        seen = who in SIGHT[visibility]
        answers = {path: case.by(who).get(path).status_code for path in paths}
        assert answers == dict.fromkeys(paths, 200 if seen else 404), who
        assert case.listed_by(who) == seen
        assert case.listed_by(who, dataset=case.dataset) == seen
        asked = case.by(who).post(f"{case.path}/samples", {"rows": 3, "seed": 1})
        assert asked.status_code == (202 if seen else 404)


@pytest.mark.parametrize("visibility", SIGHT)
def test_a_release_is_stopped_shared_and_compared_by_those_whose_it_is(
    case: Shared, visibility: str
) -> None:
    case.put("custodian", visibility)

    def statuses(ask: Callable[[Client], Any]) -> dict[str, int]:
        return {who: ask(case.by(who)).status_code for who in PEOPLE}

    def expected(**own: int) -> dict[str, int]:
        others = {who: 403 if who in SIGHT[visibility] else 404 for who in PEOPLE}
        return {**others, **own}

    cancelled = statuses(lambda person: person.post(f"{case.path}/cancel"))
    assert cancelled == expected(custodian=409, requester=409)
    body = {"visibility": visibility}
    put = statuses(lambda person: person.request("PUT", f"{case.path}/visibility", json=body))
    assert put == expected(custodian=200, requester=202)
    dropped = statuses(lambda person: person.request("DELETE", f"{case.path}/report"))
    assert dropped == expected(custodian=204)


def test_what_others_read_of_a_release_is_what_its_requester_reads(case: Shared) -> None:
    case.put("custodian", "public")
    case.put("requester", "grantees")
    own = case.seen_by("requester")
    assert own["visibility_requested"] == "grantees"
    assert case.seen_by("custodian") == own
    for who in ("grantee", "stranger"):
        assert case.seen_by(who) == {**own, "visibility_requested": None}
    for part in PARTS[1:]:
        texts = {case.by(who).get(case.path + part).text for who in ("requester", "stranger")}
        assert len(texts) == 1


def test_the_requester_asks_and_the_custodian_decides(case: Shared) -> None:
    case.put("custodian", "requester")
    for _ in range(2):
        asked = case.put("requester", "public")
        assert asked.status_code == 202
        assert asked.json()["visibility"] == "requester"
        assert asked.json()["visibility_requested"] == "public"
    assert not case.listed_by("stranger")
    for _ in range(2):
        settled = case.put("custodian", "grantees")
        assert settled.status_code == 200
        assert settled.json()["visibility"] == "grantees"
        assert settled.json()["visibility_requested"] is None
    assert case.put("requester", "public").json()["visibility_requested"] == "public"
    assert case.put("requester", "grantees").json()["visibility_requested"] is None
    entries = case.by("custodian").get("/v1/audit").json()["items"][:4]
    assert all(entry["subject"] == case.dataset for entry in entries)
    assert all(entry["detail"].pop("release_id") == case.release for entry in entries)
    assert [(entry["action"], entry["detail"]) for entry in entries] == [
        ("release.visibility_requested", {"requested": None}),
        ("release.visibility_requested", {"requested": "public"}),
        ("release.visibility", {"from": "requester", "to": "grantees", "requested": "public"}),
        ("release.visibility_requested", {"requested": "public"}),
    ]


@pytest.mark.parametrize("body", [{}, {"visibility": "everyone"}, {"visibility": None}])
def test_a_visibility_that_there_is_not_is_422_at_the_field(
    case: Shared, body: dict[str, Any]
) -> None:
    answer = case.by("custodian").request("PUT", f"{case.path}/visibility", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/visibility"


def test_samples_of_a_shared_release_are_free_and_count_as_the_askers(service: World) -> None:
    case = shared(service)
    case.put("custodian", "grantees")
    ledger = f"/v1/datasets/{case.dataset}/ledger"
    before = case.by("custodian").get(ledger).json()
    asked = case.by("grantee").post(f"{case.path}/samples", {"rows": 7, "seed": 3})
    sample = asked.json()["id"]
    service.run_sample()
    rows = case.by("grantee").get(f"/v1/samples/{sample}/data").text.splitlines()
    assert len(rows) == 8
    assert case.by("custodian").get(ledger).json() == before
    assert case.by("grantee").get(ledger).json()["items"] == []
    with service.database.read() as session:
        (owner,) = (
            session.connection()
            .exec_driver_sql("SELECT owner_id FROM collections WHERE id = ?", (sample,))
            .one()
        )
    assert owner == service.principal_id("grantee")


def test_a_sample_is_deleted_by_who_asked_for_it_and_by_the_custodian_alone(
    service: World,
) -> None:
    case = shared(service)
    case.put("custodian", "grantees")
    ask = [case.by("grantee").post(f"{case.path}/samples", {"rows": 3}) for _ in range(2)]
    first, second = (f"/v1/samples/{answer.json()['id']}" for answer in ask)
    assert case.by("requester").get(first).status_code == 200
    assert case.by("requester").request("DELETE", first).status_code == 403
    assert case.by("stranger").request("DELETE", first).status_code == 404
    original = f"/v1/samples/{case.sample}"
    assert case.by("grantee").request("DELETE", original).status_code == 403
    assert case.by("grantee").request("DELETE", first).status_code == 204
    assert case.by("custodian").request("DELETE", second).status_code == 204
    assert case.by("requester").request("DELETE", original).status_code == 204


def test_a_revoked_grant_takes_the_sight_of_shared_releases_at_once(service: World) -> None:
    case = shared(service)
    case.put("custodian", "grantees")
    with service.database.read() as session:
        named = session.query(ApiKeyRow).filter_by(principal_id=service.principal_id("grantee"))
        pair = (named.one().id, case.release)
    streams = feed.Feed(service.database)
    assert streams._allowed({pair}) == {pair}
    _revoke(service, case.dataset, "grantee")
    # An open stream ends at the next look, as soon as the pair is allowed no more.
    assert streams._allowed({pair}) == set()
    assert case.by("grantee").get(case.path).status_code == 404
    assert not case.listed_by("grantee")
    service.grant(case.dataset, "stranger")
    assert case.listed_by("stranger")
    with service.database.write() as session:
        session.get_one(PrincipalRow, service.principal_id("stranger")).is_analyst = False
    assert not case.listed_by("stranger")
    _revoke(service, case.dataset, "requester")
    assert case.by("requester").get(case.path).status_code == 200


def test_a_release_that_published_nothing_is_not_shared(service: World) -> None:
    dataset = service.add_dataset()
    release = service.custodian.release(dataset).json()["id"]
    path, body = f"/v1/releases/{release}/visibility", {"visibility": "public"}
    waiting = service.custodian.request("PUT", path, json=body)
    assert (waiting.status_code, "Retry-After" in waiting.headers) == (409, True)
    service.custodian.post(f"/v1/releases/{release}/cancel")
    assert service.custodian.request("PUT", path, json=body).status_code == 409


@pytest.mark.parametrize("withdrawn", [False, True])
def test_a_shared_release_outlives_its_dataset_unless_it_is_withdrawn(
    service: World, withdrawn: bool
) -> None:
    case = shared(service)
    case.put("custodian", "public")
    case.put("requester", "grantees")
    options = "?releases=true" if withdrawn else ""
    case.by("custodian").request("DELETE", f"/v1/datasets/{case.dataset}{options}")
    assert case.listed_by("stranger") == (not withdrawn)
    assert case.by("requester").get(case.path).status_code == 200
    with service.database.read() as session:
        row = session.get_one(ReleaseRow, case.release)
        left = ("requester", None) if withdrawn else ("public", "grantees")
        assert (row.visibility, row.visibility_requested) == left
    assert case.put("custodian", "public").status_code == (409 if withdrawn else 200)


def test_the_largest_page_of_grants_is_answered(service: World) -> None:
    dataset = service.add_dataset()
    for number in range(LARGEST_LIMIT):
        service.add_analyst(f"ana{number}")
        service.grant(dataset, f"ana{number}")
    path = f"/v1/datasets/{dataset}/grants"
    page = service.custodian.get(path, params={"limit": LARGEST_LIMIT})
    assert page.status_code == 200, page.text
    assert len(page.json()["items"]) == LARGEST_LIMIT
