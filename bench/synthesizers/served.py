"""Halftone's synthesizers over HTTP: one release on a server that has just been started."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from halftone_client import Halftone, HalftoneError, Release

from bench.service.running import KEY, serving
from bench.synthesizers.caps import least_caps
from bench.synthesizers.guarantee import DELTA
from bench.synthesizers.implementations import Made, RunFailed
from bench.synthesizers.memory import PeakMemory
from bench.synthesizers.tables import CodedTable

ASK_AGAIN_S = 0.02
BUDGET = {"epsilon": "100000", "delta": "1e-4"}


@dataclass(frozen=True)
class Served:
    """Seconds run from the request until the release is seen to have succeeded.

    Each release has a server of its own, started for it and then left alone for `settle_s`, as its
    worker is still starting when it first answers. The table was uploaded to the store below
    `stores` beforehand. If `is_capped` the server ends a job that takes more memory or time than
    the least that preflight lets it be made with.
    """

    synthesizer: str
    stores: Path
    settle_s: float
    time_limit_s: float
    is_capped: bool = False
    group: ClassVar[str] = "halftone"
    private: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.synthesizer

    def make(self, table: CodedTable, epsilon: str, seed: int) -> Made:
        if not table.is_plain:
            raise RunFailed("only coded rows are served here: use --in-process")
        del seed
        store = self.stores / table.name
        dataset = uploaded(table, store)
        caps = least_caps(self.synthesizer, table, epsilon) if self.is_capped else None
        settings = {} if caps is None else caps.settings
        with (
            serving(store, workers=1, settings=settings) as (url, process),
            Halftone(url, KEY) as client,
        ):
            with PeakMemory(process.pid) as peak:
                time.sleep(self.settle_s)
                started = time.perf_counter()
                release = self._release(client, dataset, epsilon)
                seconds = time.perf_counter() - started
            codes = table.coded(client.download(release))
        return Made(codes, seconds, peak.total_bytes, peak.child_bytes, caps)

    def _release(self, client: Halftone, dataset: str, epsilon: str) -> Release:
        deadline = time.monotonic() + self.time_limit_s
        guarantee = {"epsilon": epsilon, "delta": DELTA}
        try:
            release = client.release(dataset, self.synthesizer, guarantee, wait=False)
            while not release.is_finished:
                if time.monotonic() > deadline:
                    client.cancel(release)
                    raise RunFailed(f"not done after {self.time_limit_s:g} s")
                time.sleep(ASK_AGAIN_S)
                release = client.get_release(release)
        except HalftoneError as error:
            raise RunFailed(str(error)) from error
        if release.has_failed:
            raise RunFailed(f"{release.state}: {release.get('private_detail')}")
        return release


def uploaded(table: CodedTable, store: Path) -> str:
    """The id of the table's dataset in a store, which is made if there is none."""
    note = store / "bench-dataset.json"
    if note.exists():
        return str(json.loads(note.read_text())["id"])
    store.mkdir(parents=True)
    file = store / "bench-table.csv"
    table.decoded(table.used).to_csv(file, index=False)
    with serving(store, workers=1) as (url, _), Halftone(url, KEY) as client:
        dataset = client.upload(specification(table), file, progress=False)
    note.write_text(json.dumps({"id": dataset.id}))
    return dataset.id


def specification(table: CodedTable) -> dict[str, Any]:
    """Every value of the file is declared, so that the file's own N is no null."""
    return {
        "name": table.name.replace("_", "-"),
        "visibility": "private",
        "schema": dict(table.wire),
        "unit": {"kind": "row"},
        "max_total_rows": table.declared_rows,
        "budget": BUDGET,
        "accountant": "basic",
    }
