"""A real server process on a store of its own, for tests that speak HTTP to it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

ADMIN_KEY = "hk_" + "a" * 40
_READY = re.compile(r"Halftone is ready at (http://\S+)")


@dataclass
class LiveServer:
    """A running `halftone serve`: its address, its process, what it printed."""

    url: str
    process: subprocess.Popen[str]
    data: Path
    output: list[str] = field(default_factory=list)

    def client(self, key: str = ADMIN_KEY, timeout_s: float = 60) -> httpx.Client:
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {key}"}, timeout=timeout_s
        )


@contextlib.contextmanager
def serving(
    data: Path, settings: Mapping[str, str] | None = None, start_timeout_s: float = 60
) -> Iterator[LiveServer]:
    """Serve the store in `data` on a free port; ends only the process that it started."""
    environment = {
        **os.environ,
        "HALFTONE_DATA": str(data),
        "HALFTONE_ADMIN_KEY": ADMIN_KEY,
        "PYTHONUNBUFFERED": "1",
        **(settings or {}),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve", "--port", "0"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    output: list[str] = []
    found = threading.Event()
    address: list[str] = []

    def drain(stream: IO[str]) -> None:
        for line in stream:
            output.append(line)
            if match := _READY.search(line):
                address.append(match.group(1))
                found.set()
        found.set()

    assert process.stdout is not None
    reader = threading.Thread(target=drain, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        if not found.wait(start_timeout_s) or not address:
            raise RuntimeError("the server did not start:\n" + "".join(output))
        yield LiveServer(address[0].rstrip("/"), process, data, output)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
        process.stdout.close()
