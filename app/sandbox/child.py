"""Synthesizers' processes, as their hosts use them: start, call, and end within limits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from sqlalchemy.engine import make_url

from app.engine.catalog import registry
from app.engine.method import CountsTable, Preflight, Problem, PublicChunks
from app.engine.privacy.wire import FrameError
from app.engine.sandbox import host
from app.engine.sandbox.host import ChildGaveUp
from app.engine.sandbox.protocol import Check, Describe, Described, FormRead, ReadForm, Sample
from app.engine.table import Table
from app.sandbox.forks import fork_server
from app.sandbox.process import ChildNotStarted, ChildProcess
from app.settings import Settings

T = TypeVar("T")

# SQLite's database, its write-ahead log and its shared memory.
_STORE_FILES = ("", "-wal", "-shm")


class ChildUnusable(Exception):
    """A synthesizer's process gave up, ended, took too long, or gave an invalid answer.

    `detail` is for the custodian or the operator alone.
    """

    def __init__(self, detail: str) -> None:
        super().__init__("the synthesizer's process did not do what it was asked")
        self.detail = detail


class ChildHost:
    """Starts synthesizers' processes, one for each task."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def keep_warm(self) -> None:
        """Import now what processes need, so that no job waits for it."""
        fork_server.keep_warm()

    def describe(self, name: str) -> Described:
        """A synthesizer as it describes itself. Raises `ChildUnusable`."""
        return self._call(lambda child: host.describe(child.connection, Describe(name)))

    @contextlib.contextmanager
    def checks(self) -> Iterator[ChildChecks]:
        """One process for the checks before a run, with one time limit for all of them."""
        with self._timed() as child:
            yield ChildChecks(child)

    def check_public(self, request: Check, public: PublicChunks) -> tuple[Problem, ...]:
        """A synthesizer's problems with public rows. Raises `ChildUnusable`."""
        return self._call(lambda child: host.check_public(child.connection, request, public))

    def counts(self, request: Sample, child: ChildProcess) -> CountsTable:
        """The counts of a stored model. Raises `ChildUnusable`."""
        with _explained(child):
            return host.counts(child.connection, request)

    def rows(self, request: Sample, child: ChildProcess) -> Iterator[Table]:
        """The rows of a sample, in parts. Raises `ChildUnusable`."""
        with _explained(child):
            yield from host.sample(
                child.connection, request, most_rows=self._settings.max_sample_rows
            )

    @contextlib.contextmanager
    def process(self, memory_bytes: int) -> Iterator[ChildProcess]:
        """A process for the caller alone, ended with the block. Raises `ChildUnusable`."""
        try:
            child = ChildProcess(
                hidden=of_the_store(self._settings),
                adapters=adapters_folder(self._settings),
                memory_bytes=memory_bytes,
            )
        except ChildNotStarted as error:
            raise ChildUnusable(str(error)) from error
        with contextlib.closing(child):
            yield child

    def _call(self, function: Callable[[ChildProcess], T]) -> T:
        with self._timed() as child, _explained(child):
            return function(child)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[ChildProcess]:
        with self.process(self._settings.job_memory_bytes) as child:
            # A timer that kills, because a third party's code cannot be trusted to look at a clock.
            limit = threading.Timer(self._settings.check_time_limit_s, child.kill)
            limit.daemon = True
            limit.start()
            try:
                yield child
            finally:
                limit.cancel()


class ChildChecks:
    """A synthesizer's process, used to check whether a run is possible."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child

    def read_form(self, request: ReadForm) -> FormRead:
        """Validate the params of a request. Raises `ChildUnusable`."""
        with _explained(self._child):
            return host.read_form(self._child.connection, request)

    def check(self, request: Check) -> Preflight:
        """Forecast a run, from public facts. Raises `ChildUnusable`."""
        with _explained(self._child):
            return host.check(self._child.connection, request)


def adapters_folder(settings: Settings) -> Path | None:
    """The folder of the adapters' virtualenvs, if any adapter is enabled; it may still be empty."""
    if not any(map(registry.is_adapter, settings.declared)):
        return None
    settings.adapters.mkdir(parents=True, exist_ok=True)
    return settings.adapters


def of_the_store(settings: Settings) -> list[Path]:
    """The folder of the store, and the store's files if they are elsewhere."""
    file = make_url(settings.url).database
    files = [Path(f"{file}{suffix}") for suffix in _STORE_FILES] if file else []
    return [settings.data, *files]


@contextlib.contextmanager
def _explained(child: ChildProcess) -> Iterator[None]:
    try:
        yield
    except ChildGaveUp as error:
        raise ChildUnusable(error.detail) from error
    except FrameError as error:
        raise ChildUnusable(f"{error}\n{child.output}") from error
