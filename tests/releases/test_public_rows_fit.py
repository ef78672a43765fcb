"""Public rows that fit nowhere are found before anything is charged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest
from plugin import write_plugin
from release_world import World, wanted, world

from app.datasets import public_rows
from app.datasets.public_rows import PublicRows, PublicRowsGone
from app.sandbox.child import ChildHost

UNIT = {"kind": "entity", "column": "id", "max_rows": 3}
ROWS = 300
DEMANDING = """
class Synthesizer(Base):
    name = "demanding"

    def check_public(self, schema, unit, params, loss, public):
        from app.engine.method import Problem
        codes = [chunk["size"] for chunk in public.chunks(["size"])]
        if params.do == "pry":
            list(public.chunks(["nothing"]))
        if np.concatenate(codes).max() < 4:
            return [Problem("/public_dataset", "all are small", "name larger ones")]
        return []

    def fit(self, session, params, public, seed, progress):
        raise AssertionError("only its check is called here")
"""
FORMS: dict[str, dict[str, Any]] = {
    "archetypes": {
        "features": ["size"],
        "components": 1,
        "attributes": [],
        "conditionals": [{"column": "colour", "given": ["size"]}],
    },
    "class_resampling": {},
    "linked_histograms": {},
    "public_reweighted": {},
}


def dictionary(*colours: str) -> dict[str, Any]:
    sizes = {"minimum": 0, "maximum": 4, "required": True}
    return {
        "fields": [
            {"name": "id", "type": "string", "role": "entity"},
            {"name": "colour", "type": "string", "constraints": {"enum": list(colours)}},
            {"name": "size", "type": "integer", "constraints": sizes},
        ],
        "constraints": [{"kind": "forbidden", "when": {"colour": ["red"], "size": [3]}}],
    }


PRIVATE = dictionary("red", "green")
PUBLIC = {**dictionary("red", "mauve"), "constraints": []}


@dataclass
class Office:
    """A service with a private dataset, and public ones of these colours and sizes."""

    service: World
    host: ChildHost
    private: str

    def public(self, colour: str, size: int) -> str:
        spec = {"name": colour, "visibility": "public", "schema": PUBLIC, "unit": UNIT}
        made = self.service.custodian.post("/v1/datasets", spec)
        assert made.status_code == 201, made.text
        path = f"/v1/datasets/{made.json()['id']}"
        table = pd.DataFrame({"id": [f"e{i // 2}" for i in range(ROWS)]})
        content = table.assign(colour=colour, size=size).to_csv(index=False).encode()
        headers = {"Content-Type": "text/csv"}
        self.service.custodian.request("PUT", f"{path}/data", content=content, headers=headers)
        self.service.work(self.host)
        assert self.service.custodian.get(path).json()["state"] == "ready"
        return str(made.json()["id"])

    def preflight(self, body: dict[str, Any]) -> dict[str, Any]:
        path = f"/v1/datasets/{self.private}/releases/preflight"
        found: dict[str, Any] = self.service.custodian.post(path, body).json()
        return found

    def spent(self) -> Any:
        return self.service.custodian.get(f"/v1/datasets/{self.private}/budget").json()["spent"]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("plugins")
        write_plugin(folder, "demanding", DEMANDING)
        monkeypatch.syspath_prepend(str(folder))
        store = tmp_path_factory.mktemp("store")
        with world(store, monkeypatch, check_time_limit_s=20) as service:
            private = service.add_dataset(schema=PRIVATE, unit=UNIT)
            yield Office(service, ChildHost(service.settings), private)


@pytest.fixture(scope="module")
def mauve(office: Office) -> str:
    return office.public("mauve", size=1)


def request(name: str, public: str) -> dict[str, Any]:
    guarantee = {"epsilon": "1", "delta": "0.0000001"}
    return wanted(synthesizer=name, params=FORMS[name], guarantee=guarantee, public_dataset=public)


@pytest.mark.parametrize("name", FORMS)
def test_rows_of_which_none_fits_are_refused_and_cost_nothing(
    office: Office, mauve: str, name: str
) -> None:
    before = office.spent()
    refused = office.service.custodian.release(office.private, **request(name, mauve))
    assert refused.status_code == 422, refused.text
    (problem,) = refused.json()["errors"]
    assert problem["pointer"] == "/public_dataset"
    assert f"of the {ROWS} public rows" in problem["message"]
    assert problem["remedy"]
    assert office.spent() == before
    told = office.preflight(request(name, mauve))
    assert (told["fits"], told["problems"]) == (False, [problem])


def test_rows_that_fit_pass(office: Office) -> None:
    red = office.public("red", size=1)
    for name in FORMS:
        assert office.preflight(request(name, red))["problems"] == []


def test_rows_that_all_break_a_constraint_are_told_where_that_matters(office: Office) -> None:
    """`public_reweighted` gives no weight to such a row; `class_resampling` mends rows."""
    forbidden = office.public("red", size=3)
    (problem,) = office.preflight(request("public_reweighted", forbidden))["problems"]
    assert "constraints" in problem["message"]
    assert office.preflight(request("class_resampling", forbidden))["problems"] == []


def test_methods_that_do_without_public_rows_still_run(office: Office, mauve: str) -> None:
    for name in ("mst", "swift", "aim"):
        body = request("class_resampling", mauve) | {"synthesizer": name}
        assert office.preflight(body)["problems"] == []


def test_auto_picks_what_does_without_them(office: Office, mauve: str) -> None:
    told = office.preflight(request("class_resampling", mauve) | {"synthesizer": "auto"})
    assert (told["synthesizer"], told["problems"]) == ("swift", [])


def test_preflight_and_the_release_after_it_read_public_rows_once(
    office: Office, mauve: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    chunks = PublicRows.chunks

    def counted(self: PublicRows, columns: Any) -> Any:
        read.append(self.dataset_id)
        return chunks(self, columns)

    monkeypatch.setattr(PublicRows, "chunks", counted)
    body = request("public_reweighted", mauve) | {"params": {"columns": ["colour"]}}
    first = office.preflight(body)["problems"]
    refused = office.service.custodian.release(office.private, **body)
    assert refused.json()["errors"] == first
    assert read == [mauve]


def test_a_third_partys_check_of_public_rows_runs_in_its_child(office: Office, mauve: str) -> None:
    body = request("class_resampling", mauve) | {"synthesizer": "demanding"}
    (problem,) = office.preflight(body)["problems"]
    assert problem == {
        "pointer": "/public_dataset",
        "message": "all are small",
        "remedy": "name larger ones",
    }
    large = request("class_resampling", office.public("red", size=4))
    assert office.preflight(large | {"synthesizer": "demanding"})["problems"] == []


def test_a_third_party_that_asks_for_what_is_not_there_is_refused(
    office: Office, mauve: str
) -> None:
    body = request("class_resampling", mauve) | {"synthesizer": "demanding"}
    (problem,) = office.preflight({**body, "params": {"do": "pry"}})["problems"]
    assert problem["pointer"] == "/synthesizer"
    assert "gave no answer" in problem["message"]


def test_of_a_large_dataset_rows_are_shown_that_lie_evenly_in_it(
    office: Office, mauve: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_rows, "MOST_ROWS", 100)
    rows = PublicRows(office.service.database, office.service.settings, mauve)
    assert [len(chunk["size"]) for chunk in rows.chunks(["size", "colour"])] == [100]
    body = request("class_resampling", mauve) | {"params": {"columns": ["colour"]}}
    (problem,) = office.preflight(body)["problems"]
    assert "of the 100 public rows" in problem["message"]


def test_a_private_dataset_is_never_opened(office: Office) -> None:
    service = office.service
    body = request("public_reweighted", office.private)
    (problem,) = office.preflight(body)["problems"]
    assert problem["pointer"] == "/public_dataset"
    rows = PublicRows(service.database, service.settings, office.private)
    with pytest.raises(PublicRowsGone):
        list(rows.chunks(["colour"]))
