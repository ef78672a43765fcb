"""What `halftone verify` says of a store some bytes of which were changed.

`--fault-rounds N` damages N times as many.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from release_world import colours, world

from app import cli
from app.datasets.models import DatasetRow

FLIPS = 40


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a store with two releases, their models and samples; nothing has it open."""
    with world(tmp_path / "whole", monkeypatch) as service:
        dataset = service.add_dataset()
        for _ in range(2):
            service.custodian.release(dataset)
            service.run_fit(colours(300))
        with service.database.write() as session:
            # The rows of the table were never stored: the releases alone are.
            session.get_one(DatasetRow, dataset).state = "erased"
        assert service.database.checkpoint(patience_s=5)
        path = service.database.path
    monkeypatch.setenv("HALFTONE_DATA", str(tmp_path / "damaged"))
    (tmp_path / "damaged").mkdir()
    return path


def damaged_copy(whole: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "damaged" / whole.name
    for each in copy.parent.iterdir():
        each.unlink()
    shutil.copyfile(whole, copy)
    return copy


def kept(path: Path) -> list[list[Any]]:
    """What people rely on: charges and stored bytes."""
    connection = sqlite3.connect(path)
    try:
        return [
            connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()
            for table in ("ledger", "chunks")
        ]
    finally:
        connection.close()


def change(path: Path, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement, values).rowcount == 1
    connection.close()


def test_the_store_is_whole_before_it_is_damaged(whole: Path, tmp_path: Path) -> None:
    damaged_copy(whole, tmp_path)
    assert cli.main(["verify"]) == cli.DONE


def some_chunk(path: Path) -> tuple[int, bytes]:
    connection = sqlite3.connect(path)
    found: tuple[int, bytes] = random.choice(
        connection.execute("SELECT rowid, data FROM chunks").fetchall()
    )
    connection.close()
    return found


def flipped(data: bytes) -> bytes:
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


@pytest.mark.parametrize("damage", [flipped, lambda data: data[:-1]], ids=["flipped", "cut off"])
def test_a_changed_chunk_is_named(
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
) -> None:
    copy = damaged_copy(whole, tmp_path)
    row, data = some_chunk(copy)
    change(copy, "UPDATE chunks SET data = ? WHERE rowid = ?", damage(data), row)
    assert cli.main(["verify"]) == cli.FOUND_PROBLEMS
    assert "chunk" in capsys.readouterr().out


def test_a_chunk_that_is_gone_is_named(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = damaged_copy(whole, tmp_path)
    change(copy, "DELETE FROM chunks WHERE rowid = ?", some_chunk(copy)[0])
    assert cli.main(["verify"]) == cli.FOUND_PROBLEMS
    assert "has not all its chunks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ('UPDATE ledger SET "primary" = "primary" + 1 WHERE rowid = 2', "account"),
        ("UPDATE accounts SET spent_primary = spent_primary - 1", "account"),
        ("UPDATE releases SET charge_primary = charge_primary - 1 WHERE rowid = 1", "release"),
    ],
)
def test_a_changed_amount_is_named(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], statement: str, named: str
) -> None:
    change(damaged_copy(whole, tmp_path), statement)
    assert cli.main(["verify"]) == cli.FOUND_PROBLEMS
    assert named in capsys.readouterr().out


def test_a_store_that_verify_calls_whole_reads_as_it_was_written(
    whole: Path, tmp_path: Path, fault_rounds: int
) -> None:
    """Bytes are changed anywhere in the file, pages of SQLite's own included."""
    written = kept(whole)
    length = whole.stat().st_size
    told = 0
    for _ in range(FLIPS * fault_rounds):
        copy = damaged_copy(whole, tmp_path)
        place, bit = random.randrange(length), random.randrange(8)
        with copy.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1 << bit]))
        status = cli.main(["verify"])
        if status == cli.DONE:
            assert kept(copy) == written, f"bit {bit} of byte {place}"
        else:
            told += 1
    assert told
