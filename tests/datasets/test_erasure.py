"""Erasing: what goes, what stays, and that it is gone from the disk."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from office import CSV, Office, open_office, spec, upload_form
from sqlalchemy import select, text, update

from app import erasure, quota
from app.datasets import ingest
from app.datasets.codes import DatasetUnreadable, StoredCodes
from app.datasets.models import DatasetRow
from app.ledger.models import AccountRow
from app.queue.jobs import JobCancelled
from app.queue.models import JobRow
from app.storage.encryption import Keyring


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with open_office(tmp_path) as opened:
        yield opened


def test_a_planted_value_is_in_no_file_after_erasure(office: Office, tmp_path: Path) -> None:
    """The codes of a column of fresh random letters: the stored bytes hold the planted run."""
    letters = [secrets.choice("abcdefgh") for _ in range(4000)]
    schema = {
        "fields": [{"name": "letter", "type": "string", "constraints": {"enum": list("abcdefgh")}}]
    }
    made = office.uploaded("letter\n" + "\n".join(letters), schema=schema, max_total_rows=10**6)
    with office.database.read() as session:
        stored: bytes = session.execute(
            text("SELECT data FROM chunks WHERE part = 'column-0'")
        ).scalar_one()
    planted = stored[100:132]

    def holders() -> list[str]:
        return [
            path.name
            for path in tmp_path.rglob("*")
            if path.is_file() and planted in path.read_bytes()
        ]

    assert holders() != []
    answer = office.custodian.call("DELETE", f"/datasets/{made['id']}")
    assert (answer.status_code, answer.json()["state"]) == (200, "erased")
    assert holders() == []


def test_after_erasure_ledger_account_and_content_digest_stay(office: Office) -> None:
    made = office.uploaded()
    erased = office.custodian.call("DELETE", f"/datasets/{made['id']}").json()
    facts = erased["custodian"]
    assert (facts["rows"], facts["stored_bytes"]) == (None, 0)
    assert facts["erased_at"] is not None
    with office.database.read() as session:
        row = session.get_one(DatasetRow, made["id"])
        assert row.content_hmac is not None
        assert (row.ingest_report, row.staged, row.wrapped_key) == (None, None, None)
        assert session.get(AccountRow, row.account_id) is not None
    with pytest.raises(DatasetUnreadable):
        StoredCodes(office.database, Keyring(office.settings), made["id"])
    assert office.custodian.get(f"/datasets/{made['id']}/ingest-report").status_code == 404
    assert office.custodian.put(made["id"]).status_code == 409
    again = office.custodian.call("DELETE", f"/datasets/{made['id']}")
    assert again.json() == erased


def test_the_key_of_an_encrypted_table_goes_with_it(tmp_path: Path) -> None:
    with open_office(tmp_path, encrypted=True) as office:
        made = office.uploaded()
        office.custodian.call("DELETE", f"/datasets/{made['id']}")
        with office.database.read() as session:
            assert session.get_one(DatasetRow, made["id"]).wrapped_key is None


def test_an_ingest_that_waits_is_cancelled_and_its_upload_unlinked(office: Office) -> None:
    dataset_id = office.custodian.send_form(upload_form()).json()["id"]
    assert len(office.staged_files()) == 1
    office.custodian.call("DELETE", f"/datasets/{dataset_id}")
    assert office.staged_files() == []
    with office.database.read() as session:
        assert session.scalars(select(JobRow.state)).all() == ["cancelled"]


def test_an_ingest_that_runs_can_store_nothing_more(office: Office) -> None:
    dataset_id = office.custodian.send_form(upload_form()).json()["id"]
    job = office.claim()
    office.custodian.call("DELETE", f"/datasets/{dataset_id}")
    with pytest.raises(JobCancelled):
        ingest.run(job, quota.used_bytes)
    assert office.custodian.dataset(dataset_id)["custodian"]["stored_bytes"] == 0


def test_an_upload_that_ends_after_the_erasure_is_refused(office: Office) -> None:
    dataset_id = office.custodian.declare().json()["id"]
    office.custodian.call("DELETE", f"/datasets/{dataset_id}")
    assert office.custodian.put(dataset_id).status_code == 409
    assert office.staged_files() == []


def test_what_a_stopped_process_left_is_dropped_at_the_next_start(tmp_path: Path) -> None:
    with open_office(tmp_path) as office:
        made = office.uploaded()
        waiting = office.custodian.send_form(upload_form(CSV + "1,Cash\n")).json()["id"]
        with office.database.write() as session:
            session.execute(
                update(DatasetRow).where(DatasetRow.id == made["id"]).values(state="erased")
            )
        stray = office.settings.data / "staging" / "st_stray"
        stray.write_bytes(CSV.encode())
        erasure.finish_interrupted(office.database, office.settings)
        assert office.custodian.dataset(made["id"])["custodian"]["stored_bytes"] == 0
        assert len(office.staged_files()) == 1
        office.work()
        assert office.custodian.dataset(waiting)["state"] == "ready"


def test_nobody_elses_dataset_can_be_erased(office: Office) -> None:
    made = office.uploaded()
    other = office.person(is_custodian=True)
    assert other.call("DELETE", f"/datasets/{made['id']}").status_code == 404
    assert office.custodian.dataset(made["id"])["state"] == "ready"
    assert office.custodian.declare(spec()).status_code == 201
