"""A ledger as it stood at one moment, to be sent entry by entry afterwards.

Entries are only ever added, so those up to the last one of that moment stay as they were. Each
piece is read in a transaction of its own: none may span a response.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.database import Database
from app.ledger import repository
from app.ledger.chain import GENESIS, Link
from app.ledger.verification import AccountFacts
from app.problems import Conflict

_ENTRIES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Sum:
    """How many entries of a kind there are, and what their amounts add up to, in units."""

    entries: int = 0
    primary: int = 0
    delta: int = 0

    def plus(self, primary: int, delta: int) -> Sum:
        return Sum(self.entries + 1, self.primary + primary, self.delta + delta)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An account with the last entry of its chain, and the sums over all entries by kind."""

    account: AccountFacts
    first: Link | None
    last: int
    head_hash: str
    sums: dict[str, Sum]


def take(session: Session, account_id: str) -> Snapshot:
    """Reads every entry.

    Raises `LookupError` where there is no such account, and `Conflict` for an entry that cannot be
    read: what is sent later could not be finished.
    """
    account = repository.account(session, account_id)
    if account is None:
        raise LookupError(account_id)
    first, last, head_hash, sums = None, 0, GENESIS, dict[str, Sum]()
    try:
        for link in repository.links(session, account_id):
            entry = link.entry
            first = first or link
            last, head_hash = entry.sequence, link.hash
            sums[entry.kind] = sums.get(entry.kind, Sum()).plus(entry.primary, entry.delta)
    except ValueError:
        raise Conflict(
            f"Entry {last + 1} of the ledger cannot be read. Run `halftone verify`, and restore the"
            " store from a backup."
        ) from None
    return Snapshot(AccountFacts.of(account), first, last, head_hash, sums)


def links(database: Database, snapshot: Snapshot) -> Iterator[Link]:
    """Every entry of the snapshot, in order."""
    after = 0
    while after < snapshot.last:
        with database.read() as session:
            some = repository.some_links(
                session,
                snapshot.account.id,
                after=after,
                last=snapshot.last,
                limit=_ENTRIES_AT_ONCE,
            )
        if not some:
            return
        yield from some
        after = some[-1].entry.sequence
