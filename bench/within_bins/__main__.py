"""How close numbers and dates in private bins are to the real ones, with or without sub-bins.

    python -m bench.within_bins [--epsilon 0.5 1 10] [--pieces 1 8 16] [--systems independent swift]

`fnlwgt` and `capital_gain` of Adult (raw; public ranges to 2 and 1 million, 0 special) and the
day of Baltimore's incidents (public range 2000 to 2030), at (epsilon, 1e-6), each row a unit. A
line shows, over several releases with their standard error: the total variation distance of the
real column from half a million synthetic rows over 200 cells that hold equal numbers of real rows;
and the Wasserstein distance of the two as a share of the standard deviation of the real column.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.loss import Guarantee
from app.engine.schema import PrivacyUnit, Schema
from bench import shared_data
from bench.challenge.fitting import fitted, sampling, with_error
from bench.shared_data import DATA

ROW = PrivacyUnit("row")
ROWS = 500_000
CELLS = 200
FIRST_DAY = dt.date(2000, 1, 1)
Codes = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Real:
    """A table, and its columns with private bins."""

    schema: Schema
    codes: Codes
    binned: tuple[str, ...]


def adult() -> Real:
    with (DATA / "adult/adult-raw.data").open() as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if len(row) == 15]
    fields = [
        _whole("age", 0, 120),
        _whole("fnlwgt", 0, 2_000_000, bins="quantiles"),
        _whole("education_num", 0, 20),
        _whole("capital_gain", 0, 1_000_000, bins="quantiles", special=[0]),
        _whole("hours", 0, 99),
    ]
    names = ("age", "fnlwgt", "education_num", "capital_gain", "hours")
    places = (0, 2, 4, 10, 12)
    schema = Schema.parse({"fields": fields})
    codes = {
        name: np.array([int(row[place]) for row in rows], dtype=np.int64)
        for name, place in zip(names, places, strict=True)
    }
    gains = schema.column("capital_gain")
    codes["capital_gain"][codes["capital_gain"] == 0] = gains.regular
    return Real(schema, codes, ("fnlwgt", "capital_gain"))


def incidents() -> Real:
    with (DATA / "incidents/baltimore_2019.csv").open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    day = {
        "name": "day",
        "type": "date",
        "constraints": {"minimum": "2000-01-01", "maximum": "2030-12-31", "required": True},
        "bins": "quantiles",
    }
    districts = sorted({row["District"] for row in rows})
    district = {
        "name": "district",
        "type": "string",
        "constraints": {"enum": districts, "required": True},
    }
    schema = Schema.parse({"fields": [day, district]})
    dates = [_date(row["CrimeDate"]) for row in rows]
    codes = {
        "day": np.array([(date - FIRST_DAY).days for date in dates], dtype=np.int64),
        "district": np.array([districts.index(row["District"]) for row in rows], dtype=np.int64),
    }
    return Real(schema, codes, ("day",))


def _date(spelled: str) -> dt.date:
    month, day, year = map(int, spelled.split("/"))
    return dt.date(year, month, day)


def _whole(name: str, low: int, high: int, **keys: Any) -> dict[str, Any]:
    constraints = {"minimum": low, "maximum": high, "required": True}
    return {"name": name, "type": "integer", "constraints": constraints, **keys}


def main() -> None:
    asked = _arguments()
    shared_data.must_be_there()
    print("| column | system | epsilon | pieces | total variation | Wasserstein |")
    print("|---|---|---|---|---|---|")
    for real in (adult(), incidents()):
        for system in asked.systems:
            for epsilon in asked.epsilon:
                for pieces in asked.pieces:
                    for line in _lines(real, system, epsilon, pieces, asked.runs):
                        print(line, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.within_bins", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1, 10])
    parser.add_argument("--pieces", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--systems", nargs="+", default=["independent", "swift"])
    parser.add_argument("--runs", type=int, default=10)
    return parser.parse_args()


def _lines(real: Real, system: str, epsilon: float, pieces: int, runs: int) -> Iterator[str]:
    found = np.array([_distances(real, system, epsilon, pieces) for _ in range(runs)])
    for place, name in enumerate(real.binned):
        told = (with_error(values, ".4f", ".4f") for values in found[:, place].T)
        cut = "none" if pieces == 1 else str(pieces)
        yield f"| `{name}` | `{system}` | {epsilon:g} | {cut} | {' | '.join(told)} |"


def _distances(real: Real, system: str, epsilon: float, pieces: int) -> list[tuple[float, float]]:
    guarantee = Guarantee(epsilon=round(epsilon * 10**12), delta=10**12)
    model = fitted(system, {"within_bins": pieces}, real.codes, real.schema, ROW, guarantee)
    made: Codes = model.sample(ROWS, sampling(0)).codes
    return [_apart(real.codes[name], made[name]) for name in real.binned]


def _apart(real: NDArray[np.int64], made: NDArray[np.int64]) -> tuple[float, float]:
    ranked = np.sort(real)
    cuts = np.unique(ranked[np.linspace(0, ranked.size - 1, CELLS + 1).astype(int)[1:]])
    shares = [
        np.bincount(np.searchsorted(cuts, each), minlength=cuts.size + 1) / each.size
        for each in (real, made)
    ]
    at = np.linspace(0, 1, 100_001)
    apart = np.abs(np.quantile(real, at) - np.quantile(made, at)).mean()
    return float(np.abs(shares[0] - shares[1]).sum() / 2), float(apart / real.std())


if __name__ == "__main__":
    main()
