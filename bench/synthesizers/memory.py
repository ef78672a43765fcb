"""Peak memory of the processes that a server starts."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

LOOK_S = 0.05
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class PeakOfDescendants:
    """The largest resident set that each descendant of a process ever had, added up.

    Each one's peak is the kernel's own record, so only what a process grew in the last twentieth
    of a second before its end can be missed. Peaks need not have fallen together, and pages that
    processes share count for each: the sum is no less than what was needed. Linux only.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._peaks: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak memory", daemon=True)

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
        return sum(self._peaks.values())

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        for process in self._root.children(recursive=True):
            peak = peak_bytes(process.pid)
            if peak is not None:
                self._peaks[process.pid] = peak


def peak_bytes(pid: int) -> int | None:
    """The largest resident set that a process has had; None if it is gone."""
    try:
        found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(found.group(1)) * 1024 if found else None
