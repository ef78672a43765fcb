"""A store gets another master key: at once or not at all, and with all that it holds."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from office import CSV, Office, open_office, upload_form
from pydantic import SecretStr

from app import cli
from app.datasets.codes import StoredCodes
from app.integrity import rotation, wrapped
from app.jobs.executors import executors
from app.jobs.shutdown import Shutdown
from app.jobs.subjects import OUTCOMES
from app.jobs.worker import Worker
from app.problems import Conflict
from app.sandbox.child import ChildHost
from app.settings import Settings
from app.storage.encryption import Keyring, StorageKeyError, WrongMasterKey

BODY = {"synthesizer": "independent", "guarantee": {"epsilon": "0.5"}, "rows": 5}


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def keyring(secret: str | None) -> Keyring:
    return Keyring(Settings(master_key=None if secret is None else SecretStr(secret)))


def old_keyring(office: Office) -> Keyring:
    return Keyring(office.settings)


def codes(office: Office, ring: Keyring, dataset: str) -> list[list[int]]:
    chunks = StoredCodes(office.database, ring, dataset).chunks(["shift"])
    return [chunk["shift"].tolist() for chunk in chunks]


def test_everything_opens_under_the_new_key_and_nothing_under_the_old(tmp_path: Path) -> None:
    with open_office(tmp_path, encrypted=True) as office:
        made = [office.uploaded(CSV + f"{row},Cash\n" * row)["id"] for row in (1, 2, 3)]
        old, new = old_keyring(office), keyring(key())
        before = [codes(office, old, each) for each in made]
        assert rotation.rotate(office.database, old, new) >= len(made)
        assert [codes(office, new, each) for each in made] == before
        with office.database.read() as session:
            for each in wrapped.keys(session):
                new.unwrap(each.owner, each.wrapped)
                with pytest.raises(StorageKeyError):
                    old.unwrap(each.owner, each.wrapped)


def test_a_server_that_has_the_old_key_charges_nothing_and_stores_nothing(tmp_path: Path) -> None:
    with open_office(tmp_path, encrypted=True) as office:
        made = office.uploaded()["id"]
        rotation.rotate(office.database, old_keyring(office), keyring(key()))
        asked = office.custodian.call("POST", f"/datasets/{made}/releases", json=BODY)
        assert (asked.status_code, "master key" in asked.json()["detail"]) == (503, True)
        spent = office.custodian.get(f"/datasets/{made}/budget").json()["spent"]
        assert spent["epsilon"] == "0"
        assert office.http.request("GET", "/readyz").status_code == 503


def test_an_interrupted_rotation_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_office(tmp_path, encrypted=True) as office:
        made = office.uploaded()["id"]
        old, new = old_keyring(office), keyring(key())
        before = codes(office, old, made)

        def killed(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(rotation.audit, "record", killed)
            rotation.rotate(office.database, old, new)
        assert codes(office, old, made) == before
        rotation.rotate(office.database, old, new)
        assert codes(office, new, made) == before


def test_a_key_that_is_not_the_stores_rotates_nothing(tmp_path: Path) -> None:
    with open_office(tmp_path, encrypted=True) as office:
        office.uploaded()
        for wrong in (keyring(key()), keyring(None)):
            with pytest.raises(WrongMasterKey):
                rotation.rotate(office.database, wrong, keyring(key()))


def test_uploads_that_wait_hold_a_rotation_off(tmp_path: Path) -> None:
    with open_office(tmp_path, encrypted=True) as office:
        dataset = office.custodian.declare().json()["id"]
        office.custodian.put(dataset, headers={"Content-Type": "text/csv"})
        with pytest.raises(Conflict):
            rotation.rotate(office.database, old_keyring(office), keyring(key()))


def test_the_command_needs_both_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_office(tmp_path, encrypted=True) as office:
        office.uploaded()
        secret = office.settings.master_key
        assert secret is not None
    monkeypatch.setenv("HALFTONE_DATA", str(office.settings.data))
    monkeypatch.setenv("HALFTONE_MASTER_KEY", secret.get_secret_value())
    assert cli.main(["rotate-master-key"]) == cli.CANNOT
    monkeypatch.setenv(cli.NEW_MASTER_KEY, "short")
    assert cli.main(["rotate-master-key"]) == cli.CANNOT
    monkeypatch.setenv(cli.NEW_MASTER_KEY, key())
    assert cli.main(["rotate-master-key"]) == cli.DONE
    assert "start the service with it" in capsys.readouterr().out
    assert cli.main(["rotate-master-key"]) == cli.CANNOT


def test_a_server_with_the_old_key_takes_no_upload_and_no_job(tmp_path: Path) -> None:
    """An upload that it took could not be opened, and a release that it ran would fail, charged."""
    with open_office(tmp_path, encrypted=True) as office:
        by = office.custodian
        dataset = office.uploaded()["id"]
        body = {"synthesizer": "independent", "guarantee": {"epsilon": "0.5"}, "rows": 5}
        asked = by.call("POST", f"/datasets/{dataset}/releases", json=body).json()["id"]
        host = ChildHost(office.settings)
        old = Worker(office.database, office.settings, executors(host), OUTCOMES, Shutdown(0))
        secret = SecretStr(base64.b64encode(os.urandom(32)).decode())
        new = office.settings.model_copy(update={"master_key": secret})
        rotation.rotate(office.database, Keyring(office.settings), Keyring(new))
        assert by.send_form(upload_form("shift,pay\n3,Cash\n")).status_code == 503
        assert not office.staged_files()
        assert old.next_claim() is None
        assert by.get(f"/releases/{asked}").json()["state"] == "queued"
        assert Worker(office.database, new, executors(host), OUTCOMES, Shutdown(0)).next_claim()
