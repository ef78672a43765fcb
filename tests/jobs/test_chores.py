"""Chores go on whatever happens in them, and tell when they keep failing."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable

import pytest
from forge import eventually

from app.jobs import chores
from app.jobs.chores import Chore, Chores


class Task:
    """Raises the errors that it is given, in order, and then succeeds."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.done = 0

    def __call__(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.done += 1


def test_a_raw_error_of_the_store_or_the_disk_ends_no_chore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full disk had ended the thread: SQLite's own error came from a checkpoint."""
    monkeypatch.setattr(chores, "FIRST_PAUSE_S", 0.01)
    failing = Task(
        sqlite3.OperationalError("database or disk is full"),
        OSError(errno.ENOSPC, "no space"),
        MemoryError(),
        ZeroDivisionError(),
    )
    beside = Task()
    kept = Chores("test", {"failing": (failing, 0.0), "beside": (beside, 0.0)}, look_s=0.002)
    kept.start()
    eventually(lambda: failing.done and beside.done, "both chores to be done")
    kept.stop()
    assert kept.failures() == {"failing": 4, "beside": 0}


def test_a_chore_that_keeps_failing_is_told_and_rests_ever_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    clock: Callable[[], float] = lambda: now  # noqa: E731
    monkeypatch.setattr(chores.time, "monotonic", clock)
    task = Task(*(ValueError() for _ in range(12)))
    kept = Chores("test", {"a": (task, 5.0)}, look_s=1.0)
    monkeypatch.setattr(kept._thread, "is_alive", lambda: True)
    (chore,) = kept._chores
    pauses, told = [], []
    for _ in range(12):
        chore.do(clock)
        pauses.append(chore.due - now)
        told.append(kept.in_trouble())
    assert pauses == [0.5, 1, 2, 4, 8, 16, *[30] * 6]
    assert told == [[], [], *[["a"]] * 10]
    chore.do(clock)
    assert (chore.due - now, kept.in_trouble(), kept.failures()) == (5.0, [], {"a": 12})


def test_a_thread_that_is_stuck_or_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Chores("test", {"a": (Task(), 0.0), "b": (Task(), 0.0)}, look_s=0.002)
    assert kept.in_trouble() == ["a", "b"]  # it never started
    kept.start()
    assert kept.in_trouble() == []
    monkeypatch.setattr(chores, "SILENCE_S", -1.0)
    assert kept.in_trouble() == ["a", "b"]
    kept.stop()


def test_a_failure_is_logged_by_its_type_alone(caplog: pytest.LogCaptureFixture) -> None:
    Chore("a", Task(ValueError("row 7 holds 12.5")), 1.0).do()
    assert "ValueError" in caplog.text
    assert "12.5" not in caplog.text
