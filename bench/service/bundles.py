"""Download and verification of the bundle of N rows x 20 columns: seconds, size and memory.

    .venv/bin/python -m bench.service.bundles 10000 100000 1000000

The server's memory is its highest while it sends, less what it held before. Aim: at a million rows
within 64 MiB of that at ten thousand, since a bundle is written as it is sent.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from bench.service.running import ADMIN, serving

# What the private table has; the rows of the bundle are asked for apart.
PRIVATE_ROWS = 5_000
MIB = 1024**2
_COLUMNS = (("word", 8), ("whole", 8), ("number", 2), ("day", 2))


@dataclass(frozen=True)
class Measured:
    """One bundle: its size, how long it took, and what memory it took on both sides."""

    size_bytes: int
    seconds: float
    server_bytes: int
    verify_seconds: float
    verify_bytes: int


def dictionary() -> dict[str, object]:
    """Eight columns of words, eight of whole numbers, two of numbers and two of dates."""
    words = [f"value {place:02d}" for place in range(20)]
    year = {"minimum": "2024-01-01", "maximum": "2024-12-31"}
    return {
        "fields": [
            *(
                {"name": f"word{place}", "type": "string", "constraints": {"enum": words}}
                for place in range(8)
            ),
            *(
                {
                    "name": f"whole{place}",
                    "type": "integer",
                    "constraints": {"minimum": 0, "maximum": 99},
                }
                for place in range(8)
            ),
            *(
                {
                    "name": f"number{place}",
                    "type": "number",
                    "constraints": {"minimum": 0, "maximum": 1000},
                    "step": 0.01,
                }
                for place in range(2)
            ),
            *({"name": f"day{place}", "type": "date", "constraints": year} for place in range(2)),
        ]
    }


def table() -> bytes:
    """Rows of the private table as CSV."""
    rng = np.random.default_rng(7)
    names = [f"{kind}{n}" for kind, many in _COLUMNS for n in range(many)]
    lines = [",".join(names)]
    for _ in range(PRIVATE_ROWS):
        cells = [f"value {each:02d}" for each in rng.integers(0, 20, 8)]
        cells += [str(each) for each in rng.integers(0, 100, 8)]
        cells += [f"{each / 100:.2f}" for each in rng.integers(0, 100_001, 2)]
        cells += [f"2024-{month:02d}-{month:02d}" for month in rng.integers(1, 13, 2)]
        lines.append(",".join(cells))
    return ("\n".join(lines) + "\n").encode()


def peak_bytes(pid: int) -> int:
    """Highest resident memory of a process since it began, or since `reset_peak`."""
    status = Path(f"/proc/{pid}/status").read_text()
    high = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(high.split()[1]) * 1024


def reset_peak(pid: int) -> int:
    """Count the peak anew from here on; the memory held now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak_bytes(pid)


def upload(client: httpx.Client, rows: int) -> str:
    """The id of a dataset that may give so many rows."""
    spec = {
        "name": "bench",
        "visibility": "private",
        "schema": dictionary(),
        "unit": {"kind": "row"},
        "max_total_rows": rows,
        "budget": {"epsilon": 100, "delta": 1e-9},
    }
    dataset = str(client.post("/v1/datasets", json=spec).raise_for_status().json()["id"])
    client.put(
        f"/v1/datasets/{dataset}/data", content=table(), headers={"Content-Type": "text/csv"}
    ).raise_for_status()
    while client.get(f"/v1/datasets/{dataset}").json()["state"] == "ingesting":
        time.sleep(0.1)
    return dataset


def release(client: httpx.Client, dataset: str, rows: int) -> str:
    """The id of a release with so many rows, once it has succeeded."""
    asked = {"synthesizer": "independent", "guarantee": {"epsilon": 1}, "rows": rows}
    answer = client.post(f"/v1/datasets/{dataset}/releases", json=asked).raise_for_status()
    made = str(answer.json()["id"])
    state = "queued"
    while state in ("queued", "running"):
        time.sleep(0.2)
        state = client.get(f"/v1/releases/{made}").json()["state"]
    if state != "succeeded":
        raise RuntimeError(f"the release has {state}")
    return made


def measure(client: httpx.Client, pid: int, made: str, target: Path) -> Measured:
    """Download the bundle to a file, and verify it in a process of its own."""
    before = reset_peak(pid)
    started = time.perf_counter()
    with (
        target.open("wb") as file,
        client.stream("GET", f"/v1/releases/{made}/bundle") as answer,
    ):
        answer.raise_for_status()
        for piece in answer.iter_raw():
            file.write(piece)
    seconds = time.perf_counter() - started
    grown = peak_bytes(pid) - before
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", _VERIFY, str(target)], stdout=subprocess.PIPE, text=True
    ) as verifying:
        assert verifying.stdout is not None
        told = verifying.stdout.read()
    if verifying.returncode != 0:
        raise RuntimeError(told)
    return Measured(
        target.stat().st_size,
        seconds,
        grown,
        time.perf_counter() - started,
        int(told.split()[-1]) * 1024,
    )


# The command itself, and then the highest memory of its process in KiB.
_VERIFY = """
import resource, sys
from halftone_client import cli
status = cli.main(["verify", sys.argv[1]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(status)
"""


def main() -> None:
    asked = _arguments()
    print("| rows | bundle MB | download s | server MiB | verify s | verify MiB |")
    print("|---|---|---|---|---|---|", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "store", workers=1) as (url, process),
        httpx.Client(base_url=url, headers=ADMIN, timeout=3600) as client,
    ):
        dataset = upload(client, max(*asked.rows, PRIVATE_ROWS))
        for rows in asked.rows:
            made = release(client, dataset, rows)
            found = measure(client, process.pid, made, Path(folder) / "bundle.zip")
            print(
                f"| {rows:,} | {found.size_bytes / 1e6:.1f} | {found.seconds:.1f}"
                f" | {found.server_bytes / MIB:.0f} | {found.verify_seconds:.1f}"
                f" | {found.verify_bytes / MIB:.0f} |",
                flush=True,
            )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.service.bundles", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "rows",
        nargs="*",
        type=int,
        default=[10_000, 100_000, 1_000_000],
        help="rows of the bundles; 10,000, 100,000 and a million if none is given",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
