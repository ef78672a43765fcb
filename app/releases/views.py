"""How releases and samples are shown, and to whom which part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from sqlalchemy.orm import Session

from app.access.permission import is_custodian_of
from app.datasets import private_facts
from app.datasets.models import DatasetRow
from app.engine.privacy.loss import Accountant, Charge
from app.ledger import as_epsilon
from app.ledger.models import AccountRow
from app.ledger.schemas import GuaranteeIn
from app.problems import HalftoneError
from app.releases import repository
from app.releases.models import ReleaseRow, SampleRow
from app.releases.schemas import (
    RefusalOut,
    ReleaseOut,
    ReleaseState,
    RepairsOut,
    SampleBrief,
    SampleOut,
    SampleState,
    Visibility,
)
from app.security.principals import Principal
from app.storage.encryption import Keyring

# The same text for every cause: a failure could depend on private rows.
FAILURE = "The release failed. Its charge stands; the dataset's custodian can see the cause."


def releases(
    session: Session,
    keyring: Keyring,
    principal: Principal,
    rows: Sequence[tuple[ReleaseRow, DatasetRow]],
) -> list[ReleaseOut]:
    """Several releases as this principal may see them."""
    published = [release.id for release, _ in rows if release.state == "succeeded"]
    samples = repository.samples_of(session, published) if published else {}
    # One read for each account, not for each release of the page.
    accounts = {
        account_id: repository.account(session, account_id)
        for account_id in {release.account_id for release, _ in rows}
    }
    return [
        _release(
            session,
            keyring,
            principal,
            release,
            dataset,
            accounts[release.account_id],
            samples.get(release.id, []),
        )
        for release, dataset in rows
    ]


def refusal(error: HalftoneError | None) -> RefusalOut | None:
    """Why the budget would refuse, as a preflight shows it."""
    if error is None:
        return None
    amounts = {name: error.extra.get(name) for name in RefusalOut.model_fields if name != "detail"}
    return RefusalOut(detail=error.detail, **amounts)


def release(
    session: Session,
    keyring: Keyring,
    principal: Principal,
    row: ReleaseRow,
    dataset: DatasetRow,
    account: AccountRow | None = None,
) -> ReleaseOut:
    """One release; its account is read unless it is passed in."""
    account = account or repository.account(session, row.account_id)
    published = row.state == "succeeded"
    samples = repository.samples_of(session, [row.id])[row.id] if published else []
    return _release(session, keyring, principal, row, dataset, account, samples)


def sample(row: SampleRow, dataset_id: str) -> SampleOut:
    return SampleOut(
        id=row.id,
        release_id=row.release_id,
        dataset_id=dataset_id,
        kind=cast(Literal["rows", "counts"], row.kind),
        rows=row.rows,
        seed=row.seed,
        state=cast(SampleState, row.state),
        stored=row.state == "succeeded" and not row.dropped,
        size_bytes=row.size_bytes,
        repairs=repairs(row),
        created_at=row.created_at,
        finished_at=row.finished_at,
    )


def repairs(row: SampleRow) -> RepairsOut | None:
    """What was changed to meet the dictionary's rules, once the rows are made."""
    return None if row.repairs is None else RepairsOut.model_validate(row.repairs)


def _release(
    session: Session,
    keyring: Keyring,
    principal: Principal,
    row: ReleaseRow,
    dataset: DatasetRow,
    account: AccountRow,
    samples: Sequence[SampleRow],
) -> ReleaseOut:
    failed = row.state == "failed"
    charge, accountant = (
        Charge(row.charge_primary, row.charge_delta),
        Accountant(account.accountant),
    )
    custody = is_custodian_of(principal, dataset)
    return ReleaseOut(
        id=row.id,
        dataset_id=row.dataset_id,
        synthesizer=row.synthesizer,
        synthesizer_version=row.synthesizer_version,
        assurance=cast(Literal["enforced", "declared"], row.assurance),
        params=row.params,
        guarantee=row.guarantee,
        charge=charge.as_wire(accountant),
        charge_as_epsilon=as_epsilon.requested(
            charge, GuaranteeIn.model_validate(row.guarantee).to_guarantee(), accountant
        ),
        rows=row.rows,
        evaluates=None if row.evaluates is None else row.evaluates["release"],
        public_dataset=row.public_dataset_id,
        state=cast(ReleaseState, row.state),
        progress=row.progress,
        stage=row.stage,
        samples=[
            SampleBrief(id=each.id, rows=each.rows, state=cast(SampleState, each.state))
            for each in samples
        ],
        visibility=cast(Visibility, row.visibility),
        # Between the requester and the custodian: others it does not concern.
        visibility_requested=(
            cast(Visibility | None, row.visibility_requested)
            if custody or row.principal_id == principal.id
            else None
        ),
        refunded=row.refunded,
        failure=FAILURE if failed else None,
        private_detail=(
            private_detail(session, keyring, dataset, row.id) if failed and custody else None
        ),
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def private_detail(
    session: Session, keyring: Keyring, dataset: DatasetRow, subject_id: str
) -> str | None:
    """Why the newest job of a subject on the dataset failed, for the dataset's custodian."""
    job = repository.newest_job(session, subject_id)
    if job is None:
        return None
    return private_facts.detail(dataset, keyring, job.id, job.private_detail)
