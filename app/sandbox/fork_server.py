"""The process from which synthesizers' processes are forked.

    service ──control socket──▶ fork server ──fork──▶ guard ──fork──▶ synthesizer's process

It imports what every synthesizer's process needs, once, and then forks: a few milliseconds, where
a new Python takes a second of a processor.

Forking is safe here. The process has exactly one thread, which it asserts before each fork, so
no lock of another thread is copied in a locked state. It is started by `exec`, with an environment
of its own and no descriptor of the service but the control socket: no store, key or setting is in
its memory. It imports Halftone's own code and libraries alone. A third party's code is imported
only after the fork, in the process that is confined, so no request leaves anything behind for the
next.

What processes of one fork server share is where their code lies in memory, the seed by which
Python hashes texts, and other values that a program chooses at its start. That is acceptable:
these protect a process against crafted input, and each of these processes runs the code of a
synthesizer anyway. The service itself is not forked from here and shares none of them. Generators
of random numbers are seeded anew after the fork (see `confinement`).

The guard belongs to the service rather than to this process: it lives as long as its own socket
to the service is open. This process ends when the control socket closes, so also when the service
was killed; then the sockets of its guards close too, and each ends what it guards.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from app.sandbox import confinement, guard
from app.sandbox.kernel_calls import become_subreaper, has_pid_namespaces

# What comes with a plan: the child's connection, its output, and the guard's socket.
DESCRIPTORS = 3
# A plan's length goes before it, in so many bytes.
LENGTH_BYTES = 4
_TASKS = Path("/proc/self/task")


def main(descriptor: int, module: str, idle_s: float | None) -> None:
    """Import `module` and have it `prepare`; then fork on request until the service goes.

    First it tells the service what the kernel lacks. With `idle_s` it also ends after that many
    seconds without a request or a guard.
    """
    # An ignored signal stays ignored in a new program, and then no child could be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control = socket.socket(fileno=descriptor)
    importlib.import_module(module).prepare()
    # Objects that are never collected are never written to, and so stay shared with the children.
    gc.collect()
    gc.freeze()
    namespaces = has_pid_namespaces()
    missing = confinement.lacking()
    if not namespaces:
        missing.append("PID namespaces: what it starts is ended by its guard, not by the kernel")
    control.sendall(json.dumps(missing).encode() + b"\n")
    _ForkServer(control, namespaces).serve(idle_s)


class _ForkServer:
    def __init__(self, control: socket.socket, has_namespaces: bool) -> None:
        self._control = control
        self._has_namespaces = has_namespaces
        self._guards: set[int] = set()
        self._woken, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # A handler that does nothing, because only then does the system write to the pipe.
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self._wakes)
        # Processes whose guard was killed become children of this one, which ends them.
        become_subreaper()

    def serve(self, idle_s: float | None) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            may_end = idle_s is not None and not self._guards
            ready = poll.poll(idle_s * 1000 if may_end and idle_s is not None else None)
            if not ready and may_end:
                return
            self._reap()
            if any(descriptor == self._control.fileno() for descriptor, _ in ready):
                request = _received(self._control)
                if request is None:
                    return
                self._fork(*request)

    def _fork(self, plan: dict[str, Any], descriptors: list[int]) -> None:
        if _threads() != 1:
            sys.exit("the fork server has more than one thread, and must not fork")
        pid = os.fork()
        if not pid:
            self._become_guard(plan, descriptors)
        self._guards.add(pid)
        for each in descriptors:
            os.close(each)

    def _become_guard(self, plan: dict[str, Any], descriptors: list[int]) -> NoReturn:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        os.close(self._woken)
        os.close(self._wakes)
        plan["own_namespace"] &= self._has_namespaces
        guard.main(plan, *descriptors)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._guards.discard(ended)
        for orphan in set(guard.children_of(os.getpid())) - self._guards:
            os.kill(orphan, signal.SIGKILL)


def _received(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """A request; None once the service has gone."""
    length, descriptors, _, _ = socket.recv_fds(control, LENGTH_BYTES, DESCRIPTORS)
    if len(length) < LENGTH_BYTES:
        return None
    left = int.from_bytes(length, "little")
    pieces = []
    while left:
        piece = control.recv(left)
        if not piece:
            return None
        pieces.append(piece)
        left -= len(piece)
    return json.loads(b"".join(pieces)), descriptors


def _threads() -> int:
    """Of this process, also those that Python did not start."""
    return len(os.listdir(_TASKS)) if _TASKS.exists() else threading.active_count()


def _ignore(number: int, frame: FrameType | None) -> None:
    del number, frame
