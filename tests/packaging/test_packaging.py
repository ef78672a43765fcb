"""The distributions as users get them: built, installed apart from the checkout, and run.

One server runs for all tests, with a plug-in of another distribution (`uniform`) and one more
module among its own methods (`evenly.py`): nothing else in the installed copy changes.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest
from installed import METHOD, REPOSITORY, Live, Virtualenv

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Build = Callable[[str], Path]

CLIENT_TOUR = """
import sys
import pandas as pd
from halftone_client import BudgetExceeded, Halftone

table = pd.DataFrame({"color": ["red", "blue"] * SIZE})
spec = {
    "name": "colors",
    "schema": {"fields": [{"name": "color", "type": "string",
                           "constraints": {"enum": ["red", "blue"], "required": True}}]},
    "unit": {"kind": "row"},
    "budget": {"epsilon": 1},
}
with Halftone(*sys.argv[1:]) as client:
    dataset = client.upload(spec, table)
    release = client.release(dataset, SYNTHESIZER, {"epsilon": 0.5}, rows=40)
    synthetic = client.download(release)
    assert list(synthetic.columns) == ["color"] and len(synthetic) == 40
    assert set(synthetic["color"]) <= {"red", "blue"}
    try:
        client.release(dataset, SYNTHESIZER, {"epsilon": 0.6})
    except BudgetExceeded as refused:
        assert str(refused.largest_epsilon) == "0.5", refused.problem
    else:
        raise SystemExit("admitted beyond the budget")
print("done")
"""


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


def test_the_wheel_holds_what_the_service_needs_and_no_tests(wheel_of: Build):
    names = ZipFile(wheel_of(".")).namelist()
    assert "app/alembic.ini" in names
    assert any(name.startswith("app/migrations/versions/0001") for name in names)
    assert not [name for name in names if "test" in name.lower() or "__pycache__" in name]


@pytest.mark.parametrize("project", [".", "client"])
def test_a_wheel_carries_the_licence(wheel_of: Build, project: str):
    wheel = ZipFile(wheel_of(project))
    (licence,) = (name for name in wheel.namelist() if name.endswith("/licenses/LICENSE"))
    assert wheel.read(licence) == (REPOSITORY / "LICENSE").read_bytes()


def test_the_installed_wheel_migrates_and_serves(service_env: Virtualenv, live: Live):
    assert str(service_env.folder) in service_env.run("-c", "import app; print(app.__file__)")
    assert live.get("/v1/me").json()["name"] == "admin"
    names = {item["name"] for item in live.get("/v1/synthesizers").json()["items"]}
    assert {"histogram", "independent", "mst"} <= names
    with closing(sqlite3.connect(live.store / "halftone.sqlite")) as store:
        (version,) = store.execute("SELECT version_num FROM alembic_version").fetchone()
    revisions = (REPOSITORY / "migrations" / "versions").glob("[0-9]*.py")
    assert version == max(path.name.split("_")[0] for path in revisions)


def test_the_client_needs_nothing_of_the_service(
    make_virtualenv: Callable[[], Virtualenv], wheel_of: Build, live: Live
):
    env = make_virtualenv()
    env.install("-c", REPOSITORY / "requirements.lock", wheel_of("client"))
    for module in ("app", "fastapi", "sqlalchemy", "opendp", "pyarrow", "pydantic"):
        assert not env.can_import(module)
    script = env.folder / "script.py"
    for size, synthesizer in ((500, "histogram"), (700, "uniform")):
        tour = CLIENT_TOUR.replace("SYNTHESIZER", repr(synthesizer)).replace("SIZE", str(size))
        script.write_text(tour)
        assert env.run("-W", "error", script, live.base_url, live.key).strip() == "done"


def test_a_synthesizer_from_a_package_of_its_own_is_offered_as_enforced(live: Live):
    offered = live.get("/v1/synthesizers/uniform").json()
    assert (offered["name"], offered["assurance"]) == ("uniform", "enforced")


def test_the_tour_runs_where_there_is_only_httpx(
    make_virtualenv: Callable[[], Virtualenv], live: Live
):
    env = make_virtualenv()
    env.install("-c", REPOSITORY / "requirements.lock", "httpx")
    assert not env.can_import("pandas")
    told = env.run(REPOSITORY / "examples" / "tour_httpx.py", live.base_url, live.key)
    assert told.strip().endswith("The tour is over; all answers were as they should be.")


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


def test_a_method_of_one_module_has_forty_lines() -> None:
    code = [line for line in METHOD.read_text().splitlines() if line.strip()]
    assert len(code) <= 40


def test_such_a_method_is_listed_with_its_form(live: Live) -> None:
    items = live.get("/v1/synthesizers").json()["items"]
    (row,) = [item for item in items if item["name"] == "evenly"]
    assert row["title"] == "Values drawn evenly"
    described = live.get("/v1/synthesizers/evenly").json()
    assert "most_rows" in json.dumps(described)


def test_the_api_description_shows_the_form_of_such_a_method_and_an_example(live: Live) -> None:
    description = live.get("/openapi.json").json()
    request = description["components"]["schemas"]["ReleaseIn"]
    (form,) = [each for each in request["oneOf"] if each["title"] == "evenly"]
    assert "most_rows" in json.dumps(form)
    assert [each for each in request["examples"] if each.get("synthesizer") == "evenly"]


def test_a_release_by_such_a_method_gives_rows_to_download(live: Live, dataset: str) -> None:
    body = {"synthesizer": "evenly", "guarantee": {"epsilon": 1}, "rows": 50}
    asked = post(live, f"/v1/datasets/{dataset}/releases", json=body)
    assert asked.status_code == 202, asked.text
    release = finished(live, f"/v1/releases/{asked.json()['id']}", "succeeded")
    rows = live.get(f"/v1/samples/{release['samples'][0]['id']}/data?format=csv").text.split()
    assert rows[0] == "colour"
    assert len(rows) == 51
    assert set(rows[1:]) <= {"red", "blue"}


def test_auto_picks_such_a_method_by_its_rank(live: Live, dataset: str) -> None:
    body = {"guarantee": {"epsilon": 1}, "rows": 50}
    told = post(live, f"/v1/datasets/{dataset}/releases/preflight", json=body)
    assert told.json()["synthesizer"] == "evenly", told.text
