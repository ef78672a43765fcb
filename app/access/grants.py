"""Use-cases of grants: which analysts may use a dataset, and how much of its budget.

An analyst has at most one grant on a dataset. Granting again after a revocation makes the same row
active again, with what was already spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.access import repository
from app.access.permission import own_dataset
from app.database import new_id, now
from app.datasets.models import DatasetRow
from app.engine.privacy.loss import Charge
from app.ledger.models import AccountRow, GrantRow
from app.ledger.terms import Allowance
from app.problems import Conflict, Invalid, NotFound
from app.security import audit
from app.security import repository as principals
from app.security.principals import Principal


def granting(session: Session, actor: Principal, dataset_id: str) -> tuple[DatasetRow, AccountRow]:
    """A dataset for its custodian, and the account in whose terms its allowances are.

    Raises `Conflict` for a public dataset, and what `own_dataset` raises.
    """
    dataset = own_dataset(session, actor, dataset_id)
    account = session.get(AccountRow, dataset.account_id) if dataset.account_id else None
    if account is None:
        raise Conflict("A public dataset needs no grants: every principal may read it.")
    return dataset, account


def within_account(
    session: Session, account: AccountRow, rows: Sequence[GrantRow]
) -> dict[str, Charge]:
    """The most that each analyst of these grants may be charged on the account, by principal.

    Allowances of one analyst on several datasets of the account add up, to the budget at most.
    """
    most = {row.principal_id: Charge(0) for row in rows}
    for principal_id, *caps in repository.active_caps(session, account.id, list(most)):
        before = most[principal_id]
        most[principal_id] = Charge(
            _sum(before.primary, caps[0], account.cap_primary),
            _sum(before.delta, caps[1], account.cap_delta),
        )
    return most


def _sum(before: int, cap: int | None, most: int) -> int:
    return most if cap is None else min(before + cap, most)


def create_grant(
    session: Session,
    actor: Principal,
    dataset: DatasetRow,
    *,
    principal_id: str,
    allowance: Allowance | None,
    show_budget: bool,
) -> GrantRow:
    """Let an analyst use the dataset.

    Raises `Invalid` at /principal_id unless it is an active analyst, `Conflict` if there is a
    grant already, or if the dataset is closed.
    """
    # No analyst may see that a dataset is closed: it tells that another one has equal content.
    if dataset.closed:
        raise Conflict("The dataset's budget is closed. Grant the dataset that replaced it.")
    _expect_analyst(session, actor, principal_id)
    row = repository.grant_of(session, dataset.id, principal_id)
    if row is not None and row.state == "active":
        raise Conflict("This analyst already has a grant on the dataset. Change that one.")
    if row is None:
        row = GrantRow(
            id=new_id("gr"),
            dataset_id=dataset.id,
            principal_id=principal_id,
            spent_primary=0,
            spent_delta=0,
            created_at=now(),
        )
        session.add(row)
    row.state = "active"
    row.show_budget = show_budget
    _allow(row, allowance)
    session.flush()
    _audit(session, actor, "grant.created", row)
    return row


def change_grant(
    session: Session,
    actor: Principal,
    row: GrantRow,
    *,
    allowance: Allowance | None,
    show_budget: bool | None,
) -> GrantRow:
    """Change an active grant; what is None stays unchanged.

    An allowance may be lower than what was spent: then nothing more fits. Raises `Conflict` for
    a revoked grant.
    """
    _expect_active(row)
    if allowance is not None:
        _allow(row, allowance)
    if show_budget is not None:
        row.show_budget = show_budget
    session.flush()
    _audit(session, actor, "grant.changed", row)
    return row


def replace_grant(
    session: Session,
    actor: Principal,
    row: GrantRow,
    *,
    allowance: Allowance | None,
    show_budget: bool,
) -> GrantRow:
    """Replace the terms; without an allowance only the budget itself limits."""
    _expect_active(row)
    _allow(row, allowance)
    return change_grant(session, actor, row, allowance=None, show_budget=show_budget)


def revoke_grant(session: Session, actor: Principal, row: GrantRow) -> None:
    """Revoke the grant; what was charged under it stays charged."""
    if row.state == "revoked":
        return
    row.state = "revoked"
    session.flush()
    _audit(session, actor, "grant.revoked", row)


def get_grant(session: Session, dataset: DatasetRow, grant_id: str) -> GrantRow:
    row = repository.grant(session, dataset.id, grant_id)
    if row is None:
        raise NotFound
    return row


def _allow(row: GrantRow, allowance: Allowance | None) -> None:
    cap = None if allowance is None else allowance.cap
    stated = None if allowance is None else allowance.stated
    row.cap_primary = None if cap is None else cap.primary
    row.cap_delta = None if cap is None else cap.delta
    row.stated_epsilon = None if stated is None else stated.epsilon
    row.stated_delta = None if stated is None else stated.delta


def _expect_active(row: GrantRow) -> None:
    if row.state != "active":
        raise Conflict("The grant was revoked. Grant again to reactivate it, with what was spent.")


def _expect_analyst(session: Session, actor: Principal, principal_id: str) -> None:
    found = principals.principal(session, principal_id)
    if found is None or not found.is_analyst or found.state != "active":
        raise Invalid.at(
            "/principal_id",
            "There is no active analyst of this id.",
            "Send the id of a principal with the analyst role.",
        )
    # Their own releases are charged to the account itself.
    if principal_id == actor.id:
        raise Invalid.at(
            "/principal_id",
            "You are the dataset's custodian and need no grant.",
            "Send the id of another principal.",
        )


def _audit(session: Session, actor: Principal, action: str, row: GrantRow) -> None:
    detail: dict[str, Any] = {
        "grant_id": row.id,
        "principal_id": row.principal_id,
        "show_budget": row.show_budget,
        "allowance_units": None
        if row.cap_primary is None
        else {"primary": row.cap_primary, "delta": row.cap_delta},
    }
    audit.record(
        session, principal_id=actor.id, action=action, subject=row.dataset_id, detail=detail
    )
