"""The operator's commands on a store: keys, verify, export, backup."""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from bookkeeping import Books, guarantee, make_store, open_books

from app import cli
from app.backup import BackupBroken, back_up, opened
from app.engine.privacy.loss import Accountant
from app.integrity.store import problems
from app.ledger.export import NotAnExport, verify_export
from app.security.authentication import FailureLimit, authenticate
from app.storage.models import ChunkRow


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Books:
    """A store of two accounts in the folder that the commands are pointed at."""
    monkeypatch.setenv("HALFTONE_DATA", str(tmp_path))
    monkeypatch.setenv("HALFTONE_DATABASE_URL", f"sqlite:///{tmp_path}/store.sqlite")
    database = make_store(tmp_path)
    open_books(database, "1")
    return open_books(database, "10", "1e-6", Accountant.ZCDP)


def charge(books: Books) -> None:
    """A charge whose release nobody wrote, as far as the ledger goes."""
    with books.database.write() as session:
        books.admit(session, guarantee(epsilon="1", delta="1e-6"), detail={"synthesizer": "mst"})


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.usefixtures("books")
def test_verify_is_content_with_a_whole_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify"]) == 0
    told = capsys.readouterr().out
    assert told.count(": ok, 1 entries") == 2
    assert told.endswith("The store is intact.\n")


def test_verify_finds_changed_ledgers_damaged_chunks_and_charges_without_release(
    books: Books, capsys: pytest.CaptureFixture[str]
) -> None:
    with books.database.write() as session:
        session.add(
            ChunkRow(
                collection="ds_x", part="0", sequence=0, size_bytes=1, sha256="0" * 64, data=b"x"
            )
        )
    charge(books)
    change(books.database.path, "UPDATE accounts SET spent_primary = spent_primary + 1")
    assert cli.main(["verify"]) == 1
    told = capsys.readouterr().out
    assert "not the sum of its ledger" in told
    assert "chunk ds_x/0/0 is damaged" in told
    assert "was charged but is not there" in told
    assert cli.main(["verify", "--ledgers-only"]) == 1
    assert "chunk" not in capsys.readouterr().out


def test_an_export_can_be_verified_without_the_store(
    books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    charge(books)
    target = tmp_path / "ledger.jsonl"
    assert cli.main(["export", "--output", str(target)]) == 0
    assert cli.main(["export", "--output", str(target)]) == 2
    assert capsys.readouterr().err == f"halftone: {target}: File exists\n"
    assert cli.main(["verify", "--file", str(target)]) == 0
    lines = target.read_text().splitlines()
    assert [found.entries for found in verify_export(lines)] == [1, 2]
    assert [found.ok for found in verify_export(lines[:-1])] == [True, False]
    forged = [line.replace('"synthesizer": "mst"', '"synthesizer": "other"') for line in lines]
    assert [found.ok for found in verify_export(forged)] == [True, False]
    target.write_text("\n".join(forged))
    assert cli.main(["verify", "--file", str(target)]) == 1


def test_an_export_can_be_of_one_dataset(books: Books, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "--dataset", books.dataset_id]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[0])["account"]["id"] == books.account_id
    assert len(lines) == 2
    for missing in (["--account", "ac_none"], ["--dataset", "ds_none"]):
        assert cli.main(["export", *missing]) == 2
        assert missing[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["x"],
        ["[]"],
        ['{"entry": {}}'],
        ['{"format": "other"}'],
        ["[" * 100_000],
        ['{"format": "halftone-ledger-1", "format": "halftone-ledger-1", "account": {}}'],
        ['{"format": "halftone-ledger-1", "account": {}}'],
    ],
)
def test_lines_that_are_no_export_are_refused(lines: list[str]) -> None:
    with pytest.raises(NotAnExport):
        verify_export(lines)


def test_a_backup_taken_beside_writers_is_whole_and_private(books: Books, tmp_path: Path) -> None:
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            with books.database.write() as session:
                session.add(
                    ChunkRow(
                        collection="ds_y",
                        part="0",
                        sequence=len(written),
                        size_bytes=0,
                        sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                        data=b"",
                    )
                )
                written.append(1)

    written: list[int] = []
    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert cli.main(["backup", str(tmp_path / "copy.sqlite")]) == 0
    finally:
        done.set()
        writer.join()
    assert stat.S_IMODE((tmp_path / "copy.sqlite").stat().st_mode) == 0o600
    assert not list(tmp_path.glob("*.partial"))
    with opened(tmp_path / "copy.sqlite") as session:
        assert list(problems(session)) == []
    assert cli.main(["backup", str(tmp_path / "copy.sqlite")]) == 2


def test_a_backup_of_a_store_that_is_not_whole_leaves_no_file(books: Books, tmp_path: Path) -> None:
    change(books.database.path, "UPDATE accounts SET entries = 9")
    with pytest.raises(BackupBroken, match="missing at the end"):
        back_up(books.database, tmp_path / "copy.sqlite")
    assert not list(tmp_path.glob("*copy*"))


def test_the_operator_makes_and_ends_keys_when_no_admin_can_log_in(
    books: Books, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["keys", "create", books.owner_id, "--expires-in-days", "2"]) == 0
    key = capsys.readouterr().out.strip()

    def owner() -> str:
        return authenticate(
            books.database,
            FailureLimit(9, 9),
            authorization=f"Bearer {key}",
            client="192.0.2.1",
        ).id

    assert owner() == books.owner_id
    assert cli.main(["keys", "list"]) == 0
    listed = capsys.readouterr().out
    assert key not in listed
    key_id = next(word for word in listed.split() if word.startswith("ky_"))
    assert cli.main(["keys", "revoke", key_id]) == 0
    with pytest.raises(Exception, match="valid API key"):
        owner()
    assert cli.main(["keys", "create", "nobody"]) == 2
    assert cli.main(["keys", "revoke", "ky_none"]) == 2


def test_commands_say_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALFTONE_DATA", str(tmp_path / "nowhere"))
    assert cli.main(["verify"]) == 2
    assert "HALFTONE_DATA" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
    monkeypatch.setenv("HALFTONE_PORT", "many")
    assert cli.main(["serve"]) == 2
    assert "HALFTONE_PORT" in capsys.readouterr().err
    monkeypatch.delenv("HALFTONE_PORT")
    monkeypatch.setenv("HALFTONE_ADMIN_KEY", "guessable")
    assert cli.main(["serve"]) == 2
    assert "HALFTONE_ADMIN_KEY" in capsys.readouterr().err


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "other": lambda _: b"no database at all" * 500,
    "cut": lambda whole: whole[: len(whole) // 3],
    "schema": lambda whole: whole.replace(b"CREATE TABLE", b"CREATE TABL\xa8"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_verify_of_a_malformed_file_says_what_helps(
    tmp_path: Path,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: str,
) -> None:
    books.database.checkpoint()
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(DAMAGE[damage](books.database.path.read_bytes()))
    monkeypatch.setenv("HALFTONE_DATABASE_URL", f"sqlite:///{path}")
    assert cli.main(["verify"]) != 0
    told = capsys.readouterr().err
    assert "backup" in told
    assert "halftone serve" not in told


def test_verify_of_a_store_of_an_older_version_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "old.sqlite"
    change(path, "CREATE TABLE old (x)")
    monkeypatch.setenv("HALFTONE_DATABASE_URL", f"sqlite:///{path}")
    assert cli.main(["verify"]) == 2
    assert "Start `halftone serve` on it once" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["HALFTONE_ADMIN_KEY", "HALFTONE_MASTER_KEY"])
def test_a_key_of_another_form_stops_the_start_before_there_is_a_store(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.setenv("HALFTONE_DATA", str(tmp_path / "store"))
    monkeypatch.setenv(name, "abc")
    assert cli.main(["serve", "--port", "0"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"halftone: {name} is not a key")
    assert "Make one with" in told
    assert not (tmp_path / "store").exists()
