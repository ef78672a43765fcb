"""What comes back from a library's process is a stranger's, and so is the process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter_tables import pairs_schema

from app.engine.adapters import running
from app.engine.adapters.budget import LibraryGuarantee
from app.engine.adapters.fitted import table_model
from app.engine.adapters.running import LibraryFailed, Order, run
from app.engine.columns.axes import choose_axes
from app.engine.graphical.table_model import TableModel
from app.engine.schema import PrivacyUnit
from app.engine.table import generator

ROW = PrivacyUnit("row")
AXES, _ = choose_axes(pairs_schema(), None, {})
HEADER: dict[str, Any] = {"axes": [[0, 1]], "rows": 100.0}
LOGS = {"logs0": np.log(np.array([[0.4, 0.1], [0.2, 0.3]]))}


def model(header: dict[str, Any] = HEADER, unit: PrivacyUnit = ROW, **arrays: Any) -> TableModel:
    return table_model("dpmm:mst", AXES, unit, header, LOGS | arrays)


def test_logarithms_over_declared_cells_are_a_model() -> None:
    made = model()
    stored = TableModel.load("dpmm:mst", pairs_schema(), ROW, made.dump())
    table = stored.sample(10_000, generator(1))
    counted = np.histogram2d(table.codes["a"], table.codes["b"], 2)[0]
    assert counted / 10_000 == pytest.approx(np.exp(LOGS["logs0"]), abs=0.01)
    assert stored.noisy_rows == 100


def test_merged_cells_are_dealt_out_evenly() -> None:
    made = model(
        {"axes": [[0], [1]], "rows": 10.0},
        logs0=np.zeros(1),
        logs1=np.log([0.9, 0.1]),
        merge0=np.zeros(2, dtype=np.int64),
    )
    table = made.sample(1000, generator(1))
    assert np.bincount(table.codes["a"]).tolist() == [500, 500]
    assert np.bincount(table.codes["b"]).tolist() == [900, 100]


def test_each_row_of_an_entity_unit_is_an_entity_of_its_own() -> None:
    table = model(unit=PrivacyUnit("entity", "id", 5)).sample(50, generator(1))
    assert table.entity is not None
    assert sorted(table.entity.tolist()) == list(range(50))


@pytest.mark.parametrize(
    "rows",
    [float("nan"), float("inf"), "many", None, True, 1e300, 10**400, [3]],
    ids=["nan", "inf", "text", "none", "true", "large", "larger than a float", "list"],
)
def test_a_number_of_rows_that_is_none_is_refused(rows: Any) -> None:
    with pytest.raises(LibraryFailed):
        model(HEADER | {"rows": rows})


def test_a_reply_that_begins_with_no_object_is_refused() -> None:
    listed: Any = [HEADER]
    with pytest.raises(LibraryFailed):
        model(listed)


def test_a_negative_noisy_number_of_rows_is_none() -> None:
    assert model(HEADER | {"rows": -3.7}).noisy_rows == 0


@pytest.mark.parametrize(
    "axes", [None, 3, [3], [[0, 0]], [[0, 2]], [[-1, 0]], [["a", "b"]], [[0, True]], [[0]], [[]]]
)
def test_factors_over_other_columns_are_refused(axes: Any) -> None:
    with pytest.raises(LibraryFailed):
        model(HEADER | {"axes": axes})


@pytest.mark.parametrize(
    "logs",
    [
        np.zeros((2, 3)),
        np.zeros(4),
        np.zeros((2, 2), dtype=np.int64),
        np.full((2, 2), np.nan),
        np.full((2, 2), np.inf),
        np.full((2, 2), -np.inf),
        np.zeros((0, 2)),
    ],
    ids=["shape", "flat", "type", "nan", "inf", "-inf", "empty"],
)
def test_tables_that_are_no_logarithms_of_the_cells_are_refused(logs: Any) -> None:
    with pytest.raises(LibraryFailed):
        model(logs0=logs)


def test_logarithms_at_the_ends_of_a_floats_range_do_no_harm() -> None:
    table = model(logs0=np.array([[1.7e308, -1.7e308], [0, 0]])).sample(100, generator(1))
    assert not table.codes["a"].any()


@pytest.mark.parametrize("merge", [[0, 2], [-1, 0], [1, 1], [0], [0.0, 1.0], [0, 2**40]], ids=str)
def test_cells_that_are_merged_into_none_are_refused(merge: list[Any]) -> None:
    with pytest.raises(LibraryFailed):
        model(merge0=np.array(merge))


def test_a_factor_without_its_table_is_refused() -> None:
    with pytest.raises(LibraryFailed):
        model(HEADER | {"axes": [[0, 1], [1]]})


ORDER = Order("dpmm", "mst", {}, LibraryGuarantee(1.0, 1e-9, 0.02))
REQUEST = ORDER.request((2, 2), [np.zeros(50_000, dtype=np.int64)] * 2)


def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """In place of the library's runner."""
    runner = tmp_path / "stranger.py"
    runner.write_text(textwrap.dedent(code))
    monkeypatch.setattr(running, "RUNNER", runner)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise SystemExit(3)", "status 3"),
        ("import os; os.kill(os.getpid(), 9)", "status -9"),
        ("pass", "no model"),
        ("import sys; sys.stdin.buffer.read(); print('{}')", "no model"),
        ("import os; os.close(0); os.write(1, b'PK' * 9)", "no model"),
        (
            "import pickle, sys; sys.stdin.buffer.read();"
            "sys.stdout.buffer.write(pickle.dumps({'axes': []}))",
            "no model",
        ),
    ],
)
def test_a_process_that_ends_otherwise_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    stranger(tmp_path, monkeypatch, code)
    with pytest.raises(LibraryFailed, match=why):
        run(Path(sys.executable), REQUEST)


def test_a_reply_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_REPLY_BYTES", 2**16)
    stranger(tmp_path, monkeypatch, "import os\nwhile True: os.write(1, bytes(2**16))")
    with pytest.raises(LibraryFailed, match="too large"):
        run(Path(sys.executable), REQUEST)


def test_the_process_is_told_the_request_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALFTONE_MASTER_KEY", "a secret")
    stranger(
        tmp_path,
        monkeypatch,
        """
        import io, json, os, sys
        import numpy as np
        asked = np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
        told = {
            "names": sorted(os.environ),
            "order": json.loads(asked["header"].tobytes()),
            "rows": [asked["x0"].size, str(asked["x0"].dtype)],
            "parent": int(sys.argv[1]) == os.getppid(),
        }
        np.savez(sys.stdout.buffer, header=np.frombuffer(json.dumps(told).encode(), np.uint8))
        """,
    )
    header, arrays = run(Path(sys.executable), REQUEST)
    assert arrays == {}
    assert not [name for name in header["names"] if "HALFTONE" in name or "KEY" in name]
    assert header["rows"] == [50_000, "int8"]
    assert header["parent"]
    assert json.dumps(header["order"], sort_keys=True) == json.dumps(
        {
            "cells": [2, 2],
            "delta": 1e-9,
            "epsilon": 1.0,
            "library": "dpmm",
            "method": "mst",
            "options": {},
            "rho": 0.02,
        }
    )


def test_a_runner_without_its_parent_ends_at_once() -> None:
    ended = subprocess.run(
        [sys.executable, "-I", str(running.RUNNER), "1"],
        input=REQUEST,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, b"")
