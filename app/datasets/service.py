"""Use-cases of datasets: declare, receive data, rename, erase."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.access import permission
from app.database import Database, new_id, now
from app.datasets import repository
from app.datasets.draft import BudgetTerms, DatasetDraft
from app.datasets.models import DatasetRow
from app.datasets.staging import StagedFile, StagingArea
from app.engine.privacy.loss import Accountant
from app.engine.schema import PrivacyUnit
from app.ledger import service as ledger
from app.ledger.models import AccountRow
from app.problems import Conflict, Invalid, TooLarge
from app.queue import jobs
from app.releases import service as releases
from app.reports import service as reports
from app.security import audit
from app.security.principals import Principal
from app.settings import Settings
from app.storage.blobs import BlobStore, stored_bytes
from app.storage.reclaim import reclaim

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
    if staged is not None:
        _start_ingest(session, row, staged, settings)
    return row


def check_receiving(session: Session, principal: Principal, dataset_id: str) -> DatasetRow:
    """The dataset, if it takes data now. Raises `NotFound`, `Forbidden` or `Conflict`."""
    row = permission.own_dataset(session, principal, dataset_id)
    if row.state not in RECEIVING:
        raise Conflict(
            f"The dataset is {row.state}; it takes data only while it is awaiting_data or"
            " rejected. Create another dataset for other data."
        )
    return row


def check_room(session: Session, principal: Principal, settings: Settings) -> None:
    """Raise `TooLarge` if the principal's tables and samples take all that is allowed."""
    used = stored_bytes(session, repository.collections_of(session, principal.id))
    if used >= settings.max_stored_bytes:
        raise TooLarge(
            f"Your stored tables and samples take {settings.max_stored_bytes} bytes, the most"
            " allowed. Erase datasets or samples that are not needed."
        )


def receive(
    session: Session,
    principal: Principal,
    dataset_id: str,
    staged: StagedFile,
    settings: Settings,
    file_format: str | None = None,
) -> DatasetRow:
    """Queue the ingest of an upload for a dataset that takes data.

    `file_format` overrules what was declared about the file.
    """
    row = check_receiving(session, principal, dataset_id)
    if file_format is not None:
        row.file_options = {**row.file_options, "format": file_format}
    _start_ingest(session, row, staged, settings)
    return row


def rename(session: Session, principal: Principal, dataset_id: str, name: str) -> DatasetRow:
    row = permission.own_dataset(session, principal, dataset_id)
    row.name = name
    return row


def erase(
    session: Session, principal: Principal, dataset_id: str, *, with_releases: bool
) -> list[str]:
    """End the dataset: its jobs are stopped, its key and private facts go at once.

    Returns the blob collections that are to be dropped after the commit, by `purge`.
    Account, ledger and the keyed content digest stay. Erasing again is harmless.
    """
    row = permission.own_dataset(session, principal, dataset_id)
    jobs.cancel(session, row.id)
    releases.cancel_all(session, row.id, principal.id)
    reports.forget(session, row.id)
    releases.forget_causes(session, row.id)
    doomed = [row.id]
    if with_releases:
        doomed += releases.purge(session, row.id)
    if row.state != "erased":
        row.state, row.erased_at = "erased", now()
        audit.record(
            session,
            principal_id=principal.id,
            action="dataset.erase",
            subject=row.id,
            detail={"releases": with_releases},
        )
    row.staged, row.wrapped_key, row.rows, row.ingest_report = None, None, None, None
    return doomed


def purge(database: Database, settings: Settings, collections: list[str]) -> None:
    """Drop blobs and staged files for good; call after the erasing transaction committed."""
    for collection in collections:
        BlobStore(database).delete(collection)
    sweep_staging(database, settings)
    reclaim(database)


def sweep_staging(database: Database, settings: Settings) -> None:
    def wanted() -> set[str]:
        with database.read() as session:
            return repository.staged_names(session)

    StagingArea(settings).sweep(wanted)


def finish_interrupted(database: Database, settings: Settings) -> None:
    """At start-up: drop staged files and chunks that a stopped process left behind."""
    sweep_staging(database, settings)
    with database.read() as session:
        leftovers = repository.leftovers(session)
    if leftovers:
        purge(database, settings, leftovers)


def _start_ingest(
    session: Session, row: DatasetRow, staged: StagedFile, settings: Settings
) -> None:
    row.state = "ingesting"
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
    ledger.join_account(session, account=account, dataset_id=dataset_id, principal_id=principal.id)
    return account.id


def _opened(
    session: Session, principal: Principal, terms: BudgetTerms, unit: PrivacyUnit, dataset_id: str
) -> AccountRow:
    return ledger.open_account(
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
            "Name a dataset that you are the custodian of; an erased one will do.",
        )
    if other.account_id is None:
        raise Invalid.at(
            pointer,
            "That dataset is public and has no budget.",
            "Name a private dataset, or send `budget`.",
        )
    account = session.get_one(AccountRow, other.account_id)
    if account.unit_kind != unit.kind:
        raise Invalid.at(
            pointer,
            f"That budget is for units of kind `{account.unit_kind}`, not `{unit.kind}`.",
            "Join a budget of the same kind of unit, or send `budget`.",
        )
    return account
