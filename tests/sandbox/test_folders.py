"""Working folders: an end by force leaves them, and only those are removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from forge import eventually

import app.tables  # noqa: F401
from app.database import Base, Database
from app.jobs.housekeeping import Housekeeping
from app.sandbox.folders import ChildFolder, remove_left_behind
from app.settings import Settings

WORKER = """
from app.sandbox.process import ChildProcess
process = ChildProcess()
print(process._folder.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def worker(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a synthesizer's process at work, and the folder of that one."""
    started = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    folder = Path(started.stdout.readline().strip())
    (folder / "half").mkdir()
    (folder / "half" / "written").write_text("rows")
    return started, folder


def test_the_folder_of_a_killed_worker_is_removed_and_that_of_a_live_one_kept(
    place: Path,
) -> None:
    dead, left = worker(place)
    live, held = worker(place)
    try:
        assert remove_left_behind() == []
        dead.send_signal(signal.SIGKILL)
        dead.communicate()
        assert left.exists()
        assert remove_left_behind() == [left]
        assert (left.exists(), held.exists()) == (False, True)
    finally:
        live.kill()
        live.communicate()


def test_an_open_folder_is_kept_and_a_closed_one_is_gone() -> None:
    folder = ChildFolder()
    assert remove_left_behind() == []
    folder.close()
    assert not folder.path.exists()


def test_links_files_and_folders_of_others_are_left(place: Path) -> None:
    kept = place / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    link = place / "halftone-child-link"
    link.symlink_to(kept)
    (place / "halftone-child-file").write_text("x")
    assert remove_left_behind() == []
    left = place / "halftone-child-left"
    left.mkdir()
    (left / "link").symlink_to(kept)
    assert remove_left_behind() == [left]
    assert (kept / "file").read_text() == "x"


def test_the_folder_of_another_user_is_left(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = place / "halftone-child-other"
    other.mkdir()
    another = other.stat().st_uid + 1
    monkeypatch.setattr("app.sandbox.folders.os.geteuid", lambda: another)
    assert remove_left_behind() == []


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the clock says: a new folder is told from an old one by its lock alone."""
    make, made = tempfile.mkdtemp, []

    def removed_once(**options: str) -> str:
        made.append(make(**options))
        if len(made) == 1:
            assert remove_left_behind() == [Path(made[0])]
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", removed_once)
    folder = ChildFolder()
    assert (len(made), folder.path.is_dir()) == (2, True)
    assert remove_left_behind() == []
    folder.close()
    assert list(place.iterdir()) == []


def test_a_running_service_removes_them(place: Path) -> None:
    left = place / "halftone-child-left"
    left.mkdir()
    database = Database(f"sqlite:///{place / 'store.sqlite'}")
    Base.metadata.create_all(database.write_engine)
    with Housekeeping(database, Settings(), {}):
        eventually(lambda: not left.exists(), "the folder is removed")
    database.close()
