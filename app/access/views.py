"""How a dataset is shown: to its custodian in full, to others its public facts alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal, cast

from sqlalchemy.orm import Session

from app.access import permission
from app.access.permission import Access
from app.datasets import private_facts, recognition
from app.datasets.delta import Note, notes
from app.datasets.models import DatasetRow
from app.datasets.schemas import CustodianFacts, DatasetOut, NoteOut, OwnGrantOut, State
from app.ledger.models import AccountRow
from app.security.principals import Principal
from app.storage.blobs import stored_bytes
from app.storage.encryption import Keyring


def dataset(
    session: Session, keyring: Keyring, principal: Principal, row: DatasetRow
) -> DatasetOut:
    """Raises `NotFound` where the principal may not see it."""
    return seen(session, keyring, permission.open_dataset(session, principal, row.id))


def seen(session: Session, keyring: Keyring, seen_by: Access) -> DatasetOut:
    row, grant = seen_by.dataset, seen_by.grant
    return DatasetOut(
        id=row.id,
        name=row.name,
        state=cast(State, row.state),
        visibility=cast(Literal["private", "public"], row.visibility),
        role=seen_by.role,
        schema=row.schema,
        unit=row.unit,
        max_total_rows=row.max_total_rows,
        created_at=row.created_at,
        grant=None
        if grant is None
        else OwnGrantOut(id=grant.id, state=grant.state, show_budget=grant.show_budget),
        custodian=_facts(session, keyring, row) if seen_by.role == "custodian" else None,
    )


def _facts(session: Session, keyring: Keyring, row: DatasetRow) -> CustodianFacts:
    return CustodianFacts(
        account_id=row.account_id,
        closed=row.closed,
        # The exact count of rows is private, so it is in the custodian's part alone.
        rows=private_facts.exact_rows(row, keyring),
        stored_bytes=stored_bytes(session, row.id),
        new_population=row.new_population,
        ready_at=row.ready_at,
        erased_at=row.erased_at,
        notes=[NoteOut(**asdict(note)) for note in _notes(session, row)],
    )


def _notes(session: Session, row: DatasetRow) -> list[Note]:
    if row.state == "erased":
        return []
    account = None if row.account_id is None else session.get(AccountRow, row.account_id)
    return [*notes(row.id, row.schema, account), *recognition.warnings(session, row)]
