"""The service's end of its fork server: started when it is needed, and again if it died."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.sandbox.fork_server import LENGTH_BYTES

log = logging.getLogger("halftone.sandbox")

# A module whose `main(fd)` serves the worker over the socket `fd`, once `prepare` has run.
CHILD = "app.engine.sandbox.child"
# The folder that contains the package of the service.
CODE = Path(__file__).resolve().parents[2]
# One thread each: many children share the machine, and only a process of one thread may fork.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_BOOTSTRAP = (
    "import json, sys; descriptor, plan = int(sys.argv[1]), json.loads(sys.argv[2]);"
    "sys.path[:] = plan['import_from']; from app.sandbox.fork_server import main;"
    "main(descriptor, plan['module'], plan['idle_s'])"
)
# Without a worker, a server needs children for a third party's forms and checks alone.
_IDLE_S = 300.0


class ForkServer:
    """Hands requests to a process of its own, which is single-threaded and forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._idle_s: float | None = _IDLE_S
        # How many were started.
        self._number = 0

    def keep_warm(self) -> None:
        """Start it now, and let it stay when it has nothing to do."""
        with self._lock:
            self._idle_s = None
            self._ensure_started()

    def fork(self, plan: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Have a process forked for `plan`; if it cannot be, its `descriptors` just close.

        Returns the number of the server that was asked.
        """
        text = json.dumps(plan).encode()
        with self._lock:
            control = self._ensure_started()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                length = len(text).to_bytes(LENGTH_BYTES, "little")
                socket.send_fds(control, [length], descriptors)
                control.sendall(text)
            return self._number

    def replace(self, failed: int) -> None:
        """Start another in place of the one of this number; what that one forked goes on."""
        with self._lock:
            if self._number == failed:
                self._close()
                self._ensure_started()

    def close(self) -> None:
        """End it; what it forked stays until its own end."""
        with self._lock:
            self._close()

    def forget(self) -> None:
        """In a fork of the service: leave the server to the parent."""
        self._lock = threading.Lock()
        if self._control is not None:
            self._control.close()
        self._control = self._process = None

    def _ensure_started(self) -> socket.socket:
        if self._process is None or self._process.poll() is not None:
            self._close()
            self._control = self._start()
        assert self._control is not None
        return self._control

    def _start(self) -> socket.socket:
        plan = {
            "import_from": list(map(str, import_from())),
            "module": CHILD,
            "idle_s": self._idle_s,
        }
        self._number += 1
        control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOTSTRAP, str(theirs.fileno()), json.dumps(plan)],
                env={**environment(), **dict.fromkeys(THREADS, "1")},
                cwd="/",
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        if self._number == 1:
            threading.Thread(
                target=_log_what_is_missing, args=(control,), name="fork server", daemon=True
            ).start()
        return control

    def _close(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._control = self._process = None


def _log_what_is_missing(control: socket.socket) -> None:
    """Reads the one line that a fork server sends."""
    with contextlib.suppress(OSError), control.dup() as told, told.makefile() as lines:
        for missing in json.loads(lines.readline() or "[]"):
            log.warning("synthesizers are not confined by %s", missing)


def environment() -> dict[str, str]:
    """What every process of a synthesizer has of the service's environment."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ") if name in os.environ}
    threads = {name: os.environ.get(name, "1") for name in THREADS}
    return {"PATH": os.defpath, **threads, **kept}


def import_from() -> list[Path]:
    """Where this process imports from, and where the service's own code lies.

    The working folder, which Python puts first, is left out: it may hold anything.
    """
    added = not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()])
    entries = sys.path[1:] if added else sys.path
    folders = [Path(entry).resolve() for entry in entries if entry]
    return list(dict.fromkeys([*folders, CODE]))


# One for a process of the service, whichever hosts it has.
fork_server = ForkServer()
atexit.register(fork_server.close)
os.register_at_fork(after_in_child=fork_server.forget)
