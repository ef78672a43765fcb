"""Chunks that have gone, or hold other bytes, are noticed before anything is charged for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from office import CSV, Office, open_office
from sqlalchemy import delete, insert, select, update

from app.backup import BackupBroken, back_up
from app.database import Database
from app.datasets import damage
from app.integrity.store import problems
from app.jobs.executors import executors
from app.jobs.shutdown import Shutdown
from app.jobs.subjects import OUTCOMES
from app.jobs.worker import Worker
from app.sandbox.child import ChildHost
from app.security.models import AuditRow
from app.storage.models import ChunkRow, PartRow

BODY = {"synthesizer": "independent", "guarantee": {"epsilon": "0.5"}, "rows": 5}


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Office]:
    with open_office(tmp_path, encrypted=request.param) as opened:
        yield opened


def take_chunks(database: Database, collection: str, part: str) -> list[dict[str, Any]]:
    """Remove the chunks of a part as damage would, without the service; returns them."""
    chunks = ChunkRow.__table__
    with database.write() as session:
        wanted = (chunks.c.collection == collection) & (chunks.c.part == part)
        rows = [dict(row) for row in session.execute(select(chunks).where(wanted)).mappings()]
        session.execute(delete(chunks).where(wanted))
    assert rows
    return rows


def put_back(database: Database, rows: list[dict[str, Any]]) -> None:
    with database.write() as session:
        session.execute(insert(ChunkRow.__table__), rows)


def found(database: Database) -> list[str]:
    with database.read() as session:
        return list(problems(session))


def spent(office: Office, dataset: str) -> str:
    return str(office.custodian.get(f"/datasets/{dataset}/budget").json()["spent"]["epsilon"])


def test_a_dataset_without_its_chunks_is_refused_before_the_charge(office: Office) -> None:
    made = office.uploaded()["id"]
    taken = take_chunks(office.database, made, "column-1")
    for path in ("releases/preflight", "releases"):
        answer = office.custodian.call("POST", f"/datasets/{made}/{path}", json=BODY)
        assert answer.status_code == 409
        assert "damaged" in answer.json()["detail"]
    assert spent(office, made) == "0"
    assert office.custodian.dataset(made)["state"] == "damaged"
    assert damage.settle(office.database) == [made]
    put_back(office.database, taken)
    assert damage.settle(office.database) == []
    assert office.custodian.dataset(made)["state"] == "ready"
    asked = office.custodian.call("POST", f"/datasets/{made}/releases", json=BODY)
    assert asked.status_code == 202, asked.text
    with office.database.read() as session:
        noted = session.scalars(select(AuditRow.action).where(AuditRow.subject == made)).all()
    assert [each for each in noted if each in ("dataset.damaged", "dataset.restored")] == [
        "dataset.damaged",
        "dataset.restored",
    ]


def test_a_public_dataset_without_its_chunks_is_refused_before_the_charge(office: Office) -> None:
    made = office.uploaded()["id"]
    public = office.uploaded(CSV + "7,Cash\n", visibility="public", budget=None)["id"]
    take_chunks(office.database, public, "column-0")
    body = BODY | {"synthesizer": "mst", "public_dataset": public}
    answer = office.custodian.call("POST", f"/datasets/{made}/releases", json=body)
    assert answer.status_code == 409
    assert spent(office, made) == "0"


@pytest.mark.parametrize("part", ["manifest", "column-0"])
def test_a_store_that_lost_chunks_is_not_called_whole(
    office: Office, tmp_path: Path, part: str
) -> None:
    made = office.uploaded()["id"]
    assert found(office.database) == []
    taken = take_chunks(office.database, made, part)
    assert found(office.database) == [f"part {made}/{part} has not all its chunks"]
    with pytest.raises(BackupBroken):
        back_up(office.database, tmp_path / "copy.sqlite")
    put_back(office.database, taken)
    assert found(office.database) == []


def test_a_store_that_lost_a_whole_table_is_not_called_whole(office: Office) -> None:
    made = office.uploaded()["id"]
    with office.database.write() as session:
        for table in (ChunkRow.__table__, PartRow.__table__):
            session.execute(delete(table).where(table.c.collection == made))
    assert found(office.database) == [f"dataset {made} has none of its parts"]
    assert damage.settle(office.database) == [made]


def test_chunks_of_another_upload_are_told_from_those_that_were_stored(office: Office) -> None:
    one, other = office.uploaded()["id"], office.uploaded(CSV + "7,Cash\n")["id"]
    take_chunks(office.database, one, "column-0")
    theirs = take_chunks(office.database, other, "column-0")
    put_back(office.database, [row | {"collection": one} for row in theirs] + theirs)
    assert f"part {one}/column-0 does not hold the chunks that were stored" in found(
        office.database
    )


def test_a_table_found_damaged_by_a_run_takes_no_further_release(office: Office) -> None:
    made = office.uploaded()["id"]
    with office.database.write() as session:
        wanted = (ChunkRow.collection == made) & (ChunkRow.part == "column-0")
        session.execute(update(ChunkRow).where(wanted).values(data=b"other bytes"))
    asked = office.custodian.call("POST", f"/datasets/{made}/releases", json=BODY)
    assert asked.status_code == 202
    host = ChildHost(office.settings)
    worker = Worker(office.database, office.settings, executors(host), OUTCOMES, Shutdown(0))
    claim = worker.next_claim()
    assert claim is not None
    worker.run(claim)
    release = office.custodian.get(f"/releases/{asked.json()['id']}").json()
    assert release["state"] == "failed"
    assert office.custodian.dataset(made)["state"] == "damaged"
    again = office.custodian.call("POST", f"/datasets/{made}/releases", json=BODY)
    assert again.status_code == 409
    assert damage.settle(office.database) == [made]
