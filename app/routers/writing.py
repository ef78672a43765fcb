"""Writes of requests, in order of arrival: requests that wait together commit together.

A commit mostly waits for the disk, so under load one commit serves many requests. Each runs in a
savepoint of its own and gets its response only after the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
from anyio import to_thread
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app.database import Database
from app.problems import Unavailable

# A limit, so that workers, which wait for the same store, soon get their turn.
MOST_TOGETHER = 16

Made = TypeVar("Made")


class _Write:
    """One request's work and its outcome."""

    def __init__(self, work: Callable[[Session], Any], committed: Callable[[Any], None]) -> None:
        self._work = work
        self._committed = committed
        self._made: Any = None
        self.error: Exception | None = None
        self.is_done = False

    def run(self, session: Session) -> None:
        self._made = self._work(session)

    def run_with_others(self, session: Session) -> None:
        """Change everything or nothing; an error of the work concerns only this request.

        An error of the store concerns all of them: it may have ended the transaction.
        """
        try:
            with session.begin_nested():
                self.run(session)
        except DBAPIError as error:
            self.error = error
            raise
        except Exception as error:
            self.error = error
        finally:
            # The next request must not see objects whose changes were rolled back here.
            session.expunge_all()

    def confirm(self) -> None:
        if self.error is None:
            try:
                self._committed(self._made)
            except Exception as error:
                self.error = error

    def outcome(self) -> Any:
        if not self.is_done:
            raise Unavailable
        if self.error is not None:
            raise self.error
        return self._made


class WriteQueue:
    """The writers of one process; those that wait hold no thread that the current one may need."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Write] = []
        # The holder writes, for itself and for those that wait.
        self.turn = anyio.Lock()

    async def run(
        self,
        work: Callable[[Session], Made],
        committed: Callable[[Made], None] = lambda _: None,
    ) -> Made:
        """The result of `work` after its commit; a request that is cancelled in time never runs.

        `committed` is called in the thread of the commit, so that nothing can happen in between.
        Raises what `work` raised, or `Unavailable` if the store could not take it.
        """
        write = _Write(work, committed)
        self._waiting.append(write)
        try:
            async with self.turn:
                if write in self._waiting:
                    # Not necessarily with this one first: whoever gets the turn commits for the
                    # oldest that wait.
                    batch = self._waiting[:MOST_TOGETHER]
                    del self._waiting[:MOST_TOGETHER]
                    await to_thread.run_sync(self._commit, batch)
        finally:
            if write in self._waiting:
                self._waiting.remove(write)
            elif not write.is_done:
                await self._outcome_known(write)
        made: Made = write.outcome()
        return made

    async def _outcome_known(self, write: _Write) -> None:
        """Wait for the outcome of a write that another request is committing, even when cancelled.

        Only then may a cancelled request release what the write refers to, such as a file.
        """
        with anyio.CancelScope(shield=True):
            while not write.is_done:
                async with self.turn:
                    pass

    def _commit(self, batch: list[_Write]) -> None:
        try:
            with self._database.write() as session:
                if len(batch) == 1:
                    batch[0].run(session)
                else:
                    for write in batch:
                        write.run_with_others(session)
        except Exception as error:
            for write in batch:
                write.error = write.error or (error if len(batch) == 1 else Unavailable())
        for write in batch:
            write.confirm()
            write.is_done = True
