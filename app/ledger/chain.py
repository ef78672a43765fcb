"""Ledger entries as values, and the hash that chains them.

An entry's hash is SHA-256 over the hash of the entry before it (64 zeros for the first), a
line feed, and the entry's canonical form: JSON in ASCII with sorted keys and no spaces, of
every field but the two hashes. The same form is what `halftone export` writes, so a chain
can be checked without the store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# The previous hash of the first entry, which has none: as long as a SHA-256 in hex.
GENESIS = "0" * 64

Kind = Literal["opened", "joined", "charge", "refund", "budget", "acknowledged"]
KINDS: tuple[Kind, ...] = ("opened", "joined", "charge", "refund", "budget", "acknowledged")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, without its hashes.

    `primary` and `delta` are the amount charged or given back; on `opened` and `budget`
    they are the cap from here on, on `joined` 0, on `acknowledged` what a store of an earlier
    moment had forgotten of what was spent. `spent_*` is the account's total after
    the entry. Amounts count epsilon or rho in 1e-12 and delta in 1e-18; `at` is ISO text.
    """

    account_id: str
    sequence: int
    kind: str
    dataset_id: str
    release_id: str | None
    principal_id: str
    grant_id: str | None
    primary: int
    delta: int
    spent_primary: int
    spent_delta: int
    detail: Mapping[str, Any]
    at: str

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS}

    def hash_after(self, previous_hash: str) -> str:
        # Equal entries must give equal bytes on every machine: keys are sorted, and `json` escapes
        # all that is not ASCII.
        canonical = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(f"{previous_hash}\n{canonical}".encode("ascii")).hexdigest()


FIELDS = tuple(Entry.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Link:
    """An entry with its two hashes, as stored or exported."""

    entry: Entry
    previous_hash: str
    hash: str
