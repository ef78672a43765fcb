"""Chores: what a thread does again and again, and goes on doing whatever happens in it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# Pauses after failures in a row double from the first to the last.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
# A busy store is normal, so that one failure or two need nobody's attention.
FAILURES_TO_TELL = 3
# Longer than any wait for the store's lock. A thread that is silent for longer is stuck.
SILENCE_S = 120.0

log = logging.getLogger("halftone.chores")


@dataclass
class Chore:
    """One task, done every `every_s` seconds; after a failure it is tried again, ever later."""

    name: str
    task: Callable[[], object]
    every_s: float
    due: float = field(default=0.0, init=False)
    # In a row, and since the start.
    failing: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)

    def do(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Do it once; nothing that goes wrong in it is raised here."""
        try:
            self.task()
        except Exception as error:
            self.failing += 1
            self.failures += 1
            pause_s = min(FIRST_PAUSE_S * 2 ** min(self.failing - 1, 10), LONGEST_PAUSE_S)
            self.due = clock() + pause_s
            # Types only: a text, and a traceback with it, could hold rows or keys.
            log.warning("the chore %s will be tried again: %s", self.name, type(error).__name__)
        else:
            self.failing = 0
            self.due = clock() + self.every_s


class Chores:
    """A thread that does chores until it is stopped. No error ends it."""

    def __init__(
        self,
        thread: str,
        tasks: Mapping[str, tuple[Callable[[], object], float]],
        *,
        look_s: float,
    ) -> None:
        """`tasks` gives, by its name, each task and the seconds between two runs of it."""
        self._chores = [Chore(name, task, every_s) for name, (task, every_s) in tasks.items()]
        self._look_s = look_s
        self._stopped = threading.Event()
        self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request_stop(self) -> None:
        """End after the chore that is being done; returns at once."""
        self._stopped.set()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def do(self, name: str) -> None:
        """Do one chore now, in the caller's thread."""
        next(chore for chore in self._chores if chore.name == name).do()

    def failures(self) -> dict[str, int]:
        """How often each chore has failed."""
        return {chore.name: chore.failures for chore in self._chores}

    def in_trouble(self) -> list[str]:
        """The names of chores that keep failing; all of them where the thread has got stuck."""
        stuck = time.monotonic() - self._looked > SILENCE_S
        ended = not self._stopped.is_set() and not self._thread.is_alive()
        return [
            chore.name
            for chore in self._chores
            if stuck or ended or chore.failing >= FAILURES_TO_TELL
        ]

    def _run(self) -> None:
        while not self._stopped.wait(self._look_s):
            for chore in self._chores:
                self._looked = time.monotonic()
                if self._looked >= chore.due:
                    chore.do()
