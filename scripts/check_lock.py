"""Check the locks: complete, hashed, in step with each other, and wheels on 3.12 and 3.13.

Needs the package registry for the last of these (a dry resolution; nothing is installed).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
FULL = ROOT / "requirements.lock"
PARTS = (ROOT / "requirements-server.lock", ROOT / "requirements-build.lock")
OTHER_PYTHONS = ("3.12", "3.13")
# The exception: published as source alone, pure Python; mlcroissant, for tests, needs it.
FROM_SOURCE = ("jsonpath-rw",)


@dataclass(frozen=True, slots=True)
class Pin:
    """One line of a lock: a version for the environments that the marker describes."""

    requirement: Requirement
    hashes: frozenset[str]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        return str(self.requirement.specifier).removeprefix("==")


def pins(lock: Path) -> list[Pin]:
    """All pins of a lock file."""
    joined = lock.read_text().replace("\\\n", " ")
    lines = (line.split("#")[0].strip() for line in joined.splitlines())
    return [
        Pin(
            Requirement(line.split("--hash")[0].strip()),
            frozenset(re.findall(r"--hash=(\S+)", line)),
        )
        for line in lines
        if line
    ]


def asked_for() -> Iterator[Requirement]:
    """The direct requirements of the project, its extras and its client."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    for group in (project["dependencies"], *project["optional-dependencies"].values()):
        yield from map(Requirement, group)
    yield from map(Requirement, client["dependencies"])


def faults() -> Iterator[str]:
    """What is wrong with the files as they stand."""
    full = pins(FULL)
    versions: dict[str, set[str]] = {}
    for pin in full:
        versions.setdefault(pin.name, set()).add(pin.version)
    for requirement in asked_for():
        locked = versions.get(canonicalize_name(requirement.name), set())
        if not locked:
            yield f"{FULL.name} lacks {requirement.name}"
        for version in locked:
            if not requirement.specifier.contains(version, prereleases=True):
                yield f"{FULL.name} has {requirement.name} {version}, not {requirement.specifier}"
    for lock in (FULL, *PARTS):
        for pin in pins(lock):
            if not pin.hashes:
                yield f"{lock.name}: {pin.name} has no hash"
            if pin.version not in versions.get(pin.name, set()):
                yield f"{lock.name}: {pin.name} {pin.version} is not what {FULL.name} has"


def wheels_fault(python: str) -> str | None:
    """Why the locked versions can't be installed from wheels alone on another Python."""
    tried = subprocess.run(
        [
            *(sys.executable, "-m", "uv", "pip", "compile", "-q", "--only-binary", ":all:"),
            *(option for name in FROM_SOURCE for option in ("--no-binary", name)),
            *("--python-version", python, "--extra", "demo", "--extra", "dev"),
            *("--constraints", str(FULL), "pyproject.toml"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return None if tried.returncode == 0 else f"Python {python}: {tried.stderr.strip()}"


def main() -> int:
    found = list(faults())
    found += [fault for python in OTHER_PYTHONS if (fault := wheels_fault(python))]
    for fault in found:
        print(fault, file=sys.stderr)
    if found:
        print("Run `make lock`, then look at what it changed.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
