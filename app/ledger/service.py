"""What other slices ask of the ledger, gathered in one place."""

from __future__ import annotations

from app.ledger.accounts import Budget, has_charges, join_account, open_account
from app.ledger.admission import Admission, Preview, admit, preview, refund
from app.ledger.entries import AccountSuspended, ledger_hash
from app.ledger.verification import Verification, verify, verify_all

__all__ = [
    "AccountSuspended",
    "Admission",
    "Budget",
    "Preview",
    "Verification",
    "admit",
    "has_charges",
    "join_account",
    "ledger_hash",
    "open_account",
    "preview",
    "refund",
    "verify",
    "verify_all",
]
