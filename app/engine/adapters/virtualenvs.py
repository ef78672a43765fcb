"""Where the libraries' virtualenvs are, and how one is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from app.engine.adapters.libraries import Library

# The environment variable that names the folder to a synthesizer's process.
VARIABLE = "ADAPTERS"


class NotInstalled(Exception):
    """The library's virtualenv is not there."""


def place(folder: Path, library: Library) -> Path:
    return folder / f"{library.name}-{library.digest}"


def interpreter(folder: Path, library: Library) -> Path:
    """The Python of the library's virtualenv. Raises `NotInstalled`."""
    where = place(folder.resolve(), library)
    if not (where / "complete").is_file():
        raise NotInstalled(f"{library.distribution} {library.version} is not in {folder}")
    return where / "bin" / "python"


def is_installed(folder: Path, library: Library) -> bool:
    try:
        return interpreter(folder, library).exists()
    except NotInstalled:
        return False


def install(folder: Path, library: Library) -> Path:
    """Make the virtualenv anew, of the locked versions and no others, and return its place.

    Raises `subprocess.CalledProcessError` if a step fails; what is there then is not used.
    """
    where = place(folder.resolve(), library)
    complete = where / "complete"
    complete.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(where)], check=True)
    subprocess.run(
        [
            *(str(where / "bin" / "python"), "-m", "pip", "install"),
            *("--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"),
            *("-r", str(library.lock)),
        ],
        check=True,
    )
    complete.touch()
    return where


def folder_of_this_process() -> Path:
    """Raises `NotInstalled` if this process was given none."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise NotInstalled(f"this process was given no folder of adapters ({VARIABLE})")
    return Path(folder)
