"""`halftone adapters`: what is installed, and installing from hashes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from app import cli
from app.engine.adapters import virtualenvs
from app.engine.adapters.libraries import LIBRARIES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HALFTONE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HALFTONE_ADAPTERS", str(tmp_path / "adapters"))
    return tmp_path / "adapters"


def install(monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> tuple[int, list[list[str]]]:
    steps: list[list[str]] = []

    def step(arguments: list[str], check: bool) -> None:
        assert check
        steps.append(arguments)
        if fails:
            raise subprocess.CalledProcessError(9, arguments)
        if "venv" in arguments:
            python = Path(arguments[-1], "bin", "python")
            python.parent.mkdir(parents=True)
            python.touch()

    monkeypatch.setattr(virtualenvs.subprocess, "run", step)
    return cli.main(["adapters", "install", "dpmm"]), steps


def test_the_locked_versions_are_installed_and_no_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, (made, installed) = install(monkeypatch)
    library = LIBRARIES["dpmm"]
    assert code == cli.DONE
    assert Path(made[-1]).parent == folder
    assert {"--require-hashes", "--no-deps", str(library.lock)} < set(installed)
    assert virtualenvs.is_installed(folder, library)
    assert cli.main(["adapters", "list"]) == cli.DONE
    listed = capsys.readouterr().out.splitlines()[1:]
    assert listed == [
        f"dpmm  dpmm {library.version}  installed",
        f"smartnoise  smartnoise-synth {LIBRARIES['smartnoise'].version}  not installed",
    ]


def test_what_was_installed_in_part_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch)
    code, _ = install(monkeypatch, fails=True)
    assert code == cli.CANNOT
    assert "status 9" in capsys.readouterr().err
    assert not virtualenvs.is_installed(folder, LIBRARIES["dpmm"])


def test_a_folder_that_no_synthesizer_can_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALFTONE_ADAPTERS", str(folder.parent / "data" / "adapters"))
    code, steps = install(monkeypatch)
    assert (code, steps) == (cli.CANNOT, [])
    assert "outside it" in capsys.readouterr().err


def test_a_changed_lock_is_another_virtualenv(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch)
    changed = tmp_path / "changed.lock"
    changed.write_text("dpmm==9.9 \\\n")
    newer: Any = type("Newer", (type(LIBRARIES["dpmm"]),), {"lock": changed})
    assert not virtualenvs.is_installed(folder, newer("dpmm", "dpmm", 0, 0, 0))
