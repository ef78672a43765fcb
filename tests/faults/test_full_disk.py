"""A service whose disk fills up: what it answers, what waits, and what is finished later.

The disk is a small file system in memory, so the tests need the right to mount one (root).
`--fault-rounds N` fills it N times.
"""

from __future__ import annotations

import errno
import os
import secrets
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from forge import SPEC, Forge, Forked, Served, eventually, forge
from httpx import Response
from stored import Store

DISK_BYTES = 64 * 1024**2
# Less than the table takes in the store.
ROOM_TO_CLAIM_BYTES = 512 * 1024
WIDE = {
    **SPEC,
    "name": "numbers",
    "schema": {
        "fields": [
            {
                "name": "number",
                "type": "integer",
                "constraints": {"minimum": 0, "maximum": 2**31},
                "bins": 16,
            }
        ]
    },
}
FULL = ("/problems/storage-full", "/problems/unavailable")


class Disk:
    """A file system of its own, with a ballast that leaves as much room as the test says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ballast = folder / "ballast"

    def leave(self, room_bytes: int) -> None:
        with self._ballast.open("ab") as file:
            while True:
                found, own = os.statvfs(self._folder), os.fstat(file.fileno())
                free = found.f_bavail * found.f_frsize
                size = max(own.st_blocks * 512 + free - room_bytes, 1)
                os.ftruncate(file.fileno(), size)
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                    return
                except OSError as error:
                    # The service took some of it since the look; nothing was given then.
                    if error.errno != errno.ENOSPC:
                        raise

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    folder = tmp_path_factory.mktemp("full")
    data = folder / "data"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(data)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk can only be mounted by root")
    try:
        with forge(folder) as started:
            yield started
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


@pytest.fixture(scope="module")
def disk(made: Forge) -> Disk:
    return Disk(made.data)


def declare(served: Served) -> str:
    return str(served.http.post("/v1/datasets", json=WIDE).json()["id"])


def send(served: Served, dataset: str, rows: int) -> Response:
    # Other numbers each time, or the table would be recognised; they compress badly.
    table = "number\n" + "".join(f"{secrets.randbits(31)}\n" for _ in range(rows))
    return served.http.put(f"/v1/datasets/{dataset}/data", content=table.encode())


def is_ready(served: Served, dataset: str) -> bool:
    return bool(served.get(f"/datasets/{dataset}")["state"] == "ready")


def has_found_no_room(worker: Forked, store: Store, dataset: str) -> bool:
    """Whether the job was handed back and claimed again, or waits to be handed back."""
    return "No space left" in worker.said() or store.job(dataset)["claims"] > 1


def test_a_disk_that_fills_up_refuses_and_waits_and_loses_nothing(
    made: Forge, disk: Disk, fault_rounds: int
) -> None:
    store = Store(made.data)
    served, worker = made.serve(), made.work()
    dataset = served.add_dataset()
    for number in range(1, fault_rounds + 1):
        gone = served.add_dataset()
        # Accepted with room for the file, then no room for the table.
        worker.stop()
        sent = send(served, declare(served), 200_000)
        assert sent.status_code == 202
        waiting = sent.json()
        declared = declare(served)
        disk.leave(ROOM_TO_CLAIM_BYTES)
        worker = made.work()
        found = partial(has_found_no_room, worker, store, waiting["id"])
        eventually(found, "the ingest to find no room")
        assert store.job(waiting["id"])["losses"] == 0

        # No room at all, and no worker that gives back room of its own.
        worker.stop()
        disk.leave(0)
        refused = [
            send(served, declared, 5_000),
            served.ask(dataset, key=f"full-{number}"),
            served.http.delete(f"/v1/datasets/{gone}"),
            served.http.get("/readyz"),
        ]
        for answer in refused:
            assert answer.status_code in (503, 507), answer.text
            assert answer.json()["type"] in FULL
            assert int(answer.headers["Retry-After"]) > 0
        assert store.charged(dataset) == ((number - 1) * 10**12, 0)

        # With room again everything goes on by itself.
        disk.empty()
        worker = made.work()
        eventually(partial(is_ready, served, waiting["id"]), "the ingest to go on")
        assert store.job(waiting["id"])["losses"] == 0
        answer = served.ask(dataset, key=f"full-{number}")
        assert served.ended(answer.json()["id"])["state"] == "succeeded"
        assert store.spent(dataset) == store.charged(dataset) == (number * 10**12, 0)
        assert served.get(f"/datasets/{declared}")["state"] == "awaiting_data"
        assert send(served, declared, 500).status_code == 202
        eventually(partial(is_ready, served, declared), "the refused upload, sent again")
        for erased in (gone, waiting["id"], declared):
            assert served.http.delete(f"/v1/datasets/{erased}").status_code == 200
            assert not store.rows("SELECT 1 FROM chunks WHERE collection = ?", erased)
        ready = served.http.get("/readyz")
        assert ready.status_code == 200, ready.text
    for process in (served.process, worker):
        process.stop()
        assert "Traceback" not in process.said()
    assert sorted(path.name for path in (made.data / "staging").iterdir()) == []
