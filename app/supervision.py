"""What runs in parallel to an HTTP server: its worker processes and the store's maintenance."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from app.database import Database
from app.integrity.startup import check_datasets, check_ledgers
from app.jobs.housekeeping import Housekeeping
from app.jobs.memory import close_memory
from app.jobs.pool import WorkerPool
from app.jobs.subjects import OUTCOMES
from app.settings import Settings


@contextlib.contextmanager
def supervision(settings: Settings) -> Iterator[WorkerPool]:
    """Workers and maintenance for a server on a migrated store, until the block ends.

    Accounts whose ledger does not add up are suspended first, and damaged tables told from whole
    ones.
    """
    close_memory()
    database = Database(settings.url, busy_timeout_s=settings.busy_timeout_s)
    try:
        check_ledgers(database)
        check_datasets(database)
        with Housekeeping(database, settings, OUTCOMES), WorkerPool(settings) as pool:
            yield pool
    finally:
        database.close()
