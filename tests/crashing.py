"""Runs `serve` and `worker` in processes that end, or stop, at a named step of the real code.

Started as a script it imports the service once and then forks a process for each order it
reads, so that a test may start dozens. A fault names a function; the process kills (or stops)
itself before that function is entered or after it has returned.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main() -> None:
    import app.cli
    import app.migrate
    import app.serve  # noqa: F401
    from app.jobs import worker

    worker.warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies: a test sees who is gone
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(order)
        print(pid, flush=True)


def _become(order: dict[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.update(order["environment"])
    for place, value in order["changes"].items():
        holder, name = _found(place)
        setattr(holder, name, value)
    if order["fault"] is not None:
        _Fault(**order["fault"]).install()
    from app import cli

    status = 1
    try:
        status = cli.main(order["command"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class _Fault:
    def __init__(self, at: str, when: str, nth: int, armed_by: str, deed: int) -> None:
        self._at = at
        self._before = when == "before"
        self._left = nth
        self._armed_by = armed_by
        self._deed = deed
        self._armed = False

    def install(self) -> None:
        if ":" in self._armed_by:
            self._arm_on_entry(self._armed_by)
        holder, name = _found(self._at)
        function = getattr(holder, name)

        @functools.wraps(function)
        def faulty(*arguments: Any, **named: Any) -> Any:
            if self._before:
                self._strike()
            result = function(*arguments, **named)
            if not self._before:
                self._strike()
            return result

        setattr(holder, name, faulty)

    def _arm_on_entry(self, place: str) -> None:
        holder, name = _found(place)
        function = getattr(holder, name)

        @functools.wraps(function)
        def arming(*arguments: Any, **named: Any) -> Any:
            self._armed = True
            return function(*arguments, **named)

        setattr(holder, name, arming)

    def _strike(self) -> None:
        if not self._armed and (":" in self._armed_by or not Path(self._armed_by).exists()):
            return
        self._left -= 1
        if self._left == 0:
            with _outside_writes() if self._deed == signal.SIGSTOP else contextlib.nullcontext():
                os.kill(os.getpid(), self._deed)


@contextlib.contextmanager
def _outside_writes() -> Iterator[None]:
    """Keep this process's other threads from the store's write lock meanwhile.

    A process that is stopped while one of its threads writes holds every writer off until it
    goes on, as any writer of SQLite does; that is not what a paused worker is to show.
    """
    from app.database import WriteLock

    with contextlib.ExitStack() as held:
        for lock in [each for each in gc.get_objects() if isinstance(each, WriteLock)]:
            held.enter_context(lock._thread_lock)
        yield


def _found(place: str) -> tuple[Any, str]:
    module, _, path = place.partition(":")
    *outer, name = path.split(".")
    holder = functools.reduce(getattr, outer, importlib.import_module(module))
    return holder, name


if __name__ == "__main__":
    main()
