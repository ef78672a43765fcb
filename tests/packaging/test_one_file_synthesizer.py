"""A new method is one new module: nothing else in an installed copy changes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from installed import Live, Virtualenv, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

METHOD = '''"""`evenly`: as many rows as there are by noise, of values drawn evenly."""

import json
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from app.engine.method import Model, Params, Synthesizer
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count
from app.engine.schema import Schema
from app.engine.table import Table


class EvenlyParams(Params):
    most_rows: int = Field(1000, ge=1, description="The most rows that are made unasked.")


@dataclass(frozen=True)
class EvenModel(Model):
    schema: Schema
    rows: int

    def sample(self, rows, rng):
        made = self.rows if rows is None else rows
        columns = self.schema.columns
        return Table({each.name: rng.integers(0, each.codes, made) for each in columns}, made)

    def dump(self):
        return json.dumps(self.rows).encode()


class Evenly(Synthesizer):
    name, title, Params, auto_rank = "evenly", "Values drawn evenly", EvenlyParams, 1

    def fit(self, session, params, public, seed, progress):
        loss = PrivacyLoss(session.allowance.kind, session.allowance.amount)
        (total,) = session.count([Count(())], loss)
        return EvenModel(session.schema, int(np.clip(total.values, 0, params.most_rows)))

    def load(self, schema, unit, data):
        return EvenModel(schema, json.loads(data))
'''

SPEC: dict[str, Any] = {
    "name": "colours",
    "schema": {
        "fields": [
            {
                "name": "colour",
                "type": "string",
                "constraints": {"enum": ["red", "blue"], "required": True},
            }
        ]
    },
    "unit": {"kind": "row"},
    "budget": {"epsilon": 10},
}


@pytest.fixture(scope="module")
def extended(service_env: Virtualenv) -> Virtualenv:
    """The installed service, and one module more among its methods."""
    where = "import app.engine.synthesizers as rooms; print(rooms.__path__[0])"
    methods = Path(service_env.run("-c", where).strip())
    assert methods.is_relative_to(service_env.folder)
    (methods / "evenly.py").write_text(METHOD)
    return service_env


@pytest.fixture(scope="module")
def live(extended: Virtualenv, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(extended, tmp_path_factory.mktemp("extended") / "store") as running:
        yield running


@pytest.fixture(scope="module")
def dataset(live: Live) -> str:
    files = {
        "spec": (None, json.dumps(SPEC), "application/json"),
        "file": ("colours.csv", "colour\n" + "red\nblue\n" * 200, "text/csv"),
    }
    made = post(live, "/v1/datasets", files=files)
    assert made.status_code in (201, 202), made.text
    return str(finished(live, f"/v1/datasets/{made.json()['id']}", "ready")["id"])


def post(live: Live, path: str, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {live.key}"}
    return httpx.post(live.base_url + path, headers=headers, timeout=30, **body)


def finished(live: Live, path: str, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while (found := live.get(path).json())["state"] != state:
        assert found["state"] not in ("failed", "rejected"), found
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return dict(found)


def test_the_method_has_forty_lines() -> None:
    code = [line for line in METHOD.splitlines() if line.strip()]
    assert len(code) <= 40


def test_it_is_listed_with_its_form(live: Live) -> None:
    items = live.get("/v1/synthesizers").json()["items"]
    (row,) = [item for item in items if item["name"] == "evenly"]
    assert row["title"] == "Values drawn evenly"
    described = live.get("/v1/synthesizers/evenly").json()
    assert "most_rows" in json.dumps(described)


def test_the_api_description_shows_its_form_and_an_example(live: Live) -> None:
    description = live.get("/openapi.json").json()
    request = description["components"]["schemas"]["ReleaseIn"]
    (form,) = [each for each in request["oneOf"] if each["title"] == "evenly"]
    assert "most_rows" in json.dumps(form)
    assert [each for each in request["examples"] if each.get("synthesizer") == "evenly"]


def test_a_release_by_its_name_gives_rows_to_download(live: Live, dataset: str) -> None:
    body = {"synthesizer": "evenly", "guarantee": {"epsilon": 1}, "rows": 50}
    asked = post(live, f"/v1/datasets/{dataset}/releases", json=body)
    assert asked.status_code == 202, asked.text
    release = finished(live, f"/v1/releases/{asked.json()['id']}", "succeeded")
    rows = live.get(f"/v1/samples/{release['samples'][0]['id']}/data?format=csv").text.split()
    assert rows[0] == "colour"
    assert len(rows) == 51
    assert set(rows[1:]) <= {"red", "blue"}


def test_auto_picks_it_by_its_rank(live: Live, dataset: str) -> None:
    body = {"guarantee": {"epsilon": 1}, "rows": 50}
    told = post(live, f"/v1/datasets/{dataset}/releases/preflight", json=body)
    assert told.json()["synthesizer"] == "evenly", told.text
