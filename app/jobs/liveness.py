"""Names of workers, from which others on the same machine see whether a worker is still alive."""

from __future__ import annotations

import contextlib
import socket

import psutil

# Start times come from the system clock, which can be adjusted by seconds.
_CLOCK_SLACK_MS = 5000


def own_name() -> str:
    """`host:pid:start`, the start in milliseconds, since process ids are reused."""
    process = psutil.Process()
    return f"{socket.gethostname()}:{process.pid}:{_started_ms(process)}"


def is_dead(name: str) -> bool:
    """Whether the worker of that name has certainly ended; False for one on another machine."""
    parts = name.rsplit(":", 2)
    if len(parts) != 3 or parts[0] != socket.gethostname():
        return False
    _, pid, started = parts
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(pid))
        is_other = abs(_started_ms(process) - int(started)) > _CLOCK_SLACK_MS
        return is_other or process.status() == psutil.STATUS_ZOMBIE
    return True


def _started_ms(process: psutil.Process) -> int:
    return int(process.create_time() * 1000)
