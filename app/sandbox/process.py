"""A synthesizer's process: confined, and ended by force if necessary.

It holds one socket and nothing else of the service: no database, path, key or setting. Its
environment is built from scratch, its folder is empty, and the end of what it prints is kept for
the custodian.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil

from app.engine.adapters import virtualenvs
from app.sandbox.folders import ChildFolder

# A module whose `main(fd)` serves the worker over the socket `fd`.
CHILD = "app.engine.sandbox.child"
LAUNCHER = Path(__file__).with_name("launcher.py")
# The folder that contains the package of the service.
CODE = LAUNCHER.resolve().parents[2]
MOST_OUTPUT_BYTES = 16 * 1024
_LAST_OUTPUT_S = 0.3
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/sys/devices/system", "/proc/self")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
# One thread each, unless the operator set another number: many children share the machine.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ChildProcess:
    """One process at the other end of `connection`; `kill` ends it and all that it started.

    `hidden` are folders that it may not read even if they are next to code that it imports.
    `adapters` is a folder of virtualenvs whose Pythons it may start; they are confined as it is.
    """

    def __init__(
        self, hidden: Sequence[Path] = (), module: str = CHILD, adapters: Path | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._folder = ChildFolder()
        self.connection, theirs = socket.socketpair()
        plan = {
            "module": module,
            **_paths(self._folder.path, [path.resolve() for path in hidden], adapters),
        }
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    str(LAUNCHER),
                    str(theirs.fileno()),
                    str(os.getpid()),
                    json.dumps(plan),
                ],
                env=_environment(str(self._folder.path), adapters),
                cwd=self._folder.path,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._output = bytearray()
        self._reader = threading.Thread(
            target=self._listen, args=(self._process.stdout,), name="child output", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        # WNOWAIT: does not reap it, so that the system cannot reuse its id before `close`.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return not self._closed and os.waitid(os.P_PID, self.pid, options) is None

    @property
    def output(self) -> str:
        """The end of what it printed. For the custodian alone."""
        # Its last output may still be in the pipe after its connection has closed.
        self._reader.join(_LAST_OUTPUT_S)
        return self._output.decode(errors="replace")

    def limit_memory(self, size_bytes: int) -> None:
        """Set a limit beyond which allocations of the process fail."""
        if hasattr(resource, "prlimit"):
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(self.pid, resource.RLIMIT_DATA, (size_bytes, size_bytes))

    def kill(self) -> None:
        """End the process and its descendants; safe from any thread and more than once."""
        with self._lock:
            if not self._closed:
                self._kill()

    def _kill(self) -> None:
        # Listed before the kill: orphans get another parent and could not be found afterwards.
        descendants = _descendants(self.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        for each in descendants:
            with contextlib.suppress(psutil.Error):
                each.kill()
        with contextlib.suppress(OSError):
            # Wakes a thread that waits for the child in `recv`.
            self.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the process, wait for it, and clear its folder."""
        with self._lock:
            if self._closed:
                return
            self._kill()
            self._process.wait()
            # Only after `wait`: until then the id is ours, and `kill` may still use it.
            self._closed = True
        self.connection.close()
        self._reader.join(1)
        self._folder.close()

    def _listen(self, output: IO[bytes]) -> None:
        with output:
            while piece := os.read(output.fileno(), 4096):
                self._output += piece
                del self._output[:-MOST_OUTPUT_BYTES]


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def _environment(folder: str, adapters: Path | None) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ") if name in os.environ}
    threads = {name: os.environ.get(name, "1") for name in _THREADS}
    given = {} if adapters is None else {virtualenvs.VARIABLE: str(adapters.resolve())}
    return {"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, **threads, **kept, **given}


def _paths(folder: Path, hidden: Sequence[Path], adapters: Path | None) -> dict[str, list[str]]:
    """Where the child imports from, and what it may read, list and write."""
    folders = import_from()
    roots = {Path(sys.prefix), Path(sys.base_prefix), LAUNCHER.parent, *folders}
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


def import_from() -> list[Path]:
    """Where this process imports from, and where the service's own code lies.

    The working folder, which Python puts first, is left out: it may hold anything.
    """
    added = not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()])
    entries = sys.path[1:] if added else sys.path
    folders = [Path(entry).resolve() for entry in entries if entry]
    return list(dict.fromkeys([*folders, CODE]))


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
