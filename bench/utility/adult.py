"""How near synthetic pairs of columns are to real ones, on Adult.

    python -m bench.utility.adult [runs]

Fits 80 % of the rows, and prints the mean total variation distance over all pairs of
columns, to those rows and to the 20 % held out. Reads `adult/` below HALFTONE_SHARED_DATA
(default `../shared/data`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from app.engine.privacy.library import open_session
from app.engine.privacy.loss import Guarantee
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers import registry
from app.engine.synthesizers.base import generator

DATA = Path(os.environ.get("HALFTONE_SHARED_DATA", "../shared/data")) / "adult"
DELTA = 10**9  # 1e-9
GUARANTEES = {
    "epsilon 1": Guarantee(epsilon=10**12, delta=DELTA),
    "epsilon 10": Guarantee(epsilon=10**13, delta=DELTA),
    "epsilon 1, pure": Guarantee(epsilon=10**12),
}

Codes = Mapping[str, NDArray[np.int64]]


def integer_columns(cells: Mapping[str, int]) -> Schema:
    """A dictionary of required integers, each from 0 to its number of cells less one."""
    return Schema.parse(
        {
            "fields": [
                {
                    "name": name,
                    "type": "integer",
                    "constraints": {"minimum": 0, "maximum": most - 1, "required": True},
                }
                for name, most in cells.items()
            ]
        }
    )


def pair_shares(codes: Codes, cells: Mapping[str, int]) -> list[NDArray[np.float64]]:
    """For each pair of columns its histogram, divided by the number of rows."""
    rows = len(next(iter(codes.values())))
    return [
        np.bincount(codes[a] * cells[b] + codes[b], minlength=cells[a] * cells[b]) / rows
        for a, b in combinations(cells, 2)
    ]


def distance(ours: list[NDArray[np.float64]], theirs: list[NDArray[np.float64]]) -> float:
    """Mean total variation distance."""
    return float(np.mean([np.abs(a - b).sum() / 2 for a, b in zip(ours, theirs, strict=True)]))


def _silent(fraction: float, stage: str) -> None:
    del fraction, stage


def main(runs: int) -> None:
    cells: dict[str, int] = json.loads((DATA / "adult-domain.json").read_text())
    table = pd.read_csv(DATA / "adult.csv")
    order = np.random.default_rng(0).permutation(len(table))
    cut = len(table) * 8 // 10
    used, held_out = (
        {name: table[name].to_numpy()[part] for name in cells}
        for part in (order[:cut], order[cut:])
    )
    of_used, of_held_out = pair_shares(used, cells), pair_shares(held_out, cells)
    print(f"rows used to held out: {distance(of_used, of_held_out):.4f}")
    schema, unit = integer_columns(cells), PrivacyUnit("row")
    for name in ("independent", "mst"):
        synthesizer = registry.builtin(name)
        for label, guarantee in GUARANTEES.items():
            for _ in range(runs):
                session = open_session(used, schema, unit, guarantee)
                started = time.perf_counter()
                model = synthesizer.fit(session, synthesizer.Params(), None, 0, _silent)
                seconds = time.perf_counter() - started
                shares = pair_shares(model.sample(None, generator(0)).codes, cells)
                print(
                    f"{name:12} {label:16} to used {distance(shares, of_used):.4f}"
                    f"  to held out {distance(shares, of_held_out):.4f}  fit {seconds:.1f} s"
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
