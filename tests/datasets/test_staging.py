"""Staged uploads: whole, private to the process, gone when they are not kept."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import stat
from pathlib import Path

import pytest

from app.datasets.staging import FRAME_BYTES, KEY_LINE_BYTES, SEALED_FRAME_BYTES, StagingArea
from app.settings import Settings
from app.storage.encryption import MasterKeyMissing, SealBroken

MASTER = base64.b64encode(os.urandom(32)).decode()


def area(folder: Path, master: str | None = None) -> StagingArea:
    return StagingArea(Settings(data=folder, master_key=master))


def staged_names(folder: Path) -> list[str]:
    return [path.name for path in (folder / "staging").iterdir()]


@pytest.mark.parametrize("master", [None, MASTER], ids=["plain", "sealed"])
@pytest.mark.parametrize("size", [16, FRAME_BYTES, 2 * FRAME_BYTES + 5])
def test_what_was_written_is_read_back_from_any_place(
    tmp_path: Path, master: str | None, size: int
) -> None:
    staging = area(tmp_path, master)
    content = os.urandom(size)
    with staging.writer() as writer:
        for first in range(0, size, 300_007):
            writer.write(content[first : first + 300_007])
        staged = writer.finish(media_type="text/csv")
        writer.keep()
    assert (staging.size_bytes(staged), staged.sha256) == (
        size,
        hashlib.sha256(content).hexdigest(),
    )
    assert staged.to_wire() == {"name": staged.name, "media_type": "text/csv"}
    with staging.reader(staged) as file:
        assert file.read() == content
        file.seek(size // 2)
        assert file.read(10) == content[size // 2 : size // 2 + 10]
    on_disk = (tmp_path / "staging" / staged.name).read_bytes()
    assert (content in on_disk) is (master is None)


def test_a_file_that_is_not_kept_is_gone(tmp_path: Path) -> None:
    staging = area(tmp_path)
    with pytest.raises(RuntimeError), staging.writer() as writer:
        writer.write(b"half")
        raise RuntimeError
    assert staged_names(tmp_path) == []


def test_only_the_service_may_read_the_files(tmp_path: Path) -> None:
    staging = area(tmp_path)
    with staging.writer() as writer:
        writer.write(b"x")
        folder = tmp_path / "staging"
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())]
    assert modes == [0o700, 0o600]


def test_a_sweep_leaves_files_that_are_wanted_or_being_written(tmp_path: Path) -> None:
    staging = area(tmp_path)
    kept = []
    for _ in range(2):
        with staging.writer() as writer:
            writer.write(b"x")
            kept.append(writer.finish().name)
            writer.keep()
    with staging.writer() as writer:
        writer.write(b"x")
        assert staging.sweep(lambda: {kept[0]}) == 1
        assert kept[0] in staged_names(tmp_path)
        assert len(staged_names(tmp_path)) == 2


def test_a_sweep_asks_what_is_wanted_after_it_saw_which_files_are_free(tmp_path: Path) -> None:
    staging = area(tmp_path)
    with staging.writer() as abandoned:
        abandoned.keep()
    with staging.writer() as writer:
        writer.write(b"x")
        name = writer.finish().name

        def let_go_and_tell_what_was_wanted_before() -> set[str]:
            writer.keep()
            writer.__exit__(None, None, None)
            return set()

        assert staging.sweep(let_go_and_tell_what_was_wanted_before) == 1
    assert staged_names(tmp_path) == [name]


def test_a_file_that_a_sweep_took_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = area(tmp_path)
    lock = fcntl.flock
    swept: list[bool] = []

    def sweep_first(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not swept:
            swept.append(True)
            assert staging.sweep(set) == 1
        lock(file, operation)

    monkeypatch.setattr("app.datasets.staging.fcntl.flock", sweep_first)
    with staging.writer() as writer:
        writer.write(b"x")
        staged = writer.finish()
        writer.keep()
    assert staged_names(tmp_path) == [staged.name]


def test_a_sealed_file_opens_under_its_master_key_and_unaltered_alone(tmp_path: Path) -> None:
    staging = area(tmp_path, MASTER)
    with staging.writer() as writer:
        writer.write(b"secret" * 1000)
        staged = writer.finish()
        writer.keep()
    other = base64.b64encode(os.urandom(32)).decode()
    with pytest.raises(SealBroken), area(tmp_path, other).reader(staged):
        pass
    with pytest.raises(MasterKeyMissing), area(tmp_path).reader(staged):
        pass
    path = tmp_path / "staging" / staged.name
    path.write_bytes(path.read_bytes()[:-1])
    with staging.reader(staged) as file, pytest.raises(SealBroken):
        file.read()


@pytest.mark.parametrize("frames", [1, 2])
def test_a_sealed_file_that_is_cut_between_two_frames_does_not_open(
    tmp_path: Path, frames: int
) -> None:
    staging = area(tmp_path, MASTER)
    with staging.writer() as writer:
        writer.write(bytes(3 * FRAME_BYTES))
        staged = writer.finish()
        writer.keep()
    path = tmp_path / "staging" / staged.name
    path.write_bytes(path.read_bytes()[: KEY_LINE_BYTES + frames * SEALED_FRAME_BYTES])
    with staging.reader(staged) as file, pytest.raises(SealBroken):
        file.read()
