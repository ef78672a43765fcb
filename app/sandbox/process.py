"""A synthesizer's process: confined, and ended by force if necessary.

It holds one socket and nothing else of the service: no database, path, key or setting. Its
environment is built from scratch, its folder is empty, and the end of what it prints is kept for
the custodian.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.engine.adapters import virtualenvs
from app.sandbox.folders import ChildFolder
from app.sandbox.forks import CHILD, environment, fork_server, import_from

MOST_OUTPUT_BYTES = 16 * 1024
_LAST_OUTPUT_S = 0.3
# To import everything on a busy machine takes seconds, a fork milliseconds.
_START_S = 120.0
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/sys/devices/system", "/proc/self")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


class ChildNotStarted(OSError):
    """There is no process: the fork server or its child ended before it had begun."""


class ChildProcess:
    """One process at the other end of `connection`; `kill` ends it and all that it started.

    `hidden` are folders that it may not read even if they are next to code that it imports.
    `adapters` is a folder of virtualenvs whose Pythons it may start; they are confined as it is.
    Beyond `memory_bytes` its allocations fail; if it and its descendants hold more together, all
    are ended. `own_namespace`: it has a PID namespace, if the kernel gives one. Raises
    `ChildNotStarted`.

    It is the child of a guard (`guard.py`), which lives as long as `_life` is open at this end, and
    whose end of `_life` closes when nothing of the process is left. No process id is used here.
    """

    def __init__(
        self,
        hidden: Sequence[Path] = (),
        module: str = CHILD,
        adapters: Path | None = None,
        memory_bytes: int | None = None,
        own_namespace: bool = True,
    ) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._folder = ChildFolder()
        self._output = bytearray()
        folder = str(self._folder.path)
        plan = {
            "module": module,
            "folder": folder,
            "environment": _environment(folder, adapters),
            "memory_bytes": memory_bytes,
            "own_namespace": own_namespace,
            **_paths(self._folder.path, [path.resolve() for path in hidden], adapters),
        }
        if not self._starts(plan):
            # The fork server may have died with the request unread.
            fork_server.replace(self._server)
            if not self._starts(plan):
                self._folder.close()
                raise ChildNotStarted(f"a synthesizer's process did not start\n{self.output}")

    def _starts(self, plan: dict[str, Any]) -> bool:
        self.connection, their_connection = socket.socketpair()
        self._life, their_life = socket.socketpair()
        reading, writing = os.pipe()
        with their_connection, their_life:
            self._server = fork_server.fork(
                plan, [their_connection.fileno(), writing, their_life.fileno()]
            )
            os.close(writing)
        self._reader = threading.Thread(
            target=self._listen, args=(reading,), name="child output", daemon=True
        )
        self._reader.start()
        self._life.settimeout(_START_S)
        with contextlib.suppress(OSError):
            if told := self._life.recv(32):
                self.pid = int(told)
                self._life.settimeout(None)
                return True
        self._life.close()
        self.connection.close()
        return False

    @property
    def output(self) -> str:
        """The end of what it printed. For the custodian alone."""
        # Its last output may still be in the pipe after its connection has closed.
        self._reader.join(_LAST_OUTPUT_S)
        return self._output.decode(errors="replace")

    def kill(self) -> None:
        """End the process and its descendants; safe from any thread and more than once."""
        with self._lock:
            if not self._closed:
                self._kill()

    def _kill(self) -> None:
        for each in (self._life, self.connection):
            with contextlib.suppress(OSError):
                # Wakes the guard, and a thread that waits for the child in `recv`.
                each.shutdown(socket.SHUT_WR if each is self._life else socket.SHUT_RDWR)

    def close(self) -> None:
        """End the process, wait until nothing of it is left, and clear its folder."""
        with self._lock:
            if self._closed:
                return
            self._kill()
            self._closed = True
        with contextlib.suppress(OSError):
            self._life.recv(1)
        self._life.close()
        self.connection.close()
        self._reader.join(1)
        self._folder.close()

    def _listen(self, output: int) -> None:
        try:
            while piece := os.read(output, 4096):
                self._output += piece
                del self._output[:-MOST_OUTPUT_BYTES]
        finally:
            os.close(output)


def _environment(folder: str, adapters: Path | None) -> dict[str, str]:
    given = {} if adapters is None else {virtualenvs.VARIABLE: str(adapters.resolve())}
    return {**environment(), "HOME": folder, "TMPDIR": folder, **given}


def _paths(folder: Path, hidden: Sequence[Path], adapters: Path | None) -> dict[str, list[str]]:
    """Where the child imports from, and what it may read, list and write."""
    folders = import_from()
    roots = {Path(sys.prefix), Path(sys.base_prefix), *folders}
    if adapters is not None:
        roots.add(adapters)
    readable: set[Path] = {Path(entry) for entry in (*_SYSTEM, *_DEVICES)}
    listed: set[Path] = set()
    for root in roots:
        _share(root.resolve(), hidden, readable, listed)
    return {
        "import_from": list(map(str, folders)),
        "read": sorted(map(str, readable)),
        "list": sorted(map(str, listed)),
        "write": [str(folder)],
    }


def _share(root: Path, hidden: Sequence[Path], readable: set[Path], listed: set[Path]) -> None:
    """Make a folder readable, around what is hidden inside it."""
    if any(root == path or path in root.parents for path in hidden):
        return
    if not any(root in path.parents for path in hidden):
        readable.add(root)
        return
    listed.add(root)
    with contextlib.suppress(OSError):
        for inside in root.iterdir():
            _share(inside, hidden, readable, listed)
