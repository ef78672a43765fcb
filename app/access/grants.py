"""Use-cases of grants: which analysts may use a dataset, and how much of its budget; who audits it.

A principal has at most one grant on a dataset. Granting again after a revocation makes the same row
active again, with what was already spent, in the role of the new grant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

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
from app.security.service import roles_of

GrantRole = Literal["analyst", "auditor"]


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
    role: GrantRole,
    allowance: Allowance | None,
    show_budget: bool | None,
) -> GrantRow:
    """Let an analyst use the dataset, or an auditor read its ledger.

    Raises `Invalid` at /principal_id unless it is active and has the role, and at a term that an
    auditor's grant does not have; `Conflict` if there is a grant already, or if the dataset is
    closed.
    """
    # No analyst may see that a dataset is closed: it tells that another one has equal content.
    if dataset.closed:
        raise Conflict("The dataset's budget is closed. Grant the dataset that replaced it.")
    _expect_holder(session, actor, principal_id, role)
    _expect_terms_of(role, allowance, show_budget)
    row = repository.grant_of(session, dataset.id, principal_id)
    if row is not None and row.state == "active":
        raise Conflict(
            "This principal already has a grant on the dataset. Change that one, or revoke it to"
            " grant another role."
        )
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
    row.state, row.role = "active", role
    row.show_budget = _shows_budget(role, show_budget)
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
    a revoked grant, `Invalid` at a term that an auditor's does not have.
    """
    _expect_active(row)
    _expect_terms_of(row.role, allowance, show_budget)
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
    show_budget: bool | None,
) -> GrantRow:
    """Replace the terms; without an allowance only the budget itself limits."""
    _expect_active(row)
    _expect_terms_of(row.role, allowance, show_budget)
    _allow(row, allowance)
    shown = _shows_budget(row.role, show_budget)
    return change_grant(session, actor, row, allowance=None, show_budget=shown)


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


def _shows_budget(role: str, show_budget: bool | None) -> bool:
    """An auditor reads the whole account, an analyst its totals only if asked for."""
    return role == "auditor" or bool(show_budget)


def _expect_terms_of(role: str, allowance: Allowance | None, show_budget: bool | None) -> None:
    if role != "auditor":
        return
    if allowance is not None:
        raise Invalid.at(
            "/allowance",
            "An auditor requests no releases and has no allowance.",
            "Leave the allowance out.",
        )
    if show_budget is False:
        raise Invalid.at(
            "/show_budget",
            "An auditor reads the whole account.",
            "Leave the field out, or grant nothing.",
        )


def _expect_holder(session: Session, actor: Principal, principal_id: str, role: GrantRole) -> None:
    found = principals.principal(session, principal_id)
    if found is None or found.state != "active" or role not in roles_of(found):
        raise Invalid.at(
            "/principal_id",
            f"There is no active {role} of this id.",
            f"Send the id of a principal with the {role} role.",
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
        "role": row.role,
        "show_budget": row.show_budget,
        "allowance_units": None
        if row.cap_primary is None
        else {"primary": row.cap_primary, "delta": row.cap_delta},
    }
    audit.record(
        session, principal_id=actor.id, action=action, subject=row.dataset_id, detail=detail
    )
