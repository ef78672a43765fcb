"""The distributions as users get them: built, installed apart from the checkout, and run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from zipfile import ZipFile

import pytest
from installed import REPOSITORY, Live, Virtualenv, serving

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


def test_the_wheel_installed_alone_migrates_and_serves(service_env: Virtualenv, tmp_path: Path):
    assert str(service_env.folder) in service_env.run("-c", "import app; print(app.__file__)")
    with serving(service_env, tmp_path / "store") as live:
        assert live.get("/v1/me").json()["name"] == "admin"
        names = {item["name"] for item in live.get("/v1/synthesizers").json()["items"]}
        assert {"histogram", "independent", "mst"} <= names
    with closing(sqlite3.connect(tmp_path / "store" / "halftone.sqlite")) as store:
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
