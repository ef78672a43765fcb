"""High-water marks: how far each account's chain had come, kept outside the store's file.

The chain shows that no entry was changed, but not that a whole older store was put in its place: a
restored backup, or a store without its log, would give spent budget back. So after every commit
that lengthens a chain, its length, its last hash and what was spent are appended to a file beside
the store, under the store's write lock. At a start each chain must reach its mark. One that does
not is behind: its account takes no charge until an operator has acknowledged it, which charges what
the mark says was spent and the store has forgotten (`integrity.acknowledgement`).

A mark is written after its commit, so a crash between the two leaves it behind its chain, which is
no fault; it is never ahead of what was acknowledged. Each line is signed with a key of the store.
With a master key only the service can sign; without one the key is in the store. A line that is not
signed can raise a mark and never lower it. Who may write the file can remove it, or put back an
earlier one with its store: marks show mistakes, and certificates elsewhere show the rest. The file
grows by a line for each entry and is rewritten at a start.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from app.database import Database
from app.ledger import repository
from app.storage.encryption import Keyring
from app.storage.models import SecretRow
from app.storage.secrets import kept_secret, secret

MARK_KEY = "mark-key"
# In a session's `info`: a list of what its unit of work lengthened.
LENGTHENED = "lengthened chains"
# What a column of the store can hold.
_LARGEST = 2**63 - 1

log = logging.getLogger("halftone.ledger")


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a chain stood after a commit."""

    account_id: str
    entries: int
    hash: str
    spent_primary: int
    spent_delta: int

    def signature(self, key: bytes) -> str:
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    def line(self, key: bytes) -> str:
        return json.dumps({**asdict(self), "signature": self.signature(key)}) + "\n"


@dataclass(frozen=True, slots=True)
class _Noted:
    """A mark, and the savepoints that it was noted in: it stands only if all of them do."""

    mark: Mark
    savepoints: tuple[SessionTransaction, ...]


class Marks:
    """The marks of one store; safe to use from several threads and processes."""

    def __init__(self, path: Path, key: bytes | None) -> None:
        self._path = path
        self._key = key
        self._lock = threading.Lock()

    @classmethod
    def of(cls, database: Database, keyring: Keyring) -> Marks:
        """Those beside the store's file. Makes their key at the first call."""
        return cls(_path(database), kept_secret(database, keyring, MARK_KEY))

    @classmethod
    def to_read(cls, database: Database) -> Marks:
        """Without the key, and so without a look at signatures: for who has no master key."""
        return cls(_path(database), None)

    def follow(self, database: Database) -> None:
        """Write a mark after each commit of this process that lengthens a chain."""
        database.after_commit(self._committed)

    def _committed(self, info: Mapping[str, Any]) -> None:
        noted: list[_Noted] = info.get(LENGTHENED, [])
        marks = {one.mark.account_id: one.mark for one in noted}
        if not marks:
            return
        try:
            self._append(marks.values())
        except OSError as error:
            # The charge is committed and stands: a request must not be told otherwise.
            log.error("the high-water mark could not be written to %s: %s", self._path, error)

    def _append(self, marks: Iterable[Mark]) -> None:
        assert self._key is not None
        text = "".join(mark.line(self._key) for mark in marks).encode()
        with self._lock:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size_bytes = os.fstat(descriptor).st_size
                # A line that a full disk or a crash cut off must not take this one with it.
                if size_bytes and os.pread(descriptor, 1, size_bytes - 1) != b"\n":
                    text = b"\n" + text
                # A full disk may take a part of it, and refuse only the rest.
                while text:
                    text = text[os.write(descriptor, text) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read(self) -> dict[str, Mark]:
        """The last mark of each account. A line that is not signed counts where it is ahead of the
        one before: whoever changed it can hold charges up, and not let a rollback pass. Without the
        key all lines count as signed."""
        found: dict[str, Mark] = {}
        for mark, is_signed in self._lines():
            before = found.get(mark.account_id)
            # Only an acknowledgement lowers a mark, and its line is signed.
            if is_signed or before is None or mark.entries > before.entries:
                found[mark.account_id] = mark
        return found

    def _lines(self) -> Iterator[tuple[Mark, bool]]:
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return
        for number, line in enumerate(lines, start=1):
            try:
                wire = json.loads(line)
                signature = wire.pop("signature")
                mark = _mark(wire)
            except (ValueError, TypeError, KeyError, AttributeError):
                # A write that a power cut ended, or damaged bytes.
                log.warning("line %d of %s cannot be read", number, self._path)
                continue
            is_signed = self._key is None or hmac.compare_digest(
                str(signature).encode(), mark.signature(self._key).encode()
            )
            if not is_signed:
                log.error("line %d of %s is not signed by this store", number, self._path)
            yield mark, is_signed

    def compact(self, marks: Mapping[str, Mark]) -> None:
        """Put these marks in the place of all lines; under the store's write lock."""
        assert self._key is not None
        partial = self._path.with_suffix(".marks.partial")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.writelines(mark.line(self._key) for mark in marks.values())
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self._path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


def _mark(wire: dict[str, Any]) -> Mark:
    """Raises `TypeError` or `ValueError` where no mark was written so."""
    mark = Mark(**wire)
    amounts = (mark.entries, mark.spent_primary, mark.spent_delta)
    if type(mark.account_id) is not str or any(type(each) is not int for each in amounts):
        raise TypeError
    if not all(0 <= each <= _LARGEST for each in amounts):
        raise ValueError
    return mark


def _path(database: Database) -> Path:
    return database.path.with_suffix(".marks")


def signature_of(session: Session, keyring: Keyring, account_id: str, sequence: int) -> str | None:
    """An entry signed as a mark, for the certificate of what it charged; None if it has gone, or
    before the first start of this version made the key."""
    row = repository.entry(session, account_id, sequence)
    if row is None or session.get(SecretRow, MARK_KEY) is None:
        return None
    mark = Mark(account_id, sequence, row.hash, row.spent_primary, row.spent_delta)
    return mark.signature(secret(session, keyring, MARK_KEY))


def note(session: Session, mark: Mark) -> None:
    """A chain was lengthened in this unit of work."""
    savepoints = []
    within = session.get_nested_transaction()
    while within is not None and within.nested:
        savepoints.append(within)
        within = within.parent
    session.info.setdefault(LENGTHENED, []).append(_Noted(mark, tuple(savepoints)))


@event.listens_for(Session, "after_soft_rollback")
def _forget(session: Session, rolled_back: SessionTransaction) -> None:
    """Requests commit together, each in a savepoint: what one of them undid must leave no mark,
    which the chain would never reach."""
    noted: list[_Noted] | None = session.info.get(LENGTHENED)
    if noted:
        noted[:] = [one for one in noted if rolled_back not in one.savepoints]


def heads(session: Session) -> dict[str, Mark]:
    """Where the chains of the store stand."""
    found = {}
    for account_id in repository.account_ids(session):
        account = repository.account(session, account_id)
        assert account is not None
        tail = repository.tail(session, account_id, account.entries)
        if tail is not None:
            found[account_id] = Mark(
                account_id, account.entries, tail.hash, tail.spent_primary, tail.spent_delta
            )
    return found


def behind(session: Session, marks: Mapping[str, Mark]) -> dict[str, Mark]:
    """The marks that the store's chains do not reach, by account."""
    missed = {}
    for account_id, mark in marks.items():
        tail = repository.tail(session, account_id, mark.entries)
        if tail is None or tail.hash != mark.hash:
            missed[account_id] = mark
    return missed
