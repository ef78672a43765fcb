"""A store that was put back to an earlier moment gives no spent budget back."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from office import Office, Person, open_office
from sqlalchemy import select
from sqlalchemy.orm import Session

from app import cli
from app.engine.privacy.loss import Charge
from app.integrity.acknowledgement import acknowledge
from app.integrity.ledgers import verify_all
from app.integrity.startup import check_ledgers
from app.integrity.store import problems
from app.jobs.executors import executors
from app.jobs.shutdown import Shutdown
from app.jobs.subjects import OUTCOMES
from app.jobs.worker import Worker
from app.ledger import repository
from app.ledger.entries import append
from app.ledger.marks import Marks, behind, heads
from app.ledger.models import LedgerRow
from app.problems import Conflict
from app.queue import jobs
from app.sandbox.child import ChildHost
from app.storage.encryption import Keyring


def release(by: Person, dataset: str, epsilon: str) -> int:
    body = {"synthesizer": "independent", "guarantee": {"epsilon": epsilon}, "rows": 5}
    return int(by.call("POST", f"/datasets/{dataset}/releases", json=body).status_code)


def spent(by: Person, dataset: str) -> str:
    return str(by.get(f"/datasets/{dataset}/budget").json()["spent"]["epsilon"])


def marks_of(office: Office) -> Marks:
    return Marks.of(office.database, Keyring(office.settings))


def started(office: Office) -> list[str]:
    """The accounts that a start suspends."""
    return [found.account_id for found in check_ledgers(office.database, marks_of(office))]


@dataclass
class Earlier:
    """A folder whose store was put back to before the last two of three charges."""

    folder: Path
    dataset: str
    custodian: tuple[str, str]
    settings: dict[str, Any]

    @contextmanager
    def opened(self) -> Iterator[tuple[Office, Person]]:
        with open_office(self.folder, **self.settings) as office:
            yield office, Person(office.http, *self.custodian)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Earlier:
    with open_office(tmp_path, encrypted=request.param) as office:
        by = office.custodian
        dataset = office.uploaded(budget={"epsilon": 10, "delta": 0})["id"]
        assert release(by, dataset, "0.5") == 202
        assert started(office) == []
        office.database.checkpoint(patience_s=5)
        shutil.copy(office.database.path, tmp_path / "backup")
        assert release(by, dataset, "2") == release(by, dataset, "3.25") == 202
        assert spent(by, dataset) == "5.75"
        assert started(office) == []
        path, secret = office.database.path, office.settings.master_key
        key = by.headers["Authorization"].removeprefix("Bearer ")
    shutil.copy(tmp_path / "backup", path)
    for log in ("-wal", "-shm"):
        Path(f"{path}{log}").unlink(missing_ok=True)
    settings = {} if secret is None else {"master_key": secret.get_secret_value()}
    return Earlier(tmp_path, dataset, (by.id, key), settings)


def test_an_earlier_store_takes_no_charge_until_it_is_acknowledged(earlier: Earlier) -> None:
    with earlier.opened() as (office, by):
        assert spent(by, earlier.dataset) == "0.5"
        (account,) = started(office)
        assert release(by, earlier.dataset, "0.5") == 503
        assert office.http.request("GET", "/readyz").status_code == 503
        assert started(office) == [account]

        charged = acknowledge(office.database, marks_of(office), account, "the disk was replaced")
        assert charged.primary == 5_250_000_000_000
        assert spent(by, earlier.dataset) == "5.75"
        assert release(by, earlier.dataset, "4.3") == 409
        assert release(by, earlier.dataset, "4.25") == 202
        assert started(office) == []
        with office.database.read() as session:
            assert all(found.ok for found in verify_all(session, marks_of(office).read()))
            kind = LedgerRow.kind == "acknowledged"
            (entry,) = session.scalars(select(LedgerRow).where(kind)).all()
        assert entry.detail["reason"] == "the disk was replaced"
        with pytest.raises(Conflict):
            acknowledge(office.database, marks_of(office), account, "once more")


def test_the_commands_say_so_and_go_on(
    earlier: Earlier, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with earlier.opened() as (office, _):
        data = office.settings.data
        (account,) = started(office)
    monkeypatch.setenv("HALFTONE_DATA", str(data))
    assert cli.main(["verify", "--ledgers-only"]) == cli.FOUND_PROBLEMS
    assert f"halftone acknowledge {account}" in capsys.readouterr().out
    if key := earlier.settings.get("master_key"):
        monkeypatch.setenv("HALFTONE_MASTER_KEY", key)
    assert cli.main(["acknowledge", account, "--reason", "a restored backup"]) == cli.DONE
    assert "'epsilon': '5.25'" in capsys.readouterr().out
    assert cli.main(["verify", "--ledgers-only"]) == cli.DONE


def test_a_certificate_shows_that_a_store_was_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_office(tmp_path) as office:
        dataset = office.uploaded(budget={"epsilon": 10, "delta": 0})["id"]
        office.database.checkpoint(patience_s=5)
        shutil.copy(office.database.path, tmp_path / "backup")
        body = {"synthesizer": "independent", "guarantee": {"epsilon": "1"}, "rows": 5}
        asked = office.custodian.call("POST", f"/datasets/{dataset}/releases", json=body).json()
        host = ChildHost(office.settings)
        worker = Worker(office.database, office.settings, executors(host), OUTCOMES, Shutdown(0))
        claim = worker.next_claim()
        assert claim is not None
        worker.run(claim)
        wire = office.custodian.get(f"/releases/{asked['id']}/certificate").json()
        path = office.database.path
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(wire))
    monkeypatch.setenv("HALFTONE_DATA", str(path.parent))
    verify = ["verify", "--certificate", str(file)]
    assert cli.main(verify) == cli.DONE
    file.write_text(json.dumps(wire | {"ledger_signature": "0" * 64}))
    assert cli.main(verify) == cli.FOUND_PROBLEMS
    file.write_text(json.dumps(wire))
    shutil.copy(tmp_path / "backup", path)
    for log in ("-wal", "-shm"):
        Path(f"{path}{log}").unlink(missing_ok=True)
    assert cli.main(verify) == cli.FOUND_PROBLEMS


def test_a_mark_behind_its_chain_is_no_fault(tmp_path: Path) -> None:
    """As after a crash between a commit and its mark, or one that ended the write of a line."""
    with open_office(tmp_path) as office:
        dataset = office.uploaded(budget={"epsilon": 10, "delta": 0})["id"]
        for _ in range(3):
            assert release(office.custodian, dataset, "1") == 202
        path = office.database.path.with_suffix(".marks")
        lines = path.read_text().splitlines(keepends=True)
        assert len(lines) == 4
        path.write_text("".join(lines[:2]) + lines[2][:40])
        assert started(office) == []
        assert len(path.read_text().splitlines()) == 1
        path.unlink()
        assert started(office) == []
        assert json.loads(path.read_text())["entries"] == 4


def test_a_mark_that_was_changed_holds_charges_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_office(tmp_path) as office:
        dataset = office.uploaded()["id"]
        assert release(office.custodian, dataset, "0.5") == 202
        path = office.database.path.with_suffix(".marks")
        mark = json.loads(path.read_text().splitlines()[-1])
        path.write_text(json.dumps(mark | {"entries": 99}) + "\n")
        assert started(office) == [mark["account_id"]]
        assert "is not signed by this store" in caplog.text


def test_a_line_that_is_not_signed_lets_no_earlier_store_pass(earlier: Earlier) -> None:
    with earlier.opened() as (office, _):
        with office.database.read() as session:
            (head,) = heads(session).values()
        with office.database.path.with_suffix(".marks").open("a") as file:
            file.write(head.line(b"another key"))
        assert started(office) == [head.account_id]


def test_a_line_that_was_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    with open_office(tmp_path) as office:
        dataset = office.uploaded(budget={"epsilon": 10, "delta": 0})["id"]
        with office.database.path.with_suffix(".marks").open("a") as file:
            file.write('{"account_id": "ac')
        assert release(office.custodian, dataset, "1") == 202
        (mark,) = marks_of(office).read().values()
        assert mark.entries == 2


def test_what_a_savepoint_undid_leaves_no_mark(tmp_path: Path) -> None:
    """Requests that commit together have a savepoint each, and one of them may fail."""
    one = Charge(1_000_000_000_000, 0)
    with open_office(tmp_path) as office:
        dataset = office.uploaded(budget={"epsilon": 10, "delta": 0})["id"]
        (account,) = marks_of(office).read()

        def charge(session: Session, *, fails: bool) -> None:
            with session.begin_nested():
                head = repository.spend(session, account, one)
                assert head is not None
                append(
                    session,
                    account,
                    head,
                    kind="charge",
                    amount=one,
                    dataset_id=dataset,
                    principal_id="pr_1",
                    detail={},
                )
                if fails:
                    raise Conflict("later in the same request")

        with office.database.write() as session:
            charge(session, fails=False)
            with pytest.raises(Conflict):
                charge(session, fails=True)
        marks = marks_of(office).read()
        assert marks[account].entries == 2
        with office.database.read() as session:
            assert not behind(session, marks)


def test_an_account_that_the_store_has_forgotten_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_office(tmp_path) as office:
        office.database.checkpoint(patience_s=5)
        path = office.database.path
        shutil.copy(path, tmp_path / "backup")
        office.uploaded(budget={"epsilon": 10, "delta": 0})
        (account,) = marks_of(office).read()
    shutil.copy(tmp_path / "backup", path)
    for log in ("-wal", "-shm"):
        Path(f"{path}{log}").unlink(missing_ok=True)
    monkeypatch.setenv("HALFTONE_DATA", str(path.parent))
    assert cli.main(["verify", "--ledgers-only"]) == cli.FOUND_PROBLEMS
    command = ["acknowledge", account, "--reason", "backup of Sunday"]
    assert cli.main(command) == cli.DONE
    assert cli.main(["verify", "--ledgers-only"]) == cli.DONE
    assert cli.main(command) != cli.DONE


@dataclass
class Waiting:
    """A folder whose store was put back to when its only release waited; it ran since then."""

    folder: Path
    release: str
    dataset: str
    custodian: tuple[str, str]

    @contextmanager
    def opened(self) -> Iterator[tuple[Office, Person]]:
        with open_office(self.folder) as office:
            yield office, Person(office.http, *self.custodian)


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    with open_office(tmp_path) as office:
        by = office.custodian
        dataset = office.uploaded(budget={"epsilon": 10, "delta": 0})["id"]
        body = {"synthesizer": "independent", "guarantee": {"epsilon": "2"}, "rows": 5}
        asked = by.call("POST", f"/datasets/{dataset}/releases", json=body).json()["id"]
        office.database.checkpoint(patience_s=5)
        shutil.copy(office.database.path, tmp_path / "backup")
        office.claim()
        assert release(by, dataset, "1") == 202
        path = office.database.path
        key = by.headers["Authorization"].removeprefix("Bearer ")
    shutil.copy(tmp_path / "backup", path)
    for log in ("-wal", "-shm"):
        Path(f"{path}{log}").unlink(missing_ok=True)
    return Waiting(tmp_path, asked, dataset, (by.id, key))


def test_a_release_that_waits_in_an_earlier_store_is_not_run_again(waiting: Waiting) -> None:
    """It may have run since: other noise for the same charge would be a second loss."""
    with waiting.opened() as (office, by):
        (account,) = started(office)
        assert by.get(f"/releases/{waiting.release}").json()["state"] == "failed"
        with office.database.write() as session:
            assert jobs.claim(session, "worker", 60) is None
        acknowledge(office.database, marks_of(office), account, "the disk was replaced")
        assert spent(by, waiting.dataset) == "3"
        assert by.call("POST", f"/releases/{waiting.release}/cancel").status_code == 409
        with office.database.read() as session:
            assert not list(problems(session))


def test_a_refund_lets_no_earlier_store_pass(waiting: Waiting) -> None:
    """An account that is suspended gets no entry, whose mark would hide what was forgotten."""
    with waiting.opened() as (office, by):
        with office.database.read() as session:
            (account,) = repository.account_ids(session)
        with office.database.write() as session:
            repository.suspend(session, account, suspended=True)
        answer = by.call("POST", f"/releases/{waiting.release}/cancel").json()
        assert (answer["state"], answer["refunded"]) == ("cancelled", False)
        assert started(office) == [account]


@pytest.mark.parametrize(
    "changed",
    [{"entries": "5"}, {"entries": 10**30}, {"spent_primary": None}, {"account_id": ["ac"]}],
    ids=str,
)
def test_a_damaged_line_is_left_out(tmp_path: Path, changed: dict[str, Any]) -> None:
    """It must keep no service from starting."""
    with open_office(tmp_path) as office:
        office.uploaded()
        path = office.database.path.with_suffix(".marks")
        mark = json.loads(path.read_text().splitlines()[-1])
        with path.open("a") as file:
            file.write(json.dumps(mark | changed) + "\n")
        assert started(office) == []


def test_a_start_needs_no_room_for_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A service on a full disk starts, so that something can be erased; its marks stay."""

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_office(tmp_path) as office:
        office.uploaded()
        before = marks_of(office).read()
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", is_full)
            assert started(office) == []
        assert marks_of(office).read() == before
        assert "could not be written" in caplog.text
        assert not list(office.settings.data.glob("*.partial"))


def test_a_mark_that_was_cut_off_by_a_full_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A write of a part of a line raises nothing by itself."""
    whole = os.write

    def part(descriptor: int, data: bytes) -> int:
        if len(data) < 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(descriptor, data[: len(data) // 2])

    with open_office(tmp_path) as office:
        dataset = office.uploaded(budget={"epsilon": 10, "delta": 0})["id"]
        with monkeypatch.context() as full:
            full.setattr(os, "write", part)
            assert release(office.custodian, dataset, "1") == 202
        assert "could not be written" in caplog.text
        assert release(office.custodian, dataset, "1") == 202
        (mark,) = marks_of(office).read().values()
        assert mark.entries == 3
