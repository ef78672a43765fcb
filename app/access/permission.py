"""Which dataset a principal may see, and in what role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from app.access import repository
from app.datasets.models import DatasetRow
from app.ledger.models import AccountRow, GrantRow
from app.problems import Forbidden, NotFound
from app.security.principals import Principal


@dataclass(frozen=True, slots=True)
class Access:
    """A dataset that the principal may see.

    `role` is `custodian` for its owner, `analyst` or `auditor` under an active grant of that role
    (then `grant` is set), `reader` for everyone else if the dataset is public.
    """

    dataset: DatasetRow
    role: Literal["custodian", "analyst", "auditor", "reader"]
    # The account that pays for its releases; None for a public dataset.
    account: AccountRow | None
    grant: GrantRow | None

    @property
    def facts(self) -> tuple[Any, ...]:
        """What decides about access, in the order of `repository.access_facts`."""
        dataset, grant = self.dataset, self.grant
        return (
            dataset.account_id,
            dataset.owner_id,
            dataset.visibility,
            dataset.state,
            dataset.closed,
            dataset.ready_at,
            None if grant is None else grant.state,
            None if grant is None else grant.role,
            None if grant is None else grant.show_budget,
        )

    @property
    def reads_account(self) -> bool:
        """Whether the principal reads the whole account: its budget and every entry."""
        return self.role in ("custodian", "auditor")

    @property
    def shows_budget(self) -> bool:
        """Whether the principal may see the account's totals."""
        return self.reads_account or (self.grant is not None and self.grant.show_budget)

    @property
    def allowance(self) -> GrantRow | None:
        """The grant whose allowance pays for the principal's releases."""
        return self.grant if self.role == "analyst" else None


def open_dataset(session: Session, principal: Principal, dataset_id: str) -> Access:
    """The dataset as this principal may see it; `NotFound` if they may not see it.

    Only the custodian sees it before it is ready for the first time. Afterwards the others see it
    permanently: closed and erased datasets keep their releases.
    """
    found = repository.opened(session, dataset_id, principal.id)
    if found is None:
        raise NotFound
    dataset, account, grant = found
    if is_custodian_of(principal, dataset):
        return Access(dataset, "custodian", account, None)
    if dataset.ready_at is None:
        raise NotFound
    if dataset.visibility == "public":
        return Access(dataset, "reader", account, None)
    # `NotFound`, never `Forbidden`: an id of a dataset that the caller may not see must look
    # unknown.
    if grant is None or grant.state != "active":
        raise NotFound
    if grant.role == "auditor" and principal.is_auditor:
        return Access(dataset, "auditor", account, grant)
    if grant.role == "analyst" and principal.is_analyst:
        return Access(dataset, "analyst", account, grant)
    raise NotFound


def reopened(session: Session, principal: Principal, access: Access) -> Access:
    """Access from an earlier transaction, checked again if anything has changed since then."""
    grant_id = None if access.grant is None else access.grant.id
    if repository.access_facts(session, access.dataset.id, grant_id) == access.facts:
        return access
    return open_dataset(session, principal, access.dataset.id)


def own_dataset(session: Session, principal: Principal, dataset_id: str) -> DatasetRow:
    """The dataset, for its custodian alone.

    Raises `NotFound` if the principal cannot see it, `Forbidden` if they can but do not
    own it.
    """
    access = open_dataset(session, principal, dataset_id)
    if access.role != "custodian":
        raise Forbidden("Only the dataset's custodian may do this.")
    return access.dataset


def accountable(session: Session, principal: Principal, dataset_id: str) -> Access:
    """A dataset with an account, for its custodian and auditors, who read the whole account.

    Raises `NotFound` if the principal cannot see it or it has none, `Forbidden` for others.
    """
    access = open_dataset(session, principal, dataset_id)
    if access.account is None:
        raise NotFound("A public dataset has neither budget nor ledger.")
    if not access.reads_account:
        raise Forbidden("Only the dataset's custodian and its auditors may do this.")
    return access


def is_custodian_of(principal: Principal, dataset: DatasetRow) -> bool:
    return principal.is_custodian and dataset.owner_id == principal.id
