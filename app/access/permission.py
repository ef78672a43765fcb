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

    `role` is `custodian` for its owner, `analyst` under an active grant (then `grant` is
    set), `reader` for anybody else when the dataset is public.
    """

    dataset: DatasetRow
    role: Literal["custodian", "analyst", "reader"]
    account: AccountRow | None
    """What it draws on; None for a public dataset."""
    grant: GrantRow | None

    @property
    def standing(self) -> tuple[Any, ...]:
        """As `repository.standing` reads it."""
        dataset, grant = self.dataset, self.grant
        return (
            dataset.account_id,
            dataset.owner_id,
            dataset.visibility,
            dataset.state,
            dataset.closed,
            dataset.ready_at,
            None if grant is None else grant.state,
            None if grant is None else grant.show_budget,
        )

    @property
    def shows_budget(self) -> bool:
        """Whether the principal may see the account's totals."""
        return self.role == "custodian" or (self.grant is not None and self.grant.show_budget)


def open_dataset(session: Session, principal: Principal, dataset_id: str) -> Access:
    """The dataset as this principal may see it; `NotFound` if they may not at all.

    Others than the custodian see it only from the moment it is first ready, and then for
    good: closed and erased datasets keep their releases.
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
    if grant is None or grant.state != "active" or not principal.is_analyst:
        raise NotFound
    return Access(dataset, "analyst", account, grant)


def renewed(session: Session, principal: Principal, access: Access) -> Access:
    """What was opened in an earlier transaction, opened again if anything has changed since."""
    grant_id = None if access.grant is None else access.grant.id
    if repository.standing(session, access.dataset.id, grant_id) == access.standing:
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


def is_custodian_of(principal: Principal, dataset: DatasetRow) -> bool:
    return principal.is_custodian and dataset.owner_id == principal.id
