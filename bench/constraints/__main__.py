"""A million synthetic taxi trips that keep `trip_total >= fare + tips - 1`, and what that moves.

    python -m bench.constraints [--rows 1000000] [--epsilon 1 10]
                                [--systems independent mst swift aim]

Each system is fitted at (epsilon, 2.5e-5) on the taxi as unit, and sampled with the rule. A line
shows how many rows broke the rule as the model made them and after repair, the seconds of repair,
and for each column of the rule the total variation distance that repair moved it, and its distance
from the real column before and after.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from app.engine.constraints.stream import RepairedRows
from app.engine.privacy.loss import Guarantee
from app.engine.schema import Column, Schema
from app.engine.table import Table
from bench import shared_data
from bench.challenge.fitting import fitted, sampling
from bench.challenge.tables import ENTITY, TAXI, Trips, sprint3_schema, trips

RULE = {"kind": "at_least", "column": "trip_total", "sum_of": ["fare", "tips"], "offset": -1}
NAMES = ("fare", "tips", "trip_total")
Codes = Mapping[str, NDArray[np.int64]]


def main() -> None:
    asked = _arguments()
    shared_data.must_be_there()
    schema = Schema.parse({**sprint3_schema().to_wire(), "constraints": [RULE]})
    real = trips("private_2022", schema)
    print("| system | epsilon | broken | after | seconds | moved | from real, before | after |")
    print("|---|---|---|---|---|---|---|---|")
    for system in asked.systems:
        for epsilon in asked.epsilon:
            print(_line(system, epsilon, real, asked.rows), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.constraints", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--epsilon", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--systems", nargs="+", default=["independent", "mst", "swift", "aim"])
    return parser.parse_args()


def _line(system: str, epsilon: int, real: Trips, rows: int) -> str:
    guarantee = Guarantee(epsilon=epsilon * 10**12, delta=25 * 10**12)
    model = fitted(
        system, {}, real.codes, real.schema, TAXI, guarantee, entities=real.values[ENTITY]
    )
    made = model.sample(rows, sampling(0))
    start = time.perf_counter()
    stream = RepairedRows([made], real.schema, seed=0)
    parts = list(stream)
    seconds = time.perf_counter() - start
    assert stream.repairs is not None
    kept = _joined(parts)
    (left,) = real.schema.violations(kept)
    cells = [
        f"{stream.repairs.broken[0]:,}",
        f"{left.sum():,}",
        f"{seconds:.1f}",
        _three([stream.repairs.distances[name] for name in NAMES]),
        _three([_distance(real.schema.column(name), real.codes, made.codes) for name in NAMES]),
        _three([_distance(real.schema.column(name), real.codes, kept) for name in NAMES]),
    ]
    return f"| {system} | {epsilon} | " + " | ".join(cells) + " |"


def _joined(parts: list[Table]) -> dict[str, NDArray[np.int64]]:
    return {name: np.concatenate([part.codes[name] for part in parts]) for name in NAMES}


def _three(distances: list[float]) -> str:
    return ", ".join(f"{distance:.4f}" for distance in distances)


def _distance(column: Column, one: Codes, other: Codes) -> float:
    shares = []
    for codes in (one[column.name], other[column.name]):
        cells = column.grouping.cell_of(codes)
        shares.append(np.bincount(cells, minlength=column.grouping.cells) / len(codes))
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


if __name__ == "__main__":
    main()
