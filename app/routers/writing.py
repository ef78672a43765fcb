"""Writes of requests, in the order they came: those that wait together commit together.

What a commit costs is mostly the wait for the disk, so under load one commit serves many
requests. Each works in a savepoint of its own and is answered after the commit alone.
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

# So that workers, which wait for the same store, get their turn soon.
MOST_TOGETHER = 16

Made = TypeVar("Made")


class _Write:
    """One request's work, and what came of it."""

    def __init__(self, work: Callable[[Session], Any], committed: Callable[[Any], None]) -> None:
        self._work = work
        self._committed = committed
        self._made: Any = None
        self.error: Exception | None = None
        self.is_done = False

    def run(self, session: Session) -> None:
        self._made = self._work(session)

    def run_beside_others(self, session: Session) -> None:
        """Change everything or nothing; what the work raises is its own.

        But an error of the store is everybody's: the transaction may be gone with it.
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
    """The writers of one process; waiting, they hold no thread that the one ahead needs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Write] = []
        # Whoever holds it writes, or lets those that wait write.
        self.turn = anyio.Lock()

    async def run(
        self,
        work: Callable[[Session], Made],
        committed: Callable[[Made], None] = lambda _: None,
    ) -> Made:
        """What `work` made, once it is committed; one that is cancelled in time is not begun.

        `committed` is called in the thread of the commit, so that nothing can come between.
        Raises what `work` raised, or `Unavailable` if the store could not take it.
        """
        write = _Write(work, committed)
        self._waiting.append(write)
        try:
            async with self.turn:
                if write in self._waiting:
                    together = self._waiting[:MOST_TOGETHER]
                    del self._waiting[:MOST_TOGETHER]
                    await to_thread.run_sync(self._commit, together)
        finally:
            if write in self._waiting:
                self._waiting.remove(write)
            elif not write.is_done:
                await self._known(write)
        made: Made = write.outcome()
        return made

    async def _known(self, write: _Write) -> None:
        """Wait until the fate of a write that others took along is known, come what may.

        Only then may a request that was cancelled let go of what the write refers to.
        """
        with anyio.CancelScope(shield=True):
            while not write.is_done:
                async with self.turn:
                    pass

    def _commit(self, together: list[_Write]) -> None:
        try:
            with self._database.write() as session:
                if len(together) == 1:
                    together[0].run(session)
                else:
                    for write in together:
                        write.run_beside_others(session)
        except Exception as error:
            for write in together:
                write.error = write.error or (error if len(together) == 1 else Unavailable())
        for write in together:
            write.confirm()
            write.is_done = True
