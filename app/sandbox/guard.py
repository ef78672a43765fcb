"""The parent of a synthesizer's process: ends it and all that it started.

It runs Halftone's code alone. The service holds the other end of its socket and tells it nothing:
when that end closes or is shut down, also because the service was killed, the guard ends the
process with all its descendants, and then itself. It does the same when the process ends, or when
it and its descendants hold more memory together than one may, or are too many. Nobody but the
parent uses a process id to kill, and no id can belong to another process by then.

The process is the first of a PID namespace where the kernel gives one: with it, the kernel ends all
that descends from it, whatever its session or group, and none can be named or signalled from
outside of the namespace. Where it gives none, descendants whose parents have ended become
children of the guard (a child subreaper), which ends them one by one.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from app.sandbox import confinement
from app.sandbox.confinement import MOST_TASKS
from app.sandbox.kernel_calls import become_subreaper, new_pid_namespace

# How often limits are checked and orphans reaped.
_TICK_MS = 100


def main(plan: dict[str, Any], connection: int, output: int, life: int) -> NoReturn:
    """Start the process of `plan`, guard it until its end, and leave nothing behind."""
    try:
        for standard in (1, 2):
            os.dup2(output, standard)
        os.close(output)
        _guard(plan, connection, socket.socket(fileno=life))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _guard(plan: dict[str, Any], connection: int, life: socket.socket) -> None:
    become_subreaper()
    namespace = new_pid_namespace() if plan["own_namespace"] else None
    # Closed with this process alone, so that the child can tell whether it still has a parent.
    guarded, guarding = os.pipe()
    child = os.fork()
    if not child:
        os.close(guarding)
        if namespace == "user and pid":
            confinement.limit_tasks()
        confinement.main(plan, connection, guarded)
    os.close(connection)
    os.close(guarded)
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            life.sendall(b"%d\n" % child)
            _wait(child, life, plan["memory_bytes"])
    finally:
        _end_all(child)


def _wait(child: int, life: socket.socket, memory_bytes: int | None) -> None:
    """Return when the process has ended, or has to end."""
    poll = select.poll()
    poll.register(life, select.POLLIN)
    with contextlib.suppress(OSError):  # old kernels, and some containers, have no such descriptor
        poll.register(os.pidfd_open(child), select.POLLIN)
    while not poll.poll(_TICK_MS):
        _reap_others(child)
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        if excess := _excess(memory_bytes):
            os.write(1, f"ended by Halftone: {excess}\n".encode())
            return


def _excess(memory_bytes: int | None) -> str | None:
    """What the process and its descendants have too much of together, if anything."""
    family = list(_descendants_of(os.getpid()))
    if len(family) > MOST_TASKS:
        return f"it started more than {MOST_TASKS} processes"
    # Of one process alone, the kernel refuses what goes beyond the limit.
    if memory_bytes is None or len(family) == 1:
        return None
    if sum(map(_resident_bytes, family)) > memory_bytes:
        return f"its processes hold more than {memory_bytes // 2**20} MiB together"
    return None


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _reap_others(child: int) -> None:
    for each in children_of(os.getpid()):
        if each != child:
            os.waitpid(each, os.WNOHANG)


def _end_all(child: int) -> None:
    """Kill and reap the child and all its descendants, also those that are started meanwhile.

    Only ids of own children and of the child's group are used: they cannot belong to others before
    the child is reaped here. The children of those that end become own children.
    """
    os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it may have had no time to make a group
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            for each in children_of(os.getpid()):
                os.kill(each, signal.SIGKILL)
            os.waitpid(-1, 0)


def _descendants_of(pid: int) -> Iterator[int]:
    for child in children_of(pid):
        yield child
        yield from _descendants_of(child)


def children_of(pid: int) -> list[int]:
    """Empty for a process that has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
