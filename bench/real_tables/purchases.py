"""Grocery purchases: households with up to thousands of rows, by whatever `auto` picks."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from halftone_client import Halftone

from bench.service.known_tables import DATA, DICTIONARIES
from bench.service.running import KEY, serving
from bench.synthesizers.memory import PeakMemory, peak_bytes

FILE = DATA / "purchases/transactions.parquet"
GUARANTEE = {"epsilon": "2", "delta": "1e-6"}


def report(runs: int) -> Iterator[str]:
    spec = json.loads((DICTIONARIES / "purchases.json").read_text())
    yield "| picked | upload, s | release, s | rows | households | worker and child, MB | all, MB |"
    yield "|---|---|---|---|---|---|---|"
    for _ in range(runs):
        with (
            tempfile.TemporaryDirectory() as folder,
            serving(Path(folder), workers=1) as (url, process),
        ):
            client = Halftone(url, KEY)
            started = time.perf_counter()
            dataset = client.upload(spec, FILE, progress=False)
            uploaded = time.perf_counter() - started
            with PeakMemory(process.pid) as peak:
                started = time.perf_counter()
                release = client.release(dataset, "auto", GUARANTEE, progress=False)
                seconds = time.perf_counter() - started
                server = peak_bytes(process.pid)
            rows = client.download(release)
            yield (
                f"| {release['synthesizer']} | {uploaded:.1f} | {seconds:.1f} | {len(rows):,} | "
                f"{rows['household_id'].nunique():,} | {peak.total_bytes / 1e6:,.0f} | "
                f"{(peak.total_bytes + server) / 1e6:,.0f} |"
            )
