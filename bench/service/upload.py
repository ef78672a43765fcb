"""Upload of N rows x 13 columns of CSV: seconds, with pyarrow's own reader, and memory.

    .venv/bin/python -m bench.service.upload 1000000 10000000

Aims: within 15 times `pyarrow.csv.open_csv` on one thread, and a peak at ten million rows
within 64 MB of that at one million.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv

from bench.service.running import ADMIN, serving

PAYMENTS = ("Cash", "Credit Card", "Mobile", "Prcard", "Unknown")
COMPANIES = tuple(f"Company {number:02d}" for number in range(40))
BLOCK_ROWS = 500_000


def dictionary() -> dict[str, object]:
    def integer(name: str, low: int, high: int, **more: object) -> dict[str, object]:
        bounds = {"minimum": low, "maximum": high, "required": True}
        return {"name": name, "type": "integer", "constraints": bounds, **more}

    def number(name: str, high: int, step: float) -> dict[str, object]:
        bounds = {"minimum": 0, "maximum": high}
        return {"name": name, "type": "number", "constraints": bounds, "step": step}

    def category(name: str, values: tuple[str, ...]) -> dict[str, object]:
        return {"name": name, "type": "string", "constraints": {"enum": list(values)}}

    return {
        "fields": [
            integer("shift", 0, 20),
            integer("pickup", 1, 77),
            integer("dropoff", 1, 77),
            category("company", COMPANIES),
            category("payment", PAYMENTS),
            number("fare", 1000, 0.01),
            number("tips", 500, 0.01),
            number("total", 2000, 0.01),
            integer("seconds", 0, 86399, bins=20),
            number("miles", 500, 0.1),
            {
                "name": "day",
                "type": "date",
                "constraints": {"minimum": "2022-01-01", "maximum": "2022-12-31"},
            },
            {"name": "shared", "type": "boolean", "constraints": {"required": True}},
            integer("passengers", 1, 6),
        ],
        "missingValues": [""],
    }


def write_table(path: Path, rows: int) -> None:
    rng = np.random.default_rng(7)
    days = np.datetime64("2022-01-01") + np.arange(365)
    with path.open("wb") as file:
        for first in range(0, rows, BLOCK_ROWS):
            count = min(BLOCK_ROWS, rows - first)
            fare = np.round(rng.gamma(2.0, 8.0, count), 2).clip(0, 999)
            tips = np.where(rng.random(count) < 0.4, 0.0, np.round(fare * 0.2, 2))
            table = pa.table(
                {
                    "shift": rng.integers(0, 21, count),
                    "pickup": rng.integers(1, 78, count),
                    "dropoff": rng.integers(1, 78, count),
                    "company": np.asarray(COMPANIES)[rng.integers(0, 40, count)],
                    "payment": np.asarray(PAYMENTS)[rng.integers(0, 5, count)],
                    "fare": fare,
                    "tips": tips,
                    "total": np.round(fare + tips, 2),
                    "seconds": rng.integers(0, 7200, count),
                    "miles": np.round(rng.gamma(1.5, 3.0, count), 1).clip(0, 499),
                    "day": pa.array(days[rng.integers(0, 365, count)]),
                    "shared": pa.array(rng.random(count) < 0.2),
                    "passengers": rng.integers(1, 7, count),
                }
            )
            options = pa.csv.WriteOptions(include_header=first == 0, quoting_style="needed")
            pa.csv.write_csv(table, file, options)


def read_by_pyarrow(path: Path) -> float:
    """Seconds of `pyarrow.csv.open_csv` over the whole file on one thread."""
    started = time.perf_counter()
    with pa.csv.open_csv(path, read_options=pa.csv.ReadOptions(use_threads=False)) as reader:
        for batch in reader:
            del batch
    return time.perf_counter() - started


def peak_mib(process: psutil.Process) -> dict[str, float]:
    """Highest resident memory of the server and of its children, MiB, since each began."""
    peaks = {}
    for each in (process, *process.children(recursive=True)):
        status = Path(f"/proc/{each.pid}/status").read_text()
        high = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        peaks[f"{each.pid}:{' '.join(each.cmdline()[1:4])}"] = int(high.split()[1]) / 1024
    return peaks


def upload(path: Path, rows: int, folder: Path) -> tuple[float, float]:
    """Seconds from the first byte sent until `ready`, and the peak of any one process, MiB."""
    spec = {
        "name": "bench",
        "visibility": "private",
        "schema": dictionary(),
        "unit": {"kind": "row"},
        "max_total_rows": rows,
        "budget": {"epsilon": 1, "delta": 1e-9},
    }
    with serving(folder, workers=1) as (url, process):
        client = httpx.Client(base_url=url, headers=ADMIN, timeout=3600)
        dataset = client.post("/v1/datasets", json=spec).raise_for_status().json()["id"]
        started = time.perf_counter()
        with path.open("rb") as file:
            client.put(
                f"/v1/datasets/{dataset}/data", content=file, headers={"Content-Type": "text/csv"}
            ).raise_for_status()
        state = "ingesting"
        while state == "ingesting":
            time.sleep(0.05)
            state = client.get(f"/v1/datasets/{dataset}").json()["state"]
        seconds = time.perf_counter() - started
        if state != "ready":
            raise RuntimeError(client.get(f"/v1/datasets/{dataset}/ingest-report").text[:2000])
        peaks = peak_mib(psutil.Process(process.pid))
        for name, peak in peaks.items():
            print(f"    {peak:7.1f} MiB  {name}")
        return seconds, max(peaks.values())


def main() -> None:
    asked = _arguments()
    print("| rows | upload s | pyarrow s | ratio (aim 15) | peak MiB |\n|---|---|---|---|---|")
    for rows in asked.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.csv"
            write_table(path, rows)
            bare = read_by_pyarrow(path)
            seconds, peak = upload(path, rows, Path(folder) / "store")
            print(f"| {rows} | {seconds:.1f} | {bare:.2f} | {seconds / bare:.1f} | {peak:.0f} |")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.service.upload", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "rows", nargs="*", type=int, default=[1_000_000], help="sizes; a million if none is given"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
