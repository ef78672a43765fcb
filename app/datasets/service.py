"""Use-cases of datasets: declare one, receive its data, rename it."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.database import new_id, now
from app.datasets import repository
from app.datasets.draft import BudgetTerms, DatasetDraft
from app.datasets.master_key import require_same_key
from app.datasets.models import DatasetRow
from app.datasets.staging import StagedFile
from app.engine.privacy.loss import Accountant
from app.engine.schema import PrivacyUnit
from app.ledger import accounts
from app.ledger.models import AccountRow
from app.problems import Conflict, Invalid
from app.queue import jobs
from app.security import audit
from app.security.principals import Principal
from app.settings import Settings
from app.storage.blobs import own
from app.storage.encryption import Keyring

# Not `ready`: releases were computed from its rows, and replacing them would hide further loss.
RECEIVING = ("awaiting_data", "rejected")


def create(
    session: Session,
    principal: Principal,
    draft: DatasetDraft,
    staged: StagedFile | None,
    settings: Settings,
) -> DatasetRow:
    """A new dataset, its account opened or joined; with `staged` its ingest is queued.

    Raises `Invalid` for a budget that no account can have, or an account that cannot be
    joined.
    """
    dataset_id = new_id("ds")
    row = DatasetRow(
        id=dataset_id,
        owner_id=principal.id,
        account_id=_account(session, principal, draft, dataset_id),
        name=draft.name,
        visibility=draft.visibility,
        state="awaiting_data",
        closed=False,
        schema=draft.schema.to_wire(),
        unit=draft.unit.to_wire(),
        max_total_rows=draft.max_total_rows,
        file_options=draft.file_options,
        new_population=draft.new_population,
        created_at=now(),
    )
    session.add(row)
    audit.record(
        session,
        principal_id=principal.id,
        action="dataset.create",
        subject=row.id,
        detail={"visibility": row.visibility, "shares_budget_with": draft.joins},
    )
    if draft.new_population is not None:
        # As declared, whether or not the content is known: the entry must not tell.
        audit.record(
            session,
            principal_id=principal.id,
            action="dataset.new_population",
            subject=row.id,
            detail={"reason": draft.new_population},
        )
    if staged is not None:
        _start_ingest(session, row, staged, settings)
    return row


def check_receiving(row: DatasetRow) -> None:
    """Raise `Conflict` unless the dataset takes data now."""
    if row.closed:
        raise Conflict(
            "The dataset's budget is closed: a newer dataset has the content of one that shares it."
            " Create another dataset."
        )
    if row.state not in RECEIVING:
        raise Conflict(
            f"The dataset is {row.state}; it takes data only while it is awaiting_data or"
            " rejected. Create another dataset for other data."
        )


def receive(
    session: Session,
    row: DatasetRow,
    staged: StagedFile,
    settings: Settings,
    file_format: str | None = None,
) -> None:
    """Queue the ingest of an upload. Raises `Conflict` unless the dataset takes data now.

    `file_format` overrides what was declared about the file.
    """
    check_receiving(row)
    if file_format is not None:
        row.file_options = {**row.file_options, "format": file_format}
    _start_ingest(session, row, staged, settings)


def rename(row: DatasetRow, name: str) -> None:
    row.name = name


def _start_ingest(
    session: Session, row: DatasetRow, staged: StagedFile, settings: Settings
) -> None:
    # The staged file names its key under the key of this server, which no other could open.
    require_same_key(session, Keyring(settings))
    row.state = "ingesting"
    own(session, row.id, row.owner_id)
    row.staged = staged.to_wire()
    row.ingest_report = None
    jobs.enqueue(session, kind="ingest", subject_id=row.id, dataset_id=row.id, settings=settings)


def _account(
    session: Session, principal: Principal, draft: DatasetDraft, dataset_id: str
) -> str | None:
    if draft.terms is not None:
        return _opened(session, principal, draft.terms, draft.unit, dataset_id).id
    if draft.joins is None:
        return None
    account = _joinable(session, principal, draft.joins, draft.unit)
    accounts.join_account(
        session, account=account, dataset_id=dataset_id, principal_id=principal.id
    )
    return account.id


def _opened(
    session: Session, principal: Principal, terms: BudgetTerms, unit: PrivacyUnit, dataset_id: str
) -> AccountRow:
    return accounts.open_account(
        session,
        owner_id=principal.id,
        dataset_id=dataset_id,
        unit_kind=unit.kind,
        budget_epsilon=terms.epsilon,
        budget_delta=terms.delta,
        accountant=Accountant(terms.accountant),
        delta_for_approximate=terms.delta_for_approximate,
    )


def _joinable(
    session: Session, principal: Principal, dataset_id: str, unit: PrivacyUnit
) -> AccountRow:
    pointer = "/shares_budget_with"
    other = repository.get(session, dataset_id)
    if other is None or other.owner_id != principal.id:
        raise Invalid.at(
            pointer,
            "You have no such dataset.",
            "Name a dataset of which you are the custodian; it may be erased.",
        )
    if other.account_id is None:
        raise Invalid.at(
            pointer,
            "That dataset is public and has no budget.",
            "Name a private dataset, or send `budget`.",
        )
    if other.closed:
        raise Invalid.at(
            pointer,
            "That budget is closed: a newer dataset has the content of one that shared it.",
            "Name the newer dataset, or send `budget`.",
        )
    account = session.get_one(AccountRow, other.account_id)
    # Losses of different units do not add up to a guarantee for either.
    if account.unit_kind != unit.kind:
        raise Invalid.at(
            pointer,
            f"That budget is for units of kind `{account.unit_kind}`, not `{unit.kind}`.",
            "Join a budget of the same kind of unit, or send `budget`.",
        )
    return account
