"""How long an upload is answered in, as the samples of the principal add up.

    .venv/bin/python -m bench.service.history

A release is made once and its sample is copied in the store as often as is asked for. Shown are the
medians, in milliseconds, of a small upload (JSON and table in one form) and of reading the release,
at each number of samples, all in one run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import httpx
from sqlalchemy import text

from app.database import Database
from bench.service.admission import RELEASE, SPEC, TABLE, medians_ms, upload
from bench.service.running import ADMIN, serving

SAMPLES = (0, 50_000, 251_000)
ROUNDS = 30


def published(client: httpx.Client, dataset: str) -> str:
    """A release of the dataset that has succeeded."""
    asked = client.post(f"/v1/datasets/{dataset}/releases", json=RELEASE).raise_for_status()
    path = f"/v1/releases/{asked.json()['id']}"
    while client.get(path).raise_for_status().json()["state"] != "succeeded":
        time.sleep(0.1)
    return path


def copy_samples(store: Path, sample_id: str, first: int, last: int) -> None:
    """Copies of a sample, with the numbers from `first` to `last`."""
    database = Database(f"sqlite:///{store}")
    with database.write() as session:
        names = [row[1] for row in session.execute(text("PRAGMA table_info(samples)"))]
        values = [f"old.{name}" if name != "id" else "old.id || '_' || n.i" for name in names]
        session.execute(
            text(
                "WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n"
                f" WHERE i < :last) INSERT INTO samples ({', '.join(names)})"
                f" SELECT {', '.join(values)} FROM samples AS old, n WHERE old.id = :id"
            ),
            {"first": first, "last": last, "id": sample_id},
        )
    database.close()


def measure(numbers: list[int], rounds: int) -> list[tuple[int, list[float]]]:
    form: dict[str, tuple[str | None, str | bytes, str]] = {
        "spec": (None, json.dumps(SPEC), "application/json"),
        "file": ("table.csv", TABLE, "text/csv"),
    }
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), workers=1) as (url, _),
        httpx.Client(base_url=url, headers=ADMIN, timeout=120) as client,
    ):
        path = published(client, upload(url))
        (sample,) = client.get(path).json()["samples"]
        held = 0
        for number in numbers:
            if number > held:
                copy_samples(Path(folder) / "halftone.sqlite", sample["id"], held + 1, number)
                held = number
            actions = (
                lambda: client.post("/v1/datasets", files=form).raise_for_status(),
                lambda: client.get(path).raise_for_status(),
            )
            found.append((number, medians_ms(*actions, rounds=rounds)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.service.history",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--samples", type=int, nargs="+", default=list(SAMPLES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    for number, (upload_ms, read_ms) in measure(sorted(arguments.samples), arguments.rounds):
        print(f"{number} samples: upload {upload_ms:.1f} ms, release {read_ms:.1f} ms")


if __name__ == "__main__":
    main()
