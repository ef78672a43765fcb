"""Writes that wait together commit together; none of them harms, hides or answers for another."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.database import Base, Database
from app.problems import Conflict, Unavailable
from app.routers.writing import MOST_TOGETHER, WriteQueue
from app.security import audit
from app.security.models import AuditRow

Work = Callable[[Session], str]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'store.sqlite'}", busy_timeout_s=5)
    Base.metadata.create_all(database.write_engine, [Base.metadata.tables["audit"]])
    yield database
    database.close()


def note(name: str) -> Work:
    def work(session: Session) -> str:
        audit.record(session, principal_id=None, action=name, subject=None, detail={})
        return name

    return work


def note_then_raise(name: str, error: Exception) -> Work:
    def work(session: Session) -> str:
        note(name)(session)
        session.flush()
        raise error

    return work


def noted(database: Database) -> list[str]:
    with database.read() as session:
        return list(session.scalars(select(AuditRow.action).order_by(AuditRow.id)))


def commits(database: Database) -> list[object]:
    seen: list[object] = []
    event.listen(database.write_engine, "commit", seen.append)
    return seen


def queued_together(database: Database, works: list[Work]) -> list[Any]:
    """What became of each: they all come while an earlier write, `first`, is under way."""
    outcomes: list[Any] = [None] * len(works)
    go = threading.Event()

    def first(session: Session) -> str:
        go.wait(10)
        return note("first")(session)

    async def run() -> None:
        queue = WriteQueue(database)

        async def ask(place: int, work: Work) -> None:
            try:
                outcomes[place] = await queue.run(work)
            except Exception as error:
                outcomes[place] = error

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queue.run, first)
            await anyio.sleep(0.05)
            for place, work in enumerate(works):
                tasks.start_soon(ask, place, work)
            await anyio.sleep(0.05)
            go.set()

    anyio.run(run)
    return outcomes


def test_what_waits_is_committed_together_in_order(database: Database) -> None:
    seen = commits(database)
    names = [f"note {number}" for number in range(5)]
    assert queued_together(database, [note(name) for name in names]) == names
    assert noted(database) == ["first", *names]
    assert len(seen) == 2


def test_a_crowd_is_let_in_by_limited_numbers(database: Database) -> None:
    seen = commits(database)
    names = [f"note {number}" for number in range(2 * MOST_TOGETHER + 1)]
    assert queued_together(database, [note(name) for name in names]) == names
    assert noted(database) == ["first", *names]
    assert len(seen) == 4


def test_a_refusal_leaves_no_trace_and_the_others_stand(database: Database) -> None:
    refused = Conflict("no")
    outcomes = queued_together(
        database, [note("one"), note_then_raise("two", refused), note("three")]
    )
    assert outcomes == ["one", refused, "three"]
    assert noted(database) == ["first", "one", "three"]


def test_an_error_of_the_store_ends_all_of_them(database: Database) -> None:
    full = OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full"))
    refused = Conflict("no")
    outcomes = queued_together(
        database,
        [note("one"), note_then_raise("two", refused), note_then_raise("three", full), note("4")],
    )
    assert outcomes[1:3] == [refused, full]
    assert [type(outcomes[place]) for place in (0, 3)] == [Unavailable, Unavailable]
    assert noted(database) == ["first"]


def test_nobody_is_told_of_success_when_the_commit_fails(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = database.write_engine.dialect.do_commit
    calls: list[object] = []

    def do_commit(connection: Any) -> None:
        calls.append(connection)
        if len(calls) == 2:
            raise sqlite3.OperationalError("database or disk is full")
        real(connection)

    monkeypatch.setattr(database.write_engine.dialect, "do_commit", do_commit)
    refused = Conflict("no")
    outcomes = queued_together(
        database, [note("one"), note_then_raise("two", refused), note("three")]
    )
    assert [type(outcome) for outcome in outcomes] == [Unavailable, Conflict, Unavailable]
    assert noted(database) == ["first"]


def test_a_write_that_was_given_up_while_waiting_is_not_begun(database: Database) -> None:
    go = threading.Event()

    def first(session: Session) -> str:
        go.wait(10)
        return note("first")(session)

    async def run() -> None:
        queue = WriteQueue(database)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queue.run, first)
            await anyio.sleep(0.05)
            with anyio.move_on_after(0.05):
                await queue.run(note("given up"))
            tasks.start_soon(queue.run, note("later"))
            await anyio.sleep(0.05)
            go.set()

    anyio.run(run)
    assert noted(database) == ["first", "later"]


def test_a_request_that_is_cancelled_lets_go_only_when_its_write_is_known(
    database: Database,
) -> None:
    holding, go, begun = threading.Event(), threading.Event(), threading.Event()
    kept: list[str] = []
    known: list[bool] = []

    def hold(session: Session) -> str:
        holding.set()
        go.wait(10)
        return note("held")(session)

    def slow(session: Session) -> str:
        begun.set()
        go.wait(10)
        return note("slow")(session)

    async def run() -> None:
        queue = WriteQueue(database)

        async def cancelled_under_way() -> None:
            try:
                await queue.run(note("cancelled"), kept.append)
            finally:
                known.append("cancelled" in kept)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queue.run, hold)
            await anyio.to_thread.run_sync(holding.wait, 10)
            tasks.start_soon(queue.run, slow)
            async with anyio.create_task_group() as doomed:
                doomed.start_soon(cancelled_under_way)
                await anyio.sleep(0.05)
                go.set()
                await anyio.to_thread.run_sync(begun.wait, 10)
                doomed.cancel_scope.cancel()

    anyio.run(run)
    assert noted(database) == ["held", "slow", "cancelled"]
    assert known == [True]


def test_what_follows_a_commit_follows_each_that_succeeded(database: Database) -> None:
    kept: list[str] = []

    async def run() -> None:
        queue = WriteQueue(database)
        await queue.run(note("one"), kept.append)
        with pytest.raises(Conflict):
            await queue.run(note_then_raise("two", Conflict("no")), kept.append)

    anyio.run(run)
    assert kept == ["one"]
