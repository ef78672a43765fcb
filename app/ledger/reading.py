"""Use-cases of reading a ledger: who sees which lines."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.access.permission import Access
from app.ledger import repository
from app.ledger.budgets import account_of
from app.ledger.models import LedgerRow
from app.ledger.verification import Verification, verify
from app.security.principals import Principal


def entries(
    session: Session, principal: Principal, access: Access, *, after: int | None, limit: int
) -> list[LedgerRow]:
    """Oldest first, from the entry after number `after`.

    The custodian sees every entry of the account, whichever dataset it is about; others see
    what they asked for, or what was charged to their grant, on this dataset.
    """
    account = account_of(session, access.dataset)
    if access.role == "custodian":
        return repository.entries(session, account.id, after, limit)
    return repository.entries_of(
        session,
        account.id,
        after,
        limit,
        dataset_id=access.dataset.id,
        principal_id=principal.id,
        grant_id=None if access.grant is None else access.grant.id,
    )


def verification(session: Session, access: Access) -> Verification:
    """Verify the ledger of the account that the dataset draws on."""
    return verify(session, account_of(session, access.dataset).id)
