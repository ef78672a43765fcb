"""The parent of a synthesizer's process: ends it and all that it started.

It runs Halftone's code alone. The service holds the other end of its socket and tells it nothing:
when that end closes or is shut down, also because the service was killed, the guard ends the
process with all its descendants, and then itself. It does the same when the process ends. So
nobody but the parent uses a process id to kill, and no id can belong to another process by then.

Descendants whose parents have ended become children of the guard (a child subreaper, on Linux),
whatever session or group they are in.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import traceback
from pathlib import Path
from typing import Any, NoReturn

from app.sandbox import confinement
from app.sandbox.kernel_calls import become_subreaper

# How often orphans are reaped, and how soon an end is noticed without a descriptor of the process.
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
    # Closed with this process alone, so that the child can tell whether it still has a parent.
    guarded, guarding = os.pipe()
    child = os.fork()
    if not child:
        os.close(guarding)
        confinement.main(plan, connection, guarded)
    os.close(connection)
    os.close(guarded)
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            life.sendall(b"%d\n" % child)
            _wait(child, life)
    finally:
        _end_all(child)


def _wait(child: int, life: socket.socket) -> None:
    """Return when the process has ended, or when the service wants it to end."""
    poll = select.poll()
    poll.register(life, select.POLLIN)
    with contextlib.suppress(OSError):  # old kernels, and some containers, have no such descriptor
        poll.register(os.pidfd_open(child), select.POLLIN)
    while not poll.poll(_TICK_MS):
        _reap_others(child)
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return


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


def children_of(pid: int) -> list[int]:
    """Empty for a process that has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
