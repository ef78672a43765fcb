"""A store on which release after release is interrupted, and what must hold after each.

Whatever the step: what is spent is what the ledger says, no release is lost or run twice,
no question is answered twice, and no half-written sample is served.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from forge import Forge, Served, forge
from stored import Store

ROWS = 400
EPSILON = 10**12


@dataclass
class Stage:
    """A store with one dataset, on which release after release is interrupted."""

    forge: Forge
    store: Store
    dataset: str
    releases: list[str]

    def check(self, served: Served, release: str) -> None:
        """What must hold after the release, whatever happened on the way."""
        assert served.ended(release)["state"] == "succeeded"
        assert release not in self.releases
        self.releases.append(release)
        (sample,) = served.get(f"/releases/{release}")["samples"]
        data = served.http.get(f"/v1/samples/{sample['id']}/data?format=parquet")
        assert pq.read_table(io.BytesIO(data.content)).num_rows == ROWS
        numbers = [number for number, *_ in self.store.journal(release)]
        assert numbers == list(range(len(numbers)))
        charged = (EPSILON * len(self.releases), 0)
        assert self.store.spent(self.dataset) == self.store.charged(self.dataset) == charged
        assert served.get(f"/datasets/{self.dataset}/ledger/verification")["ok"]
        assert self.store.rows("SELECT id FROM releases ORDER BY 1") == [
            (each,) for each in sorted(self.releases)
        ]


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """A store with one dataset that is ready; no process runs on it."""
    with forge(folder) as made:
        served, worker = made.serve(), made.work()
        dataset = served.add_dataset()
        worker.stop()
        served.process.stop()
        yield Stage(made, Store(made.data), dataset, [])
