"""What runs in parallel to an HTTP server: its worker processes and the store's maintenance."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from app.database import Database
from app.integrity.startup import check_datasets, check_ledgers
from app.jobs.chores import Chores
from app.jobs.housekeeping import Housekeeping
from app.jobs.memory import close_memory
from app.jobs.pool import WorkerPool
from app.jobs.subjects import OUTCOMES
from app.ledger.marks import Marks
from app.settings import Settings
from app.storage.encryption import Keyring


@dataclass(frozen=True, slots=True)
class Supervision:
    """The workers of a server, and how its chores are doing."""

    pool: WorkerPool
    chores: tuple[Chores, ...]

    def in_trouble(self) -> list[str]:
        """Names of the chores that keep failing."""
        return [name for each in self.chores for name in each.in_trouble()]

    def failures(self) -> dict[str, int]:
        """How often each chore has failed since the start."""
        return {name: count for each in self.chores for name, count in each.failures().items()}


@contextlib.contextmanager
def supervision(settings: Settings) -> Iterator[Supervision]:
    """Workers and maintenance for a server on a migrated store, until the block ends.

    Accounts whose ledger does not add up are suspended first, and damaged tables told from whole
    ones.
    """
    close_memory()
    database = Database(settings.url, busy_timeout_s=settings.busy_timeout_s)
    try:
        check_ledgers(database, Marks.of(database, Keyring(settings)))
        check_datasets(database)
        with Housekeeping(database, settings, OUTCOMES) as chores, WorkerPool(settings) as pool:
            yield Supervision(pool, (chores.chores, pool.chores))
    finally:
        database.close()
