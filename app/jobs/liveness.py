"""Names of workers, from which others on the same machine see whether a worker is still alive."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class _Seen:
    """When a process started, as no clock that is set can change it, and whether it has ended."""

    started: str
    ended: bool


def own_name() -> str:
    """`host:boot:pid:start`: process ids come again, and ids and starts after a boot too."""
    pid = psutil.Process().pid
    seen = _look_at(pid)
    assert seen is not None
    return f"{socket.gethostname()}:{_boot()}:{pid}:{seen.started}"


def is_dead(name: str) -> bool:
    """Whether the worker of that name has certainly ended; False for one on another machine, or
    from before the last boot, whose lease runs out."""
    parts = name.rsplit(":", 3)
    if len(parts) != 4 or parts[:2] != [socket.gethostname(), _boot()]:
        return False
    seen = _look_at(int(parts[2]))
    return seen is None or seen.ended or seen.started != parts[3]


@cache
def _boot() -> str:
    if sys.platform == "linux":
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return ""


def _look_at(pid: int) -> _Seen | None:
    """None if there is no such process."""
    if sys.platform == "linux":
        return _from_proc(pid)
    try:
        process = psutil.Process(pid)
        # Elsewhere than on Linux a start is noted once, and does not move with the clock.
        return _Seen(f"{process.create_time():.2f}", process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return None


def _from_proc(pid: int) -> _Seen | None:
    """proc(5): `starttime` counts clock ticks from the boot. What psutil gives adds the moment of
    the boot, which moves whenever the clock is set."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name of the program, in brackets, may hold anything.
    state, *fields = stat.rpartition(")")[2].split()
    return _Seen(fields[18], state in "ZXx")
