"""The worker processes of one server: started, restarted when they end, stopped with it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time

from pydantic import SecretStr

from app.jobs.chores import Chores
from app.jobs.shutdown import Shutdown
from app.settings import Settings

FIRST_PAUSE_S = 0.2
# Pauses double up to this, so that a worker that cannot start does not use up a processor.
LONGEST_PAUSE_S = 10.0
# A worker that lived this long is restarted without a pause.
SETTLED_S = 20.0
# Time to record how its job ended, after the drain time is over.
KILL_AFTER_S = 5.0
_LOOK_S = 0.1

log = logging.getLogger("halftone.jobs")


def environment_of(settings: Settings) -> dict[str, str]:
    """This process's environment, with the settings in it as a worker reads them."""
    variables = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if isinstance(value, tuple):
            value = ",".join(value)
        if value is not None:
            variables[f"HALFTONE_{name.upper()}"] = str(value)
    return os.environ | variables


class WorkerPool:
    """Keeps `settings.workers` workers alive until the `with` block ends.

    Workers stop with this process, however it ends: each reads from a pipe that is open here.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._environment = environment_of(settings)
        self._shutdown = Shutdown(settings.drain_s)
        self._slots = [_Slot() for _ in range(settings.workers)]
        self.chores = Chores("workers", {"workers": (self._restart_ended, 0.0)}, look_s=_LOOK_S)

    def __enter__(self) -> WorkerPool:
        for slot in self._slots:
            slot.start(self._environment)
        self.chores.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop_claiming()
        self.chores.stop()
        deadline = time.monotonic() + self._settings.drain_s + KILL_AFTER_S
        for slot in self._slots:
            slot.end_by(deadline)

    def stop_claiming(self) -> None:
        """Signal workers to finish their job and to claim no other; returns at once."""
        if not self._shutdown.requested:
            self._shutdown.request()
            self.chores.request_stop()
            for slot in self._slots:
                slot.terminate()

    def _restart_ended(self) -> None:
        for slot in self._slots:
            slot.restart_if_ended(self._environment)


class _Slot:
    """One worker process after another. Locked: a signal may end it while it is restarted."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._restart_at: float | None = None
        self._stopped = False
        self._lock = threading.RLock()

    def start(self, environment: dict[str, str]) -> None:
        with self._lock:
            # Without this check, a signal between two workers would leave the second one running.
            if self._stopped:
                return
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app.jobs.worker", "--supervised"],
                env=environment,
                stdin=subprocess.PIPE,
                # Ctrl-C in a terminal reaches this process alone, which then stops its workers in
                # order.
                start_new_session=True,
            )
            self._started = time.monotonic()
            self._restart_at = None

    def restart_if_ended(self, environment: dict[str, str]) -> None:
        if self._process is None or self._process.poll() is None:
            return
        if self._restart_at is None:
            self._restart_at = time.monotonic() + self._next_pause_s()
            log.warning("a worker ended with status %s", self._process.returncode)
        if time.monotonic() >= self._restart_at:
            self._close_pipe()
            self.start(environment)

    def _next_pause_s(self) -> float:
        if time.monotonic() - self._started > SETTLED_S:
            self._pause_s = FIRST_PAUSE_S
        else:
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return self._pause_s

    def terminate(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()

    def end_by(self, deadline: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
