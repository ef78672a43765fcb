"""Grocery purchases: households with up to thousands of rows, by the method that `auto` picks."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from halftone_client import Halftone
from numpy.typing import NDArray

from bench.service.known_tables import DICTIONARIES
from bench.service.running import KEY, serving
from bench.shared_data import DATA
from bench.synthesizers.memory import PeakMemory, peak_bytes

FILE = DATA / "purchases/transactions.parquet"
GUARANTEE = {"epsilon": "2", "delta": "1e-6"}
HOUSEHOLD = "household_id"
SYNTHESIZERS = ("auto",)


@dataclass(frozen=True)
class Households:
    """Of each household, the number of its rows and of the weeks in which it shops."""

    rows: NDArray[np.int64]
    weeks: NDArray[np.int64]

    @classmethod
    def of(cls, table: pd.DataFrame) -> Households:
        found = table.groupby(HOUSEHOLD)["week"].agg(["size", "nunique"]).to_numpy(np.int64)
        return cls(found[:, 0], found[:, 1])

    def apart(self, other: Households) -> float:
        """Total variation distance of the two distributions of rows per household."""
        most = int(max(self.rows.max(), other.rows.max())) + 1
        ours, theirs = (
            np.bincount(each.rows, minlength=most) / len(each.rows) for each in (self, other)
        )
        return float(np.abs(ours - theirs).sum() / 2)


def report(runs: int, systems: Sequence[str]) -> Iterator[str]:
    spec = json.loads((DICTIONARIES / "purchases.json").read_text())
    real = Households.of(bounded(pd.read_parquet(FILE), spec["unit"]["max_rows"]))
    yield f"{len(real.rows):,} real households shop in {real.weeks.mean():.1f} weeks"
    yield ""
    yield (
        "| asked | made by | upload, s | release, s | rows | households | rows per household"
        " | at random | weeks | at random | worker and child, MB | all, MB |"
    )
    yield "|---" * 12 + "|"
    for system in systems:
        for _ in range(runs):
            yield _line(system, spec, real)


def _line(system: str, spec: dict[str, object], real: Households) -> str:
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
            release = client.release(dataset, system, GUARANTEE, progress=False)
            seconds = time.perf_counter() - started
            server = peak_bytes(process.pid)
        rows = client.download(release)
    made, random = Households.of(rows), Households.of(dealt_at_random(rows))
    return (
        f"| {system} | {release['synthesizer']} | {uploaded:.1f} | {seconds:.1f} | {len(rows):,} | "
        f"{len(made.rows):,} | {made.apart(real):.3f} | {random.apart(real):.3f} | "
        f"{made.weeks.mean():.1f} | {random.weeks.mean():.1f} | "
        f"{peak.total_bytes / 1e6:,.0f} | {(peak.total_bytes + server) / 1e6:,.0f} |"
    )


def bounded(table: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most so many rows of each household, drawn as the kernel draws them."""
    return table.sample(frac=1, random_state=0).groupby(HOUSEHOLD).head(most)


def dealt_at_random(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with a household each that is drawn from as many."""
    households = table[HOUSEHOLD].nunique()
    drawn = np.random.default_rng(0).integers(0, households, len(table))
    return table.assign(**{HOUSEHOLD: drawn})
