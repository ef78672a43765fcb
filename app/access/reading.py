"""What a caller may read of a dataset's budget and ledger."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.access.permission import Access, open_dataset
from app.access.repository import audit_of
from app.ledger import budgets, repository
from app.ledger.budgets import BudgetView
from app.ledger.models import AccountRow, LedgerRow
from app.problems import Forbidden, NotFound
from app.security import repository as audits
from app.security.models import AuditRow
from app.security.principals import Principal


def account_of(access: Access) -> AccountRow:
    """The account that the dataset draws on. `NotFound` for a public dataset, which has none."""
    if access.account is None:
        raise NotFound("A public dataset has neither budget nor ledger.")
    return access.account


def check_totals(session: Session, principal: Principal, dataset_id: str) -> None:
    """Raise `Forbidden` for a principal who may not see the totals of the dataset's account."""
    if not open_dataset(session, principal, dataset_id).shows_budget:
        raise Forbidden("The totals of this budget are not shown to you.")


def budget(session: Session, access: Access) -> BudgetView:
    """The totals for those who may see them; the analyst's own allowance."""
    return budgets.view(
        session,
        account_of(access),
        shows_totals=access.shows_budget,
        grant_id=None if access.allowance is None else access.allowance.id,
    )


def entries(
    session: Session, principal: Principal, access: Access, *, after: int | None, limit: int
) -> list[LedgerRow]:
    """Oldest first, from the entry after number `after`.

    The custodian and auditors see every entry of the account, also about its other datasets. Others
    see, for this dataset, what they requested or what was charged to their grant.
    """
    account = account_of(access)
    if access.reads_account:
        return repository.entries(session, account.id, after, limit)
    # Entries of other analysts would show when and how much they spend.
    return repository.entries_of(
        session,
        account.id,
        after,
        limit,
        dataset_id=access.dataset.id,
        principal_id=principal.id,
        grant_id=None if access.grant is None else access.grant.id,
    )


def audit_entries(
    session: Session, principal: Principal, *, before: int | None, limit: int
) -> list[AuditRow]:
    """The audit log, newest first: all of it for an admin, else what concerns their datasets.

    Raises `Forbidden` for those who are neither admin, custodian nor auditor.
    """
    if principal.is_admin:
        return audits.audit_entries(session, before, limit)
    if not (principal.is_custodian or principal.is_auditor):
        raise Forbidden("This needs the admin, the custodian or the auditor role.")
    return audits.audit_entries(session, before, limit, shown=audit_of(principal))
