"""A store of version 0001 keeps its meaning, and its facts in the clear are sealed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import text

from app.database import Database
from app.datasets import private_facts, recognition, repository
from app.integrity.sealing import prepare_secrets
from app.migrate import configuration, to_head
from app.queue.models import JobRow
from app.settings import Settings
from app.storage.encryption import Keyring
from app.storage.models import SecretRow
from app.storage.secrets import is_wrapped

MASTER = base64.b64encode(os.urandom(32)).decode()
CONTENT_KEY = os.urandom(32)
DIGEST = os.urandom(32)
REPORT = {"problems": [{"message": "planted-report"}], "rows": 3217}
TIME = "2030-01-01T00:00:00.000000Z"
PLANTED = ("planted-report", "planted-detail", "planted-file", "planted-hash")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An encrypted dataset, one of before the encryption, and an erased one, as 0001 held them."""
    url = f"sqlite:///{tmp_path}/store.sqlite"
    database = Database(url)
    with database.write_engine.connect() as connection:
        config = configuration(url)
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.commit()
    with database.write() as session:
        put(session, "principals", id="pr_a", name="a", is_admin=0, is_custodian=1, is_analyst=0,
            state="active", created_at=TIME)  # fmt: skip
        put(session, "secrets", name="content-key", value=CONTENT_KEY)
        for name, state, key in (
            ("sealed", "ready", keyring().new_key("ds_sealed")),
            ("plain", "ready", None),
            ("erased", "erased", None),
            ("waiting", "ingesting", None),
        ):
            dataset(session, f"ds_{name}", state, key)
    yield database
    database.close()


def keyring(master: str | None = MASTER) -> Keyring:
    return Keyring(Settings(master_key=master))


def put(session: Any, table: str, **values: Any) -> None:
    names = ", ".join(f'"{name}"' for name in values)
    session.execute(
        text(f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in values)})"),
        values,
    )


def dataset(session: Any, dataset_id: str, state: str, wrapped_key: str | None) -> None:
    is_ready, is_erased = state == "ready", state == "erased"
    staged = {"name": "st_a", "size_bytes": 7, "sha256": "planted-hash", "media_type": "text/csv",
              "file_name": "planted-file"}  # fmt: skip
    put(session, "datasets", id=dataset_id, owner_id="pr_a", name="a", visibility="private",
        state=state, closed=0, schema="{}", unit="{}", max_total_rows=9, file_options="{}",
        created_at=TIME, ready_at=None if state == "ingesting" else TIME,
        rows=3217 if is_ready else None, content_hmac=DIGEST.hex(),
        ingest_report=json.dumps(REPORT) if is_ready else None, wrapped_key=wrapped_key,
        staged=json.dumps(staged) if state == "ingesting" else None)  # fmt: skip
    put(session, "jobs", id=f"jb_{dataset_id}", kind="fit", subject_id="rl", dataset_id=dataset_id,
        state="failed", claims=1, losses=0, fence=1, memory_bytes=1, time_limit_s=1, progress=0,
        stage="failed", private_detail=None if is_erased else "planted-detail",
        created_at=TIME)  # fmt: skip
    put(session, "idempotency", principal_id="pr_a", operation="datasets.create", key=dataset_id,
        body_hash=hashlib.sha256(dataset_id.encode()).hexdigest(), status=202,
        resource_id=dataset_id, created_at=TIME)  # fmt: skip


def on_disk(database: Database) -> set[str]:
    contents = [path.read_bytes() for path in database.path.parent.iterdir()]
    return {planted for planted in PLANTED if any(planted.encode() in each for each in contents)}


def upgraded(database: Database, keyring: Keyring) -> bytes:
    to_head(f"sqlite:///{database.path}")
    return prepare_secrets(database, keyring)


@pytest.mark.parametrize("master", [MASTER, None], ids=["with the key", "without"])
def test_facts_are_read_as_before(database: Database, master: str | None) -> None:
    upgraded(database, keyring(master))
    with database.read() as session:
        for name in ("plain", "sealed") if master else ("plain",):
            row = repository.get(session, f"ds_{name}")
            assert row is not None
            assert private_facts.report(row, keyring(master)) == REPORT
            assert private_facts.exact_rows(row, keyring(master)) == 3217
            stored = session.get_one(JobRow, f"jb_ds_{name}").private_detail
            detail = private_facts.detail(row, keyring(master), f"jb_ds_{name}", stored)
            assert detail == "planted-detail"


def test_the_first_start_with_the_key_seals_what_belongs_to_encrypted_datasets(
    database: Database,
) -> None:
    with database.write() as session:
        session.execute(text("DELETE FROM datasets WHERE id IN ('ds_plain', 'ds_waiting')"))
        session.execute(text("DELETE FROM jobs WHERE dataset_id IN ('ds_plain', 'ds_waiting')"))
    upgraded(database, keyring())
    assert on_disk(database) == set()
    with database.read() as session:
        row = repository.get(session, "ds_sealed")
        assert row is not None
        assert (row.rows, type(row.ingest_report)) == (None, str)
        assert all(is_wrapped(each.value) for each in session.query(SecretRow))


def test_hashes_of_requests_are_keyed_and_forgotten_where_the_dataset_is_erased(
    database: Database,
) -> None:
    key = upgraded(database, keyring())
    with database.read() as session:
        found = dict(session.execute(text("SELECT key, body_hash FROM idempotency")).all())
    for dataset_id in ("ds_sealed", "ds_plain"):
        plain = hashlib.sha256(dataset_id.encode()).hexdigest()
        assert found[dataset_id] == hmac.new(key, plain.encode(), hashlib.sha256).hexdigest()
    assert found["ds_erased"] == ""


def test_content_is_recognised_as_before_and_by_owner(database: Database) -> None:
    upgraded(database, keyring())
    with database.read() as session:
        assert recognition.content_key(session, keyring()) == CONTENT_KEY
        row = repository.get(session, "ds_erased")
        assert row is not None
        assert row.content_hmac == recognition.content_hmac(CONTENT_KEY, "pr_a", DIGEST)


def test_an_upload_that_waits_keeps_its_place_alone(database: Database) -> None:
    upgraded(database, keyring())
    with database.read() as session:
        row = repository.get(session, "ds_waiting")
        assert row is not None
        assert row.staged == {"name": "st_a", "media_type": "text/csv"}
    assert on_disk(database) == {"planted-report", "planted-detail"}


def test_starting_again_changes_nothing_and_a_new_key_is_made_once(database: Database) -> None:
    first = upgraded(database, keyring())
    before = database.path.read_bytes()
    assert prepare_secrets(database, keyring()) == first
    assert database.path.read_bytes() == before
