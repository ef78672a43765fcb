"""Ledgers as JSON Lines that can be verified by themselves, away from the store.

For each account one header and then its entries in order, one JSON object a line:

    {"format": "halftone-ledger-1", "account": {...}}
    {"entry": {...}, "previous_hash": "...", "hash": "..."}

`account` holds the account's own figures, which the entries must add up to; amounts are
integers, epsilon and rho in units of 1e-12, delta in 1e-18. The hash of an entry is
SHA-256, in hex, over the previous hash in hex, a line feed, and the entry as JSON in ASCII
with sorted keys and without spaces. The first previous hash is 64 zeros.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy.orm import Session

from app.database import Database
from app.engine import strict_json
from app.engine.strict_json import RepeatedKey
from app.ledger import repository
from app.ledger import snapshot as snapshots
from app.ledger.chain import FIELDS, Entry, Link
from app.ledger.snapshot import Snapshot
from app.ledger.verification import AccountFacts, Verification, verify_chain

FORMAT = "halftone-ledger-1"


class NotAnExport(ValueError):
    """The lines are not an export of a ledger; says which line and why."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}")


def export_lines(session: Session, account_id: str) -> Iterator[str]:
    """One account's ledger as lines without their ends. Raises `LookupError`."""
    account = repository.account(session, account_id)
    if account is None:
        raise LookupError(account_id)
    yield _header_line(AccountFacts.of(account))
    for link in repository.links(session, account_id):
        yield _entry_line(link)


def pieces(database: Database, snapshot: Snapshot) -> Iterator[bytes]:
    """The same lines with their ends, of a ledger as it stood, read a few entries at a time."""
    yield f"{_header_line(snapshot.account)}\n".encode()
    for link in snapshots.links(database, snapshot):
        yield f"{_entry_line(link)}\n".encode()


def etag(snapshot: Snapshot) -> str:
    """A strong tag: the header, and the hash that covers every entry."""
    covered = f"{_header_line(snapshot.account)}\n{snapshot.last} {snapshot.head_hash}"
    return f'"{hashlib.sha256(covered.encode()).hexdigest()}"'


def _header_line(account: AccountFacts) -> str:
    return json.dumps({"format": FORMAT, "account": account.as_json()})


def _entry_line(link: Link) -> str:
    entry = link.entry.as_json()
    return json.dumps({"entry": entry, "previous_hash": link.previous_hash, "hash": link.hash})


def verify_export(lines: Iterable[str]) -> list[Verification]:
    """Verify every ledger in an export. Raises `NotAnExport` for lines of another form."""
    found: list[Verification] = []
    account: AccountFacts | None = None
    links: list[Link] = []
    for number, line in enumerate(lines, 1):
        document = _object(number, line)
        if "format" in document:
            if account is not None:
                found.append(verify_chain(account, links))
            account, links = _header(number, document), []
        elif account is None:
            raise NotAnExport(number, "an entry comes before any header")
        else:
            links.append(_link(number, document))
    if account is None:
        raise NotAnExport(1, "there is no header")
    found.append(verify_chain(account, links))
    return found


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        document = strict_json.loads(line)
    except RepeatedKey as error:
        raise NotAnExport(number, str(error)) from None
    except (ValueError, RecursionError):
        raise NotAnExport(number, "it is not JSON") from None
    if not isinstance(document, dict):
        raise NotAnExport(number, "it is not an object")
    return document


def _header(number: int, document: dict[str, Any]) -> AccountFacts:
    if document["format"] != FORMAT:
        raise NotAnExport(number, f"its format is not {FORMAT}")
    try:
        return AccountFacts(**document["account"])
    except (KeyError, TypeError):
        raise NotAnExport(number, "its account has missing or unknown fields") from None


def _link(number: int, document: dict[str, Any]) -> Link:
    try:
        facts = document["entry"]
        # An unknown field would stay outside the hash, so that anyone could add it to a valid
        # export.
        if set(facts) != set(FIELDS) or not isinstance(facts["detail"], dict):
            raise NotAnExport(number, "its entry has missing or unknown fields")
        return Link(Entry(**facts), document["previous_hash"], document["hash"])
    except (KeyError, TypeError):
        raise NotAnExport(number, "it is not an entry with its hashes") from None
