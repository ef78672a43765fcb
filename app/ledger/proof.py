"""What of an account's ledger goes with a release: its own entries, and the chain around them.

Entries of others are shown as hashes. Without the account's totals an entry of the release leaves
them out, with the salt that keeps them from being guessed, and who requested it; and hashes of
entries that have no salt are left out too, since who knows the rest of such an entry could try caps
until one matches.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from app.engine.privacy.loss import Accountant, Charge
from app.ledger import repository
from app.ledger.chain import GENESIS, Link
from app.ledger.entries import SALT
from app.problems import Conflict

FORMAT = "halftone-ledger-proof-1"
_TOTALS = ("spent_primary", "spent_delta")
# A release that is shared does not tell who requested it.
_WHO = ("principal_id", "grant_id")


def of_release(
    session: Session,
    account_id: str,
    release_id: str,
    *,
    head: int,
    shows_totals: bool,
) -> dict[str, Any]:
    """The proof, as JSON: the chain from the first entry to number `head`.

    Raises `Conflict` for a ledger that cannot be read.
    """
    account = repository.account(session, account_id)
    assert account is not None
    entries, hashes = [], []
    try:
        for link in repository.links(session, account_id):
            if link.entry.sequence > head:
                break
            hashes.append(link.hash if shows_totals or SALT in link.entry.detail else None)
            if link.entry.release_id == release_id:
                entries.append(_shown(link, shows_totals=shows_totals))
    except ValueError:
        raise Conflict(
            "The ledger of this release's budget cannot be read. The service's operator must run"
            " `halftone verify`."
        ) from None
    return {
        "format": FORMAT,
        "account_id": account_id,
        "accountant": account.accountant,
        "totals_shown": shows_totals,
        "first_previous_hash": GENESIS,
        "hashes": hashes,
        "entries": entries,
    }


def position(session: Session, account_id: str, sequence: int) -> dict[str, Any]:
    """Where an entry put its account: what was spent after it, and the cap at that moment."""
    account = repository.account(session, account_id)
    row = repository.entry(session, account_id, sequence)
    assert account is not None
    assert row is not None
    accountant = Accountant(account.accountant)
    return {
        "spent_after": Charge(row.spent_primary, row.spent_delta).as_wire(accountant),
        "cap": repository.cap_at(session, account_id, sequence).as_wire(accountant),
    }


def _shown(link: Link, *, shows_totals: bool) -> dict[str, Any]:
    facts = link.entry.as_json()
    if not shows_totals:
        facts = {name: value for name, value in facts.items() if name not in _TOTALS + _WHO}
        facts["detail"] = {name: value for name, value in facts["detail"].items() if name != SALT}
    return facts
