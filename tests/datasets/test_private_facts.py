"""Private facts beside the rows: sealed in an encrypted store, and gone with the dataset."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from office import Office, form, open_office, spec

from app import quota
from app.datasets import blocks, ingest, private_facts, repository
from app.datasets.recognition import CONTENT_KEY
from app.idempotency import REQUEST_KEY
from app.integrity import wrapped
from app.jobs.run import run
from app.jobs.shutdown import Shutdown
from app.jobs.subjects import OUTCOMES
from app.queue.context import JobContext
from app.queue.models import JobRow
from app.signing.keys import PREFIX
from app.storage.encryption import Keyring
from app.storage.secrets import secret

ROWS = 3217
TABLE = "shift,pay\n" + "3,Cash\n" * ROWS
CELL, NAME, DETAIL = "planted-cell-8231", "planted-name-77.csv", "planted-detail-5519"


def bodies() -> dict[str, tuple[dict[str, Any], str]]:
    """A table that is accepted, one with a faulty cell, and one whose ingest fails."""
    return {
        "good": (spec(max_total_rows=10_000), TABLE),
        "faulty": (spec(name="faulty"), f"shift,pay\n3,{CELL}\n"),
        "failing": (spec(name="failing"), "shift,pay\n4,Card\n"),
    }


def sent(declared: dict[str, Any], table: str) -> bytes:
    body = form(("spec", json.dumps(declared)), ("file", table))
    return body.replace(b'filename="t.csv"', f'filename="{NAME}"'.encode())


def unkeyed(declared: dict[str, Any], table: str) -> str:
    """The hash of a request by which version 0.1 remembered it; its numbers are whole here."""
    file = hashlib.sha256(table.encode()).hexdigest()
    sent = _numbers({"spec": declared, "file": file})
    canonical = json.dumps(sent, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _numbers(value: Any) -> Any:
    match value:
        case dict():
            return {key: _numbers(item) for key, item in value.items()}
        case list():
            return [_numbers(item) for item in value]
        case int():
            return {"number": str(value)}
    return value


def files(folder: Path) -> Iterator[bytes]:
    return (path.read_bytes() for path in folder.rglob("*") if path.is_file())


def values(office: Office) -> Iterator[Any]:
    """Every value of every table of the store."""
    with closing(sqlite3.connect(office.database.path)) as store:
        tables = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for row in store.execute(f'SELECT * FROM "{table}"'):
                yield from row


def states_rows(value: Any) -> bool:
    if isinstance(value, str):
        return re.search(rf"(?<![\w+/=.]){ROWS}(?![\w+/=])", value) is not None
    return value == ROWS


def found(office: Office, folder: Path, planted: dict[str, bytes]) -> set[str]:
    """Which of these facts are on the disk, and whether the number of rows is in the store."""
    contents = list(files(folder))
    there = {name for name, value in planted.items() if any(value in each for each in contents)}
    return there | ({"rows"} if any(map(states_rows, values(office))) else set())


def keyed_hashes(office: Office) -> dict[str, bytes]:
    with closing(sqlite3.connect(office.database.path)) as store:
        rows = store.execute("SELECT key, body_hash FROM idempotency").fetchall()
    return {f"keyed {key}": digest.encode() for key, digest in rows}


def failing(job: JobContext) -> None:
    raise RuntimeError(f"row 1 of {job.dataset_id} holds {DETAIL}")


@pytest.mark.parametrize("encrypted", [True, False])
def test_no_private_fact_is_in_the_clear_in_an_encrypted_store_nor_in_any_after_erasure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, encrypted: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    with open_office(tmp_path, encrypted=encrypted) as office:
        ids = {}
        for kind, (declared, table) in bodies().items():
            answer = office.custodian.send_form(sent(declared, table), **{"Idempotency-Key": kind})
            ids[kind] = answer.json()["id"]
        planted = {"cell": CELL.encode(), "name": NAME.encode(), "detail": DETAIL.encode()}
        for kind, (declared, table) in bodies().items():
            digest = hashlib.sha256(table.encode())
            planted |= {
                f"file {kind}": digest.hexdigest().encode(),
                f"raw {kind}": digest.digest(),
                f"request {kind}": unkeyed(declared, table).encode(),
            }
        # While the uploads wait, a plain one is a file in the staging folder.
        assert found(office, tmp_path, planted) == (set() if encrypted else {"cell"})
        for execute in (ingesting, ingesting, failing):
            run(office.claim(), execute, OUTCOMES["ingest"], Shutdown(0))
        seen = {kind: office.custodian.dataset(dataset_id) for kind, dataset_id in ids.items()}
        assert [each["state"] for each in seen.values()] == ["ready", "rejected", "rejected"]
        assert seen["good"]["custodian"]["rows"] == ROWS
        assert office.custodian.report(ids["good"])["rows"] == ROWS
        assert CELL in office.custodian.report(ids["faulty"])["problems"][0]["message"]
        assert found(office, tmp_path, planted) == (
            set() if encrypted else {"rows", "cell", "detail"}
        )
        if encrypted:
            with office.database.read() as session:
                for name in (CONTENT_KEY, REQUEST_KEY):
                    key = secret(session, Keyring(office.settings), name)
                    assert not any(key in each for each in files(tmp_path))
        planted |= keyed_hashes(office)
        for dataset_id in ids.values():
            assert office.custodian.call("DELETE", f"/datasets/{dataset_id}").status_code == 200
        assert found(office, tmp_path, planted) == set()
        # Not the times of a record, whose digits may be any.
        text = caplog.text + "".join(f"{each.args} {each.exc_text}" for each in caplog.records)
        assert not any(value in text for value in (CELL, NAME, DETAIL))
        assert not states_rows(text)
        # What was sent cannot be compared any more, and the dataset is not made a second time.
        declared, table = bodies()["good"]
        again = office.custodian.send_form(sent(declared, table), **{"Idempotency-Key": "good"})
        assert (again.status_code, again.json()["id"]) == (202, ids["good"])


def ingesting(job: JobContext) -> None:
    ingest.run(job, quota.used_bytes)


def test_a_failure_is_told_to_the_custodian_in_the_clear(tmp_path: Path) -> None:
    with open_office(tmp_path, encrypted=True) as office:
        dataset_id = office.custodian.send_form(sent(*bodies()["failing"])).json()["id"]
        job = office.claim()
        run(job, failing, OUTCOMES["ingest"], Shutdown(0))
        with office.database.read() as session:
            row = repository.get(session, dataset_id)
            assert row is not None
            stored = session.get_one(JobRow, job.job_id).private_detail
            keyring = Keyring(office.settings)
            assert DETAIL in str(private_facts.detail(row, keyring, job.job_id, stored))
            # Sealed for its own place alone.
            moved = private_facts.detail(row, keyring, "jb_other", stored)
            assert moved == private_facts.UNREADABLE


def test_every_wrapped_key_is_listed_and_opens_under_the_next_master_key(tmp_path: Path) -> None:
    with open_office(tmp_path, encrypted=True) as office:
        made = office.uploaded()
        old = Keyring(office.settings)
        with open_office(tmp_path / "other", encrypted=True) as other:
            new = Keyring(other.settings)
        with office.database.write() as session:
            owners = [key.owner for key in wrapped.keys(session)]
            before = {owner: secret(session, old, owner) for owner in owners if owner != made["id"]}
            for key in list(wrapped.keys(session)):
                key.rewrap(session, old, new)
            session.expire_all()
            assert owners == [key.owner for key in wrapped.keys(session)]
            assert {owner: secret(session, new, owner) for owner in before} == before
        assert {CONTENT_KEY, REQUEST_KEY} <= set(wrapped.STORE_KEYS)
        signing = {owner for owner in owners if owner.startswith(PREFIX)}
        assert len(signing) == 1
        assert set(owners) == {*wrapped.STORE_KEYS, *signing, made["id"]}


@pytest.mark.parametrize("rows", [1, 100, 5000, 131_072])
def test_the_size_of_a_sealed_part_hardly_depends_on_its_rows(rows: int) -> None:
    codes = np.random.default_rng(1).integers(0, 20, rows, dtype=np.uint8)
    packed = blocks.pack(codes)
    padded = blocks.padded(packed)
    assert np.array_equal(blocks.unpack(padded), codes)
    assert len(padded) <= max(4096, 1.125 * (len(packed) + 8))
    assert len(padded) == 4096 or len(padded).bit_count() <= 4


def test_padded_texts_are_read_back() -> None:
    assert blocks.unpack_texts(blocks.padded(blocks.pack_texts(["a", "é"]))) == ("a", "é")


def test_a_manifest_has_the_same_length_for_every_number_of_rows() -> None:
    sizes = {len(blocks.Manifest(rows, 2**17).to_bytes()) for rows in (0, 99, 10**12)}
    assert len(sizes) == 1
    assert blocks.Manifest.from_bytes(blocks.Manifest(99, 7).to_bytes()) == blocks.Manifest(99, 7)
