"""A store is used with the master key that it is sealed under, or not at all."""

from __future__ import annotations

import base64
import gzip
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import delete

from app import cli
from app.database import Database
from app.datasets.master_key import KNOWN_VALUE
from app.jobs.worker import main as work
from app.main import create_app
from app.serve import serve
from app.settings import Settings
from app.storage.encryption import WrongMasterKey
from app.storage.models import SecretRow

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

OTHER = base64.b64encode(bytes(range(100, 132))).decode()
OLD_STORE = Path(__file__).parents[1] / "upgrade" / "encrypted.sqlite.gz"
# See tests/upgrade/make_store.py.
OLD_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


def settings_of(folder: Path, key: str | None) -> Settings:
    secret = None if key is None else SecretStr(key)
    return Settings(data=folder, master_key=secret, workers=0, port=0)


def start_application(settings: Settings) -> None:
    with TestClient(create_app(settings)) as http:
        assert http.get("/readyz").status_code == 200


STARTS: dict[str, Callable[[Settings], None]] = {
    "application": start_application,
    "server": serve,
    "worker": work,
}


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A store that was used with a key once, before anything was uploaded."""
    start_application(settings_of(tmp_path, OLD_KEY))
    return tmp_path


@pytest.fixture
def of_the_version_before(tmp_path: Path) -> Path:
    """A store with encrypted datasets and no known value."""
    (tmp_path / "halftone.sqlite").write_bytes(gzip.decompress(OLD_STORE.read_bytes()))
    return tmp_path


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(("key", "said"), [(None, "is not set"), (OTHER, "is another key")])
def test_nothing_starts_under_another_key_or_none(
    sealed: Path, start: str, key: str | None, said: str
) -> None:
    with pytest.raises(WrongMasterKey, match=said):
        STARTS[start](settings_of(sealed, key))
    start_application(settings_of(sealed, OLD_KEY))


@pytest.mark.parametrize("key", [None, OTHER])
def test_a_store_of_the_version_before_is_recognised_by_its_datasets(
    of_the_version_before: Path, key: str | None
) -> None:
    with pytest.raises(WrongMasterKey):
        start_application(settings_of(of_the_version_before, key))
    start_application(settings_of(of_the_version_before, OLD_KEY))


def test_a_store_without_encryption_may_be_given_a_key(tmp_path: Path) -> None:
    start_application(settings_of(tmp_path, None))
    start_application(settings_of(tmp_path, OTHER))
    with pytest.raises(WrongMasterKey):
        start_application(settings_of(tmp_path, None))


def test_a_running_server_tells_that_its_store_was_replaced(sealed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    start_application(settings_of(other, OTHER))
    replaced = Database(settings_of(other, OTHER).url)
    with replaced.read() as session:
        value = session.get_one(SecretRow, KNOWN_VALUE).value
    replaced.close()
    with TestClient(create_app(settings_of(sealed, OLD_KEY))) as http:
        with http.app.state.database.write() as session:
            session.execute(delete(SecretRow).where(SecretRow.name == KNOWN_VALUE))
            session.add(SecretRow(name=KNOWN_VALUE, value=value))
        answer = http.get("/readyz")
    assert answer.status_code == 503
    assert "master key" in answer.json()["detail"]


def test_the_command_says_what_to_do(
    sealed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("HALFTONE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HALFTONE_DATA", str(sealed))
    assert cli.main(["serve", "--port", "0"]) == cli.CANNOT
    assert "HALFTONE_MASTER_KEY is not set" in capsys.readouterr().err
