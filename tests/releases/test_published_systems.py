"""The five published systems and `public_reweighted` over HTTP on made-up trips, as the examples
on their pages ask."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from release_world import World, world

from app.engine.privacy.accounting import rho_for
from app.engine.privacy.loss import DELTA_UNIT, EPSILON_UNIT, to_units
from app.sandbox.child import ChildHost

ROOT = Path(__file__).parents[2]
TAXI: dict[str, Any] = json.loads((ROOT / "examples/dictionaries/taxi.json").read_text())
REAL_IDS_FROM = 1_000_001
ROUNDED_AWAY = Decimal("1e-9")
"""Shares of a loss are rounded down to whole units of 1e-12."""


SYSTEMS = (
    "histogram",
    "archetypes",
    "linked_histograms",
    "class_resampling",
    "aggregate_seeded",
    "public_reweighted",
)


def first_request(system: str) -> dict[str, Any]:
    """The first example on its page that is not, like `sprint1`, for another table."""
    page = (ROOT / f"docs/reference/synthesizers/{system}.md").read_text()
    found = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    request: dict[str, Any] = next(
        each for each in found if each["params"].get("preset") != "sprint1"
    )
    assert request["synthesizer"] == system
    return request


def trips(taxis: int, seed: int) -> bytes:
    """One to nine trips of each taxi, whose columns say of the day and hour what the shift says."""
    rng = np.random.default_rng(seed)
    taxi = np.repeat(np.arange(REAL_IDS_FROM, REAL_IDS_FROM + taxis), rng.integers(1, 10, taxis))
    rows = len(taxi)
    day, hour = rng.integers(0, 7, rows), rng.integers(0, 24, rows)
    miles, tips = rng.integers(0, 20, rows), rng.integers(0, 5, rows)
    return (
        pd.DataFrame(
            {
                "taxi_id": taxi,
                "shift": 3 * day + hour // 8,
                "company_id": taxi % 5,
                "pickup_community_area": rng.choice([-1, 8, 32, 76], rows),
                "dropoff_community_area": rng.choice([8, 28, 32], rows),
                "payment_type": rng.integers(0, 3, rows),
                "trip_day_of_week": day,
                "trip_hour_of_day": hour,
                "fare": 3 + 2 * miles,
                "tips": tips,
                "trip_total": 3 + 2 * miles + tips,
                "trip_seconds": 60 + 90 * miles,
                "trip_miles": miles,
            }
        )
        .to_csv(index=False)
        .encode()
    )


@dataclass
class Office:
    """A service that holds private trips and public ones."""

    service: World
    host: ChildHost
    private: str
    public: str

    def ask(self, request: dict[str, Any]) -> Any:
        return self.service.custodian.release(self.private, **request)

    def finished(self, request: dict[str, Any]) -> dict[str, Any]:
        accepted = self.ask(request)
        assert accepted.status_code == 202, accepted.text
        self.service.work(self.host)
        release: dict[str, Any] = self.get(f"/v1/releases/{accepted.json()['id']}").json()
        assert release["state"] == "succeeded", release["private_detail"]
        return release

    def get(self, path: str) -> Any:
        answer = self.service.custodian.get(path)
        assert answer.status_code == 200, answer.text
        return answer


def upload(service: World, host: ChildHost, spec: dict[str, Any], table: bytes) -> str:
    made = service.custodian.post("/v1/datasets", spec)
    assert made.status_code == 201, made.text
    path = f"/v1/datasets/{made.json()['id']}"
    headers = {"Content-Type": "text/csv"}
    service.custodian.request("PUT", f"{path}/data", content=table, headers=headers)
    service.work(host)
    assert service.custodian.get(path).json()["state"] == "ready"
    return str(made.json()["id"])


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    unit = {**TAXI["unit"], "max_rows": 10}
    common = {"schema": TAXI["schema"], "unit": unit, "max_total_rows": 10_000}
    budget = {"epsilon": "100", "delta": "0.001"}
    private = {**common, "name": "trips", "visibility": "private", "budget": budget}
    public = {**common, "name": "other trips", "visibility": "public"}
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        world(tmp_path_factory.mktemp("store"), monkeypatch) as service,
    ):
        host = ChildHost(service.settings)
        yield Office(
            service,
            host,
            upload(service, host, {**private, "accountant": "basic"}, trips(300, seed=1)),
            upload(service, host, public, trips(150, seed=2)),
        )


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_example_of_its_page_makes_rows_of_made_up_entities_at_its_charge(
    office: Office, system: str
) -> None:
    request = {**first_request(system), "rows": 500}
    if "public_dataset" in request:
        request["public_dataset"] = office.public
    release = office.finished(request)

    (sample,) = release["samples"]
    parquet = office.get(f"/v1/samples/{sample['id']}/data?format=parquet").content
    ids = pd.read_parquet(io.BytesIO(parquet))["taxi_id"]
    assert len(ids) == 500
    assert sorted(set(ids)) == list(range(1, ids.nunique() + 1))
    assert ids.nunique() < REAL_IDS_FROM

    certificate = office.get(f"/v1/releases/{release['id']}/certificate").json()
    assert certificate["unit"]["kind"] == "entity"
    assert_adds_up(certificate, request["guarantee"])


def assert_adds_up(certificate: dict[str, Any], guarantee: dict[str, Any]) -> None:
    """The mechanisms to what was spent, which lies within what the charge allows.

    All of it is spent but by `aggregate_seeded`, which may find no combination worth counting.
    """
    asked = {name: Decimal(str(amount)) for name, amount in guarantee.items()}
    charge = {name: Decimal(amount) for name, amount in certificate["charge"].items()}
    assert charge == {"delta": Decimal(0), **asked}
    measure, affordable = "epsilon", charge["epsilon"]
    if "delta" in asked:
        epsilon = to_units(asked["epsilon"], EPSILON_UNIT, rounding="up")
        delta = to_units(asked["delta"], DELTA_UNIT, rounding="up")
        measure, affordable = "rho", rho_for(epsilon, delta) * EPSILON_UNIT
    session = certificate["session"]
    allowed, spent = Decimal(session["allowed"][measure]), Decimal(session["spent"][measure])
    losses = sum(Decimal(each["loss"][measure]) for each in certificate["mechanisms"])
    assert allowed == affordable
    assert 0 < spent - ROUNDED_AWAY <= losses <= spent <= allowed
    if certificate["synthesizer"]["name"] != "aggregate_seeded":
        assert allowed - ROUNDED_AWAY <= spent


@pytest.mark.parametrize(
    "name", ["archetypes", "linked_histograms", "class_resampling", "public_reweighted"]
)
def test_what_is_learnt_from_public_data_is_refused_without_them(office: Office, name: str) -> None:
    asked = {"synthesizer": name, "params": {"preset": "sprint3"}, "guarantee": {"epsilon": "1"}}
    answer = office.ask(asked)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/public_dataset"
    assert "public" in error["message"]
    assert error["remedy"]


def test_auto_starts_from_a_public_dataset(office: Office) -> None:
    request = {
        "synthesizer": "auto",
        "params": {},
        "guarantee": {"epsilon": "1", "delta": "2.5e-5"},
        "public_dataset": office.public,
        "rows": 100,
    }
    path = f"/v1/datasets/{office.private}/releases/preflight"
    found = office.service.custodian.post(path, request).json()
    assert (found["synthesizer"], found["problems"]) == ("swift", [])
    assert "public" in found["why"]
    assert office.finished(request)["synthesizer"] == "swift"


@pytest.mark.parametrize("system", ["mst", "swift", "aim"])
def test_models_of_tables_start_from_a_public_dataset_at_the_same_charge(
    office: Office, system: str
) -> None:
    request: dict[str, Any] = {
        "synthesizer": system,
        "params": {"columns": ["shift", "payment_type", "tips"]},
        "guarantee": {"epsilon": "1", "delta": "2.5e-5"},
        "public_dataset": office.public,
        "rows": 100,
    }
    release = office.finished(request)
    certificate = office.get(f"/v1/releases/{release['id']}/certificate").json()
    assert certificate["synthesizer"]["public_dataset"]["used"]
    assert_adds_up(certificate, request["guarantee"])
