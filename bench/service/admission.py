"""Admission compared with the operations that it is built on, all in one run.

    .venv/bin/python -m bench.service.admission

In process: the whole use-case (checks, charge, ledger, release, job, idempotency) compared with a
bare durable SQLite transaction on the same settings (aim: within 8 times), with the high-water mark
that a served store writes after each charge (open, append, fsync) and without it. Over HTTP: the
same request compared with an authenticated POST that does nothing, at 1 and 16 clients (aims: at
most 3 times, and at least 100 admissions a second). The two sides of each comparison take
turns, so that both meet the same machine; figures are medians. The server's CPU time for each
request and the load of the machine are shown with them.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil

from app.database import Database, new_id
from app.datasets.models import DatasetRow
from app.idempotency import Attempt
from app.ledger.marks import Marks
from app.ledger.schemas import GuaranteeIn
from app.releases import admission
from app.releases.catalogue import Catalogue
from app.releases.refusals import HiddenRefusals
from app.releases.schemas import ReleaseIn
from app.security.bootstrap import ensure_admin
from app.security.models import PrincipalRow
from app.security.principals import Principal
from app.settings import Settings
from app.storage.encryption import Keyring
from bench.service.running import ADMIN, serving

ROUNDS = 300
TURNS = 5
REQUESTS = 160
"""Of each kind in each turn."""
TABLE = b"x,y\n" + b"1,a\n2,b\n3,a\n" * 20
SPEC = {
    "name": "bench",
    "visibility": "private",
    "schema": {
        "fields": [
            {"name": "x", "type": "integer", "constraints": {"minimum": 1, "maximum": 3}},
            {"name": "y", "type": "string", "constraints": {"enum": ["a", "b"]}},
        ]
    },
    "unit": {"kind": "row"},
    "max_total_rows": 1000,
    "budget": {"epsilon": 1000, "delta": 1e-6},
}
RELEASE = {"synthesizer": "histogram", "guarantee": {"epsilon": "0.001"}}


def upload(url: str) -> str:
    """A small dataset, ready; its id."""
    files: dict[str, tuple[str | None, str | bytes, str]] = {
        "spec": (None, json.dumps(SPEC), "application/json"),
        "file": ("table.csv", TABLE, "text/csv"),
    }
    headers = {**ADMIN, "Prefer": "wait=60"}
    answer = httpx.post(f"{url}/v1/datasets", files=files, headers=headers, timeout=90)
    body = answer.raise_for_status().json()
    if body["state"] != "ready":
        raise RuntimeError(f"the table was not taken: {body}")
    return str(body["id"])


def medians_ms(*actions: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """The median time of each action; they take turns."""
    taken: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for action, times in zip(actions, taken, strict=True):
            started = time.perf_counter()
            action()
            times.append(time.perf_counter() - started)
    return [statistics.median(times) * 1000 for times in taken]


def bare_transaction(folder: Path) -> Callable[[], object]:
    """One durable insert: BEGIN IMMEDIATE, INSERT, COMMIT, with the store's own pragmas."""
    connection = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE entries (id TEXT PRIMARY KEY, data TEXT)")

    def insert() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO entries VALUES (?, ?)", (new_id("rl"), "x" * 500))
        connection.execute("COMMIT")

    return insert


def in_process(folder: Path, dataset: str, *, marked: bool) -> Callable[[], object]:
    """The admission use-case on the store that a server has filled and left."""
    settings = Settings(data=folder)
    database = Database(settings.url)
    if marked:
        Marks.of(database, Keyring(settings)).follow(database)
    ensure_admin(database, settings)
    catalogue = Catalogue(settings)
    principal, refusals = _owner(database, dataset), HiddenRefusals()
    form = ReleaseIn(
        synthesizer="histogram", guarantee=GuaranteeIn.model_validate({"epsilon": "0.001"})
    )

    def admit() -> None:
        attempt = Attempt(principal.id, "releases.create", new_id("key"), "0" * 64)
        prepared = admission.prepare(
            database, catalogue, principal, dataset, form, attempt, settings
        )
        with database.write() as session:
            admission.admit(session, principal, prepared, attempt, refusals, settings)

    return admit


def _owner(database: Database, dataset: str) -> Principal:
    with database.read() as session:
        row = session.get_one(DatasetRow, dataset)
        owner = session.get_one(PrincipalRow, row.owner_id)
        return Principal(owner.id, owner.name, owner.is_admin, owner.is_custodian, owner.is_analyst)


class Load(NamedTuple):
    """Requests answered each second, and the server's CPU time for each."""

    rate: float
    cpu_ms: float


def in_turns(url: str, server: psutil.Process, clients: int, dataset: str) -> list[Load]:
    """Medians of the no-op and of admissions."""
    kinds = (("/bench/noop", 200), (f"/v1/datasets/{dataset}/releases", 202))
    seen: list[list[Load]] = [[], []]
    for _ in range(TURNS):
        for (path, expect), loads in zip(kinds, seen, strict=True):
            before = sum(server.cpu_times()[:2])
            rate = per_second(url, path, clients, RELEASE, expect)
            spent = sum(server.cpu_times()[:2]) - before
            loads.append(Load(rate, 1000 * spent / REQUESTS))
    return [
        Load(
            statistics.median(load.rate for load in loads),
            statistics.median(load.cpu_ms for load in loads),
        )
        for loads in seen
    ]


def per_second(url: str, path: str, clients: int, body: Mapping[str, object], expect: int) -> float:
    """Requests answered each second by `clients` threads with a connection each."""
    barrier = threading.Barrier(clients + 1)
    failures: list[str] = []

    def work() -> None:
        with httpx.Client(base_url=url, headers=ADMIN, timeout=60) as client:
            client.get("/v1/me")
            barrier.wait()
            for _ in range(REQUESTS // clients):
                answer = client.post(path, json=body, headers={"Idempotency-Key": new_id("key")})
                if answer.status_code != expect:
                    failures.append(answer.text)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - started
    if failures:
        raise RuntimeError(failures[0])
    return REQUESTS / taken


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m bench.service.admission", description=(__doc__ or "").splitlines()[0]
    ).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(folder / "store", workers=1) as (url, _):
            dataset = upload(url)
        bare, admitted, unmarked = medians_ms(
            bare_transaction(folder),
            in_process(folder / "store", dataset, marked=True),
            in_process(folder / "store", dataset, marked=False),
        )
        print(f"bare durable transaction  {bare:7.2f} ms")
        print(f"admission in process      {admitted:7.2f} ms   x{admitted / bare:.1f} (aim 8)")
        print(f"the same without a mark   {unmarked:7.2f} ms   x{unmarked / bare:.1f}")
        with serving(folder / "store", workers=0, module="bench.service.noop") as (url, process):
            server = psutil.Process(process.pid)
            for clients in (1, 16):
                nothing, admissions = in_turns(url, server, clients, dataset)
                print(
                    f"HTTP, {clients:2d} clients: no-op {nothing.rate:5.0f}/s"
                    f" ({nothing.cpu_ms:.2f} ms CPU), admissions {admissions.rate:5.0f}/s"
                    f" ({admissions.cpu_ms:.2f} ms CPU)   x{nothing.rate / admissions.rate:.1f}"
                    " (aim 3, and 100/s)"
                )
        print(f"load of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
