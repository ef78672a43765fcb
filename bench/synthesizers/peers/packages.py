"""Other projects' packages, each in a virtualenv that the bench makes for it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from bench.synthesizers.guarantee import DELTA
from bench.synthesizers.implementations import Made, RunFailed
from bench.synthesizers.memory import LOOK_S, peak_bytes
from bench.synthesizers.tables import CodedTable

HERE = Path(__file__).parent
METHODS: dict[str, tuple[str, ...]] = {
    "dpmm": ("AIM", "MST", "PrivBayes"),
    "smartnoise": ("AIM", "MST"),
}
"""The methods of each package that run on coded tables under a given domain."""


@dataclass(frozen=True)
class Peer:
    """A package's method in a process of its own, ended after `time_limit_s`.

    Seconds are those of the whole process, from its start until its table is written; peak memory
    is its largest resident set. Its virtualenv is made below `virtualenvs` when first needed.
    """

    package: str
    method: str
    virtualenvs: Path
    time_limit_s: float
    group: ClassVar[str] = "peers"
    private: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"{self.package}-{self.method.lower()}"

    def make(self, table: CodedTable, epsilon: str, seed: int) -> Made:
        if not table.is_plain:
            raise RunFailed("it knows coded rows alone")
        python = virtualenv(self.package, self.virtualenvs)
        with tempfile.TemporaryDirectory() as folder:
            rows, cells, out = (
                Path(folder, name) for name in ("rows.csv", "cells.json", "out.csv")
            )
            pd.DataFrame(dict(table.used)).to_csv(rows, index=False)
            cells.write_text(json.dumps(table.cells))
            script = HERE / f"run_{self.package}.py"
            paths = [str(each) for each in (script, self.method, rows, cells, out)]
            arguments = [str(python), *paths[:2], *paths[2:], epsilon, DELTA, str(seed)]
            seconds, peak = run_measured(arguments, Path(folder), self.time_limit_s)
            made = pd.read_csv(out)
        codes = {name: made[name].to_numpy().astype("int64") for name in table.cells}
        return Made(codes, seconds, peak)


def virtualenv(package: str, folder: Path) -> Path:
    """The interpreter of the package's virtualenv, made by its pinned requirements if need be."""
    requirements = HERE / f"requirements-{package}.txt"
    stamp = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    place = folder / f"{package}-{stamp}"
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", "--no-deps", "-r", str(requirements)]
        subprocess.run(install, check=True)
        (place / "complete").touch()
    return python


def run_measured(arguments: Sequence[str], folder: Path, time_limit_s: float) -> tuple[float, int]:
    """Seconds and largest resident set, in bytes, of a process that ends well.

    Raises `RunFailed` with its last line of complaint, or where it was ended for its time.
    """
    with (folder / "said.txt").open("w+") as said:
        started = time.perf_counter()
        process = subprocess.Popen(arguments, stdout=said, stderr=subprocess.STDOUT, cwd=folder)
        try:
            peak = _watched_to_its_end(process, started + time_limit_s)
        finally:
            process.kill()
            process.wait()
        seconds = time.perf_counter() - started
        if peak is None:
            raise RunFailed(f"not done after {time_limit_s:g} s")
        if process.returncode:
            said.seek(0)
            lines = said.read().strip().splitlines() or ["without a word"]
            raise RunFailed(f"ended with status {process.returncode}: {lines[-1]}")
    return seconds, peak


def _watched_to_its_end(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """The process's peak memory; None if it still runs at the deadline.

    The peak is the kernel's record of the program alone: that of `wait4` would hold what this
    process, which it was forked from, had.
    """
    peak = 0
    while process.poll() is None:
        if time.perf_counter() > deadline:
            return None
        peak = max(peak, peak_bytes(process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
    return peak
