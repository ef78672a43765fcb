"""A store of the first version of the schema goes on: nothing charged is lost, all can be sampled.

`plain.sqlite.gz` and `encrypted.sqlite.gz` were made by `make_store.py` on that version.
"""

from __future__ import annotations

import gzip
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from make_store import MASTER_KEY
from pydantic import SecretStr
from release_world import World
from serving import ADMIN_KEY
from sqlalchemy import text

from app.integrity.store import problems
from app.main import create_app
from app.sandbox.child import ChildHost
from app.settings import Settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

HERE = Path(__file__).parent
KEPT = ("accounts", "ledger", "releases", "datasets", "grants", "journal")


def everything(file: Path) -> dict[str, list[dict[str, object]]]:
    """Every row of the tables that an upgrade must keep, by table."""
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as store:
        store.row_factory = sqlite3.Row
        return {
            table: [dict(row) for row in store.execute(f"SELECT * FROM {table} ORDER BY rowid")]
            for table in KEPT
        }


@pytest.fixture(scope="module", params=["plain", "encrypted"])
def upgraded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, dict[str, list[dict[str, object]]]]]:
    """The service on the upgraded store, and what it held before."""
    data = tmp_path_factory.mktemp(request.param)
    file = data / "halftone.sqlite"
    file.write_bytes(gzip.decompress((HERE / f"{request.param}.sqlite.gz").read_bytes()))
    before = everything(file)
    key = SecretStr(MASTER_KEY) if request.param == "encrypted" else None
    settings = Settings(data=data, admin_key=SecretStr(ADMIN_KEY), master_key=key, workers=0)
    app = create_app(settings)
    with TestClient(app) as http:
        yield World(settings, app.state.database, http, {"custodian": ADMIN_KEY}), before


def test_an_upgraded_store_is_whole_and_its_ledgers_verify(upgraded) -> None:
    world, _ = upgraded
    with world.database.read() as session:
        assert list(problems(session)) == []


def test_an_upgrade_changes_no_row_of_the_ledger(upgraded) -> None:
    world, before = upgraded
    after = everything(world.settings.data / "halftone.sqlite")
    assert len(before["ledger"]) >= 4
    for table in ("ledger", "accounts", "grants"):
        kept = [
            {name: row[name] for name in old}
            for old, row in zip(before[table], after[table], strict=True)
        ]
        assert kept == before[table]
    for table in KEPT:
        assert len(after[table]) == len(before[table])


def test_releases_of_the_earlier_version_are_sampled_and_new_ones_made(upgraded) -> None:
    world, before = upgraded
    done = [row["id"] for row in before["releases"] if row["state"] == "succeeded"]
    (rows,) = (each["id"] for each in before["datasets"] if each["name"] == "rows")
    assert len(done) >= 3
    asked = [world.custodian.post(f"/v1/releases/{each}/samples", {"rows": 50}) for each in done]
    body = {"synthesizer": "independent", "guarantee": {"epsilon": 1, "delta": 1e-7}, "rows": 50}
    new = world.custodian.post(f"/v1/datasets/{rows}/releases", body)
    assert new.status_code == 202, new.text
    world.work(ChildHost(world.settings))
    release = world.custodian.get(f"/v1/releases/{new.json()['id']}").json()
    assert release["state"] == "succeeded"
    samples = [answer.json()["id"] for answer in asked if answer.status_code != 410]
    for sample in [*samples, release["samples"][0]["id"]]:
        lines = world.custodian.get(f"/v1/samples/{sample}/data?format=csv").text.splitlines()
        assert len(lines) == 51


def test_the_sums_of_stored_bytes_are_those_of_the_chunks(upgraded) -> None:
    world, _ = upgraded
    with world.database.read() as session:
        kept = dict(session.execute(text("SELECT owner_id, size_bytes FROM stored")).all())
        added = session.execute(
            text(
                "SELECT owner_id, sum(size_bytes) FROM chunks"
                " JOIN collections ON collections.id = chunks.collection GROUP BY owner_id"
            )
        )
        assert kept == dict(added.all())
        assert sum(kept.values()) > 10_000
        unowned = "SELECT 1 FROM chunks WHERE collection NOT IN (SELECT id FROM collections)"
        assert session.execute(text(unowned)).all() == []
