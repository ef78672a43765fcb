"""Processes of the service for fault tests, made by `crashing.py`, and the store they share."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

ADMIN_KEY = "hk_" + "f" * 40
PATIENCE_S = 90.0
_READY = re.compile(r"Halftone is ready at (http://\S+)")

SPEC: dict[str, Any] = {
    "name": "people",
    "schema": {
        "fields": [
            {"name": "colour", "type": "string", "constraints": {"enum": ["red", "blue"]}},
            {"name": "size", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
            {"name": "old", "type": "boolean"},
        ]
    },
    "unit": {"kind": "row"},
    "budget": {"epsilon": 1000, "delta": 0},
}


def confined() -> bool:
    """Whether this kernel has Landlock, by which children are confined where it can be."""
    return bool(ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1) >= 1)


def eventually(found: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """The first true value of `found`, asked again and again until patience ends."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {patience_s:.0f} s for {what}")


@dataclass(frozen=True)
class Fault:
    """End (`SIGKILL`) or stop the process before or after the nth call of `at`.

    `at` is `module:name`, looked up where callers look it up. Calls count once `armed_by`, a
    function, was entered; without one, once the test arms the process.
    """

    at: str
    when: str = "before"
    nth: int = 1
    armed_by: str | None = None
    deed: int = signal.SIGKILL


@dataclass
class Forked:
    """One process of the service."""

    pid: int
    log: Path
    arming: Path

    @property
    def alive(self) -> bool:
        try:
            return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    @property
    def stopped(self) -> bool:
        return self.alive and psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def arm(self) -> None:
        self.arming.touch()

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait_until_gone(self) -> None:
        eventually(lambda: not self.alive, f"process {self.pid} to end:\n{self.said()[-2000:]}")

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        self.wait_until_gone()


class Forge:
    """Starts processes on one store; ends those that are left when it closes."""

    def __init__(self, folder: Path, import_from: Sequence[Path] = (), **settings: Any) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.settings = {
            "HALFTONE_DATA": str(self.data),
            "HALFTONE_ADMIN_KEY": ADMIN_KEY,
            "HALFTONE_WORKERS": "0",
            "HALFTONE_DRAIN_S": "0",
            **{f"HALFTONE_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self._started: list[Forked] = []
        self._clients: list[httpx.Client] = []
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("crashing.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, import_from))},
        )
        assert self._reply() == "ready"

    def _reply(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def start(
        self,
        *command: str,
        fault: Fault | None = None,
        changes: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Forked:
        name = f"{len(self._started)}-{command[0]}"
        arming = self.folder / f"{name}.armed"
        started = Forked(0, self.folder / f"{name}.log", arming)
        more = {f"HALFTONE_{key.upper()}": str(value) for key, value in settings.items()}
        order = {
            "command": list(command),
            "environment": self.settings | more,
            "changes": dict(changes or {}),
            "log": str(started.log),
            "fault": None
            if fault is None
            else {
                "at": fault.at,
                "when": fault.when,
                "nth": fault.nth,
                "armed_by": fault.armed_by or str(arming),
                "deed": int(fault.deed),
            },
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        started.pid = int(self._reply())
        self._started.append(started)
        return started

    def serve(self, **options: Any) -> Served:
        process = self.start("serve", "--port", "0", **options)
        address = eventually(
            lambda: _READY.search(process.said()) or not process.alive, "the server to start"
        )
        assert address is not True, process.said()
        served = Served(process, address.group(1))
        self._clients.append(served.http)
        return served

    def work(self, **options: Any) -> Forked:
        return self.start("worker", **options)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for each in self._started:
            each.signal(signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()


@dataclass
class Served:
    """A server process and an HTTP client of it."""

    process: Forked
    url: str
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=60
        )

    def get(self, path: str) -> Any:
        answer = self.http.get(f"/v1{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def add_dataset(self, rows: int = 300) -> str:
        """Send a table; some worker must be running. The id, once it is ready."""
        table = (
            "".join(
                f"{random.choice(['red', 'blue'])},{random.randrange(10)},{random.choice('01')}\n"
                for _ in range(rows)
            )
            .replace(",0\n", ",false\n")
            .replace(",1\n", ",true\n")
        )
        answer = self.http.post(
            "/v1/datasets",
            files={
                "spec": (None, json.dumps(SPEC), "application/json"),
                "file": ("people.csv", "colour,size,old\n" + table, "text/csv"),
            },
        )
        assert answer.status_code == 202, answer.text
        dataset = answer.json()["id"]
        eventually(lambda: self.get(f"/datasets/{dataset}")["state"] != "ingesting", "the upload")
        assert self.get(f"/datasets/{dataset}")["state"] == "ready"
        return str(dataset)

    def ask(self, dataset: str, key: str | None = None, **changes: Any) -> httpx.Response:
        """Request a release."""
        body = {
            "synthesizer": "histogram",
            "guarantee": {"epsilon": "1"},
            "rows": 400,
            **changes,
        }
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.http.post(f"/v1/datasets/{dataset}/releases", json=body, headers=headers)

    def release(self, dataset: str, **changes: Any) -> str:
        answer = self.ask(dataset, **changes)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def ended(self, release: str) -> Any:
        """The release once it has ended."""
        ends = ("succeeded", "failed", "cancelled")

        def found() -> Any:
            shown = self.get(f"/releases/{release}")
            return shown if shown["state"] in ends else None

        return eventually(found, f"release {release} to end")


@contextlib.contextmanager
def forge(folder: Path, import_from: Sequence[Path] = (), **settings: Any) -> Iterator[Forge]:
    made = Forge(folder, import_from, **settings)
    try:
        yield made
    finally:
        made.close()
