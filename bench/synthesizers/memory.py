"""Peak memory of a server's worker and of the child process that runs a release for it."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

LOOK_S = 0.05
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class PeakMemory:
    """Watches the one worker of a server; figures are largest resident sets, in bytes.

    They are the kernel's own record, so only what a process grew in the last twentieth of a second
    before its end can be missed. `child_bytes` is that of the largest child: next to the one that
    runs a release another waits for the next. `total_bytes` adds the worker's to it, as if the two
    peaks fell together and no page were shared: no less than was needed. Linux only.
    """

    def __init__(self, server: int) -> None:
        self._server = psutil.Process(server)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak memory", daemon=True)
        self._worker_bytes = 0
        self.child_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    @property
    def total_bytes(self) -> int:
        return self._worker_bytes + self.child_bytes

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        for process in self._server.children(recursive=True):
            peak = peak_bytes(process.pid)
            if _parent(process) == self._server.pid:
                self._worker_bytes = max(self._worker_bytes, peak)
            else:
                self.child_bytes = max(self.child_bytes, peak)


def peak_bytes(pid: int) -> int:
    """The largest resident set that a process has had; 0 if it is gone."""
    try:
        found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(found.group(1)) * 1024 if found else 0


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None
