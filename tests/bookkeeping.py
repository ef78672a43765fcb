"""Builders for tests of the ledger: a store with an account, releases by the dozen."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from app import tables
from app.database import Database, new_id, now
from app.datasets.blocks import MANIFEST, Manifest
from app.datasets.models import DatasetRow
from app.engine.privacy.loss import (
    DELTA_UNIT,
    EPSILON_UNIT,
    RHO_UNIT,
    Accountant,
    Guarantee,
    to_units,
)
from app.ledger import accounts, admission
from app.ledger.models import AccountRow, GrantRow
from app.ledger.terms import Terms
from app.security.models import PrincipalRow
from app.storage import inventory
from app.storage.models import ChunkRow


def make_store(folder: Path) -> Database:
    database = Database(f"sqlite:///{folder}/store.sqlite")
    tables.metadata.create_all(database.write_engine)
    return database


def guarantee(
    epsilon: str | None = None, delta: str | None = None, rho: str | None = None
) -> Guarantee:
    def units(text: str | None, unit: Decimal) -> int | None:
        return None if text is None else to_units(Decimal(text), unit, rounding="up")

    return Guarantee(
        epsilon=units(epsilon, EPSILON_UNIT),
        rho=units(rho, RHO_UNIT),
        delta=units(delta, DELTA_UNIT),
    )


def add_principal(session: Session, **roles: bool) -> PrincipalRow:
    row = PrincipalRow(
        id=new_id("pr"),
        name=new_id("name"),
        is_admin=roles.get("admin", False),
        is_custodian=roles.get("custodian", False),
        is_analyst=roles.get("analyst", False),
        is_auditor=roles.get("auditor", False),
        state="active",
        created_at=now(),
    )
    session.add(row)
    session.flush()
    return row


def add_dataset(
    session: Session, owner_id: str, account_id: str | None, *, dataset_id: str | None = None
) -> DatasetRow:
    row = DatasetRow(
        id=dataset_id or new_id("ds"),
        owner_id=owner_id,
        account_id=account_id,
        name="table",
        visibility="public" if account_id is None else "private",
        state="ready",
        schema={"fields": []},
        unit={"kind": "row"},
        max_total_rows=100,
        file_options={},
        created_at=now(),
        ready_at=now(),
    )
    session.add(row)
    session.flush()
    store_no_rows(session, row.id)
    return row


def store_no_rows(session: Session, dataset_id: str) -> None:
    """A stored part in place of a table, without which a ready dataset is damaged."""
    data = Manifest(0, 1).to_bytes()
    chunk = {"collection": dataset_id, "part": MANIFEST, "sequence": 0, "data": data}
    session.add(ChunkRow(**chunk, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
    session.flush()
    inventory.record(session, dataset_id)


def add_grant(
    session: Session, dataset_id: str, principal_id: str, *, cap: tuple[int, int] | None = None
) -> GrantRow:
    row = GrantRow(
        id=new_id("gr"),
        dataset_id=dataset_id,
        principal_id=principal_id,
        show_budget=False,
        cap_primary=None if cap is None else cap[0],
        cap_delta=None if cap is None else cap[1],
        spent_primary=0,
        spent_delta=0,
        state="active",
        created_at=now(),
    )
    session.add(row)
    session.flush()
    return row


@dataclass(frozen=True)
class Books:
    """A store with one custodian's dataset and its account."""

    database: Database
    owner_id: str
    dataset_id: str
    account_id: str

    def account(self, session: Session) -> AccountRow:
        found = session.get(AccountRow, self.account_id, populate_existing=True)
        assert found is not None
        return found

    def admit(
        self,
        session: Session,
        asked: Guarantee,
        *,
        grant: GrantRow | None = None,
        reveal_account: bool = True,
        release_id: str | None = None,
        approximate_delta: int = 0,
        detail: dict[str, Any] | None = None,
    ) -> admission.Admission:
        account = self.account(session)
        return admission.admit(
            session,
            account=account,
            grant=grant,
            reveal_account=reveal_account,
            terms=Terms.of(asked, Accountant(account.accountant), approximate_delta),
            dataset_id=self.dataset_id,
            release_id=release_id or new_id("rl"),
            principal_id=self.owner_id if grant is None else grant.principal_id,
            detail=detail or {},
        )


def open_books(
    database: Database,
    epsilon: str = "1",
    delta: str = "0",
    accountant: Accountant = Accountant.BASIC,
    aside: str = "0",
) -> Books:
    with database.write() as session:
        owner = add_principal(session, custodian=True)
        dataset_id = new_id("ds")
        account = accounts.open_account(
            session,
            owner_id=owner.id,
            dataset_id=dataset_id,
            unit_kind="row",
            budget_epsilon=Decimal(epsilon),
            budget_delta=Decimal(delta),
            accountant=accountant,
            delta_for_approximate=Decimal(aside),
        )
        add_dataset(session, owner.id, account.id, dataset_id=dataset_id)
        return Books(database, owner.id, dataset_id, account.id)
