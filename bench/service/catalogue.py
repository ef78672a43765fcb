"""What readers of the public catalogue cost those who work: admissions alone and beside them.

    .venv/bin/python -m bench.service.catalogue

One custodian asks for releases, one after the other, while nobody reads and while 200 readers
without a key list publications, open them and download archives as fast as they are answered (aim:
at most half as slow again). The two take turns on one server, so that both meet the same machine.
Readers have a process of their own. Once with the limit for an address that the service has by
default, once without, as readers from 200 addresses would meet it.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import multiprocessing
import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from app.database import new_id
from bench.service.admission import RELEASE, upload
from bench.service.running import ADMIN, serving

READERS = 200
TURNS = 4
ADMISSIONS = 40
"""In each turn."""
PUBLICATIONS = 20
CITATION: dict[str, Any] = {
    "title": "Synthetic rows",
    "abstract": "Rows of the bench.",
    "license": "CC0-1.0",
    "creators": [{"name": "Bench"}],
}


def publish(url: str, dataset: str) -> list[str]:
    """Some publications of one release; their ids."""
    with httpx.Client(base_url=url, headers=ADMIN, timeout=90) as http:
        made = http.post(f"/v1/datasets/{dataset}/releases", json=RELEASE).raise_for_status()
        release = made.json()["id"]
        while http.get(f"/v1/releases/{release}").json()["state"] != "succeeded":
            time.sleep(0.1)
        found = []
        for number in range(PUBLICATIONS):
            body = {"release": release, **CITATION, "title": f"Synthetic rows {number}"}
            answer = http.post("/v1/publications", json=body).raise_for_status()
            found.append(answer.json()["id"])
        return found


def latencies_s(url: str, dataset: str) -> list[float]:
    """Of admissions, one after the other."""
    taken = []
    with httpx.Client(base_url=url, headers=ADMIN, timeout=120) as http:
        http.get("/v1/me")
        for _ in range(ADMISSIONS):
            key = {"Idempotency-Key": new_id("key")}
            started = time.perf_counter()
            answer = http.post(f"/v1/datasets/{dataset}/releases", json=RELEASE, headers=key)
            taken.append(time.perf_counter() - started)
            answer.raise_for_status()
    return taken


def read(url: str, publications: list[str], control: Connection) -> None:
    """Readers until told to stop; sends how often each status was answered."""
    answered: collections.Counter[int] = collections.Counter()

    async def one(http: httpx.AsyncClient, number: int, stop: asyncio.Event) -> None:
        chosen = publications[number % len(publications)]
        paths = ["/v1/publications", f"/v1/publications/{chosen}"]
        paths.append(f"/v1/publications/{chosen}/bundle")
        while not stop.is_set():
            for path in paths:
                try:
                    answered[(await http.get(path)).status_code] += 1
                except httpx.HTTPError:
                    answered[0] += 1

    async def every() -> None:
        stop = asyncio.Event()
        limits = httpx.Limits(max_connections=READERS)
        async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
            tasks = [asyncio.create_task(one(http, number, stop)) for number in range(READERS)]
            await asyncio.to_thread(control.recv)
            stop.set()
            await asyncio.gather(*tasks)

    asyncio.run(every())
    control.send(dict(answered))


def beside(url: str, publications: list[str], dataset: str) -> tuple[list[float], dict[int, int]]:
    """Latencies of admissions while all readers read, and what the readers were answered."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    readers = context.Process(target=read, args=(url, publications, theirs))
    readers.start()
    time.sleep(3)
    taken = latencies_s(url, dataset)
    ours.send("stop")
    answered: dict[int, int] = ours.recv()
    readers.join()
    return taken, answered


def measure(limit: int | None) -> None:
    settings = {"HALFTONE_PUBLIC_CATALOGUE": "true"}
    if limit is not None:
        settings["HALFTONE_ANONYMOUS_REQUESTS"] = str(limit)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(folder, workers=1) as (url, _):
            dataset = upload(url)
            publications = publish(url, dataset)
        # Without a worker: runs of releases would take turns with readers on the same processors.
        with serving(folder, workers=0, settings=settings) as (url, _):
            alone: list[float] = []
            together: list[float] = []
            answered: collections.Counter[int] = collections.Counter()
            for _ in range(TURNS):
                alone += latencies_s(url, dataset)
                taken, statuses = beside(url, publications, dataset)
                together += taken
                answered.update(statuses)
    before, after = (1000 * statistics.median(each) for each in (alone, together))
    print(f"  an admission alone: {before:.1f} ms; beside {READERS} readers: {after:.1f} ms")
    print(f"  ratio {after / before:.2f}; readers were answered {dict(sorted(answered.items()))}")


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m bench.service.catalogue", description=(__doc__ or "").splitlines()[0]
    ).parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    print("with the limit of requests for one address:")
    measure(None)
    print("without it:")
    measure(10**9)


if __name__ == "__main__":
    main()
