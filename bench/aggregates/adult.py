"""`aggregate_seeded` compared with the package that its method comes from, on Adult.

    PAC_SYNTH_PYTHON=.pac/bin/python python -m bench.aggregates.adult [epsilon]

The peer runs in a virtualenv of its own (`uv venv .pac && uv pip install -p .pac pac-synth`),
the other side in this process, one after the other; without PAC_SYNTH_PYTHON it runs alone.
Both get the same 39,074 rows and 14 columns, R = 3 and the same guarantee. Printed are
seconds, and the mean total variation distance over all 1, 2 and 3 columns; an empty place
is no value, so that it counts as mass that is missing. Reads `adult/` below
HALFTONE_SHARED_DATA (default `../shared/data`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from app.engine.privacy.library import open_session
from app.engine.privacy.loss import Guarantee
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aggregate_seeded import AggregateSeeded
from app.engine.table import generator
from bench import shared_data

DATA = shared_data.DATA / "adult"
PEER = Path(__file__).with_name("peer.py")
LENGTH = 3
DELTA = 2.4e-6
"""1 / (n ln n), which the peer would take by itself, fixed beforehand."""

Codes = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Run:
    """One side's table (code -1 is an empty place) and its seconds."""

    name: str
    codes: Codes
    aggregate_s: float
    synthesise_s: float


def dictionary(cells: Mapping[str, int], *, required: bool) -> Schema:
    return Schema.parse(
        {
            "fields": [
                {
                    "name": name,
                    "type": "integer",
                    "constraints": {"minimum": 0, "maximum": most - 1, "required": required},
                }
                for name, most in cells.items()
            ]
        }
    )


def run_ours(codes: Codes, cells: Mapping[str, int], epsilon: float, *, required: bool) -> Run:
    """With required columns every place is filled; otherwise some stay empty, as the peer's do."""
    schema = dictionary(cells, required=required)
    guarantee = Guarantee(epsilon=round(epsilon * 10**12), delta=round(DELTA * 10**18))
    synthesizer = AggregateSeeded()
    session = open_session(codes, schema, PrivacyUnit("row"), guarantee)
    started = time.perf_counter()
    model = synthesizer.fit(session, synthesizer.Params(), None, 0, _silent)
    aggregated = time.perf_counter()
    table = model.sample(None, generator(0))
    done = time.perf_counter()
    made = {
        name: np.where(table.codes[name] < cells[name], table.codes[name], -1) for name in cells
    }
    return Run(
        f"halftone, {'filled' if required else 'open'}",
        made,
        aggregated - started,
        done - aggregated,
    )


def run_peer(python: str, codes: Codes, epsilon: float) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder, "table.csv"), Path(folder, "out.csv")
        pd.DataFrame(dict(codes)).to_csv(table, index=False)
        command = [python, str(PEER), str(table), str(out), str(epsilon), str(DELTA), str(LENGTH)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        made = pd.read_csv(out)
    seconds = json.loads(printed)
    filled = {name: made[name].fillna(-1).to_numpy().astype(np.int64) for name in codes}
    return Run("pac-synth", filled, seconds["aggregate_s"], seconds["synthesise_s"])


def distances(real: Codes, made: Codes, cells: Mapping[str, int]) -> list[float]:
    """Mean total variation distance over all choices of 1, 2 and 3 columns."""
    return [
        float(
            np.mean(
                [
                    np.abs(_shares(real, names, cells) - _shares(made, names, cells)).sum() / 2
                    for names in combinations(cells, size)
                ]
            )
        )
        for size in (1, 2, 3)
    ]


def _shares(codes: Codes, names: tuple[str, ...], cells: Mapping[str, int]) -> NDArray[np.float64]:
    rows = len(codes[names[0]])
    flat, whole, size = np.zeros(rows, np.int64), np.ones(rows, bool), 1
    for name in names:
        flat = flat * cells[name] + codes[name]
        whole &= codes[name] >= 0
        size *= cells[name]
    return np.bincount(flat[whole], minlength=size) / rows


def _silent(fraction: float, stage: str) -> None:
    del fraction, stage


def main() -> None:
    epsilon = _arguments().epsilon
    shared_data.must_be_there()
    cells: dict[str, int] = json.loads((DATA / "adult-domain.json").read_text())
    table = pd.read_csv(DATA / "adult.csv")
    order = np.random.default_rng(0).permutation(len(table))[: len(table) * 8 // 10]
    codes = {name: table[name].to_numpy()[order] for name in cells}
    few = {name: codes[name][:200] for name in cells}
    run_ours(few, cells, 100.0, required=True)  # so that compiled loops are ready
    runs = [
        run_ours(codes, cells, epsilon, required=True),
        run_ours(codes, cells, epsilon, required=False),
    ]
    peer = os.environ.get("PAC_SYNTH_PYTHON")
    if peer:
        runs.append(run_peer(peer, codes, epsilon))
    for run in runs:
        one, two, three = distances(codes, run.codes, cells)
        rows = len(next(iter(run.codes.values())))
        print(
            f"{run.name}: aggregate {run.aggregate_s:.2f} s, synthesise {run.synthesise_s:.2f} s,"
            f" {rows} rows, distance {one:.4f} {two:.4f} {three:.4f}",
            flush=True,
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.aggregates.adult", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("epsilon", nargs="?", type=float, default=1.0, help="1 if none is given")
    return parser.parse_args()


if __name__ == "__main__":
    main()
