"""What a store holds, read beside the running service."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Any


class Store:
    """Reads the tables of `folder`'s store; every call is one short read."""

    def __init__(self, folder: Path) -> None:
        self._uri = f"{(folder / 'halftone.sqlite').as_uri()}?mode=ro"

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self._uri, uri=True, timeout=30)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def journal(self, release: str) -> list[tuple[Any, ...]]:
        return self.rows(
            "SELECT number, question_hash, answer FROM journal WHERE release_id = ? ORDER BY 1",
            release,
        )

    def job(self, subject: str) -> dict[str, Any]:
        names = ("state", "claims", "losses", "fence", "private_detail", "worker")
        found = self.rows(f"SELECT {', '.join(names)} FROM jobs WHERE subject_id = ?", subject)
        assert len(found) == 1
        return dict(zip(names, found[0], strict=True))

    def spent(self, dataset: str) -> tuple[int, int]:
        (found,) = self.rows(
            "SELECT spent_primary, spent_delta FROM accounts JOIN datasets"
            " ON datasets.account_id = accounts.id WHERE datasets.id = ?",
            dataset,
        )
        return found

    def charged(self, dataset: str) -> tuple[int, int]:
        """The ledger's sum: charges less refunds."""
        (found,) = self.rows(
            "SELECT COALESCE(SUM(CASE kind WHEN 'charge' THEN \"primary\" WHEN 'refund'"
            " THEN -\"primary\" ELSE 0 END), 0), COALESCE(SUM(CASE kind WHEN 'charge' THEN delta"
            " WHEN 'refund' THEN -delta ELSE 0 END), 0) FROM ledger WHERE dataset_id = ?",
            dataset,
        )
        return found

    def digest(self) -> str:
        """A hash of all that jobs write, to tell whether anything was stored meanwhile."""
        found = hashlib.sha256()
        for table in ("jobs", "journal", "releases", "samples", "events", "chunks"):
            for row in self.rows(f"SELECT * FROM {table} ORDER BY 1, 2, 3"):
                found.update(repr(row).encode())
        return found.hexdigest()
