"""Processes that wait for jobs hold no library that most jobs do without."""

import json
import subprocess
import sys

import pytest

WEB = {"fastapi", "starlette"}
TABLES = {"pandas", "sklearn", "scipy.stats", "scipy.optimize"}
COMPILER = {"numba", "llvmlite", "scipy"}

WORKER = """
import numpy as np
from app.jobs import memory, worker
memory.leave_pandas_out()
worker.warm_up()
import pyarrow as pa
assert pa.array(np.arange(2)).to_numpy().tolist() == [0, 1]
"""
KERNEL = "import app.engine.privacy.kernel"
WAITING_CHILD = """
import os, socket
from app.engine.sandbox import child
ours, theirs = socket.socketpair()
ours.close()
child.main(os.dup(theirs.fileno()))
"""
PANDAS_AFTERWARDS = """
from app.jobs.memory import leave_pandas_out
leave_pandas_out()
import pyarrow as pa
assert pa.table({"age": [40]}).to_pandas()["age"].tolist() == [40]
"""


def imported_by(script: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, json\n{script}\nprint(json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("script", "heavy"),
    [
        (WORKER, WEB | TABLES | COMPILER),
        (KERNEL, WEB | TABLES | COMPILER | {"pyarrow"}),
        (WAITING_CHILD, WEB | TABLES | {"pyarrow", "opendp", "sqlalchemy"}),
    ],
    ids=["a worker that has warmed up", "the kernel", "a child that waits"],
)
def test_a_process_starts_without_the_heavy_libraries(script: str, heavy: set[str]) -> None:
    assert imported_by(script) & heavy == set()


def test_a_waiting_child_has_imported_what_models_are_fitted_with() -> None:
    assert {"numba", "app.engine.synthesizers.swift", "app.engine.synthesizers.mst"} <= imported_by(
        WAITING_CHILD
    )


def test_whoever_needs_pandas_later_has_it() -> None:
    assert "pandas" in imported_by(PANDAS_AFTERWARDS)
