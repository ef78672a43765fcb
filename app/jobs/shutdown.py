"""A request to stop working, and how long running jobs still have."""

from __future__ import annotations

import threading
import time


class Shutdown:
    """Once requested, no more jobs are claimed; running ones may end until `drain_s` is over."""

    def __init__(self, drain_s: float) -> None:
        self._drain_s = drain_s
        self._deadline = float("inf")
        self._requested = threading.Event()

    def request(self, drain_s: float | None = None) -> None:
        """Request a stop; a second request with a shorter time shortens the wait."""
        allowed = self._drain_s if drain_s is None else drain_s
        # The deadline before the event: a thread that sees the request must not read an infinite
        # deadline.
        self._deadline = min(self._deadline, time.monotonic() + allowed)
        self._requested.set()

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    @property
    def overdue(self) -> bool:
        return time.monotonic() >= self._deadline

    def wait(self, timeout_s: float) -> bool:
        """Wait for a request; whether there is one."""
        return self._requested.wait(timeout_s)
