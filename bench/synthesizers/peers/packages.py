"""Other projects' packages, each in a virtualenv that the bench makes for it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from bench.synthesizers.implementations import DELTA, Made, RunFailed
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
        late = threading.Timer(time_limit_s, process.kill)
        late.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            late.cancel()
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RunFailed(_complaint(process.returncode, said.read(), seconds, time_limit_s))
    return seconds, usage.ru_maxrss * 1024


def _complaint(status: int, said: str, seconds: float, time_limit_s: float) -> str:
    if seconds >= time_limit_s:
        return f"not done after {time_limit_s:g} s"
    lines = said.strip().splitlines()
    return f"ended with status {status}: {lines[-1] if lines else 'without a word'}"
