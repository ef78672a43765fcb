"""Admission of a release: charge, ledger row, release and job in one write transaction."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access.permission import Access, open_dataset, reopened
from app.database import Database, new_id, now
from app.datasets.master_key import require_same_key
from app.datasets.models import DatasetRow
from app.idempotency import Attempt, claim, find_replay
from app.ledger import admission as ledger
from app.ledger.models import AccountRow
from app.problems import Conflict, Invalid
from app.queue import jobs
from app.releases import choice, evaluations, events, repository, results, samples, service
from app.releases.catalogue import Catalogue
from app.releases.costing import Costing
from app.releases.evaluations import Evaluated, EvaluationIn
from app.releases.facts import accepting, public_facts, read_facts
from app.releases.models import ReleaseRow
from app.releases.refusals import HiddenRefusals
from app.releases.schemas import ReleaseIn
from app.security.principals import Principal
from app.settings import Settings
from app.storage.encryption import Keyring

ACCEPTED = 202


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that was checked, with the dataset as it was then."""

    access: Access
    form: ReleaseIn
    costing: Costing
    evaluated: Evaluated | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A release, just admitted or (`replayed`) admitted by an earlier attempt."""

    release: ReleaseRow
    dataset: DatasetRow
    account: AccountRow
    replayed: bool


def prepare(
    database: Database,
    catalogue: Catalogue,
    principal: Principal,
    dataset_id: str,
    form: ReleaseIn,
    attempt: Attempt | None,
    settings: Settings,
) -> Prepared | None:
    """Everything that may take time or refuse, before the write transaction. Raises `Invalid`.

    None for a request that was answered before.
    """
    with database.read() as session:
        if find_replay(session, attempt):
            return None
        # Under another key the run could not open its dataset, and would be charged.
        require_same_key(session, Keyring(settings))
        samples.check_room(session, principal.id, settings)
        access = open_dataset(session, principal, dataset_id)
        facts = read_facts(session, access, principal, form, database, settings)
    # Outside the transaction: a third party's process may take seconds to answer.
    costed = choice.cost(facts, catalogue, form, settings)
    if costed.problems:
        raise Invalid("The release cannot run as requested.", errors=costed.problems)
    return Prepared(access, form, costed)


def prepare_evaluation(
    database: Database,
    principal: Principal,
    release_id: str,
    form: EvaluationIn,
    attempt: Attempt | None,
    settings: Settings,
) -> Prepared | None:
    """As `prepare`, for an evaluation of a release that the caller sees. Raises also `Conflict`."""
    with database.read() as session:
        if find_replay(session, attempt):
            return None
        require_same_key(session, Keyring(settings))
        samples.check_room(session, principal.id, settings)
        release, _ = service.visible(session, principal, release_id)
        access = open_dataset(session, principal, release.dataset_id)
        # The request of the evaluated release, under the guarantee of this one.
        again = ReleaseIn(
            synthesizer=release.synthesizer, guarantee=form.guarantee, rows=release.rows
        )
        facts = read_facts(session, access, principal, again, database, settings)
        evaluated = Evaluated.of(release, facts.schema, form)
        costed = evaluations.costed(release, evaluated, facts, form, settings)
    return Prepared(access, again, costed, evaluated)


def admit(
    session: Session,
    principal: Principal,
    prepared: Prepared | None,
    attempt: Attempt | None,
    refusals: HiddenRefusals,
    settings: Settings,
) -> Accepted:
    """Charge and queue.

    Raises `BudgetExceeded`, `TooManyRequests` after too many such refusals, or `Conflict` where the
    dataset changed.
    """
    release_id = new_id("rl")
    # First of all, under the write lock: of two equal requests only one is charged.
    replay = claim(session, attempt, ACCEPTED, release_id)
    if replay is not None:
        release, dataset = service.visible(session, principal, replay.resource_id)
        account = repository.account(session, release.account_id)
        return Accepted(release, dataset, account, replayed=True)
    if prepared is None:
        raise Conflict("The earlier request with this Idempotency-Key is gone; send a new key.")
    # The dataset may have been closed or the grant revoked while the request was being checked.
    access = reopened(session, principal, prepared.access)
    account = accepting(access)
    if access.dataset.state != "ready":
        raise Conflict("The dataset is not ready: it takes releases once its data are stored.")
    # Checked again: the public dataset may have been erased since.
    public_facts(session, principal, prepared.form.public_dataset)
    if prepared.evaluated is not None:
        # Withdrawn since, it would have no rows to draw again.
        results.check_published(repository.release(session, prepared.evaluated.release_id))
    # Charge before enqueue, in one transaction: no worker can see a job that was not paid for.
    with refusals.counted(principal, access):
        release = _charge(session, principal, access, account, release_id, prepared)
    repository.add(session, release)
    events.began(session, release)
    jobs.enqueue(
        session,
        kind="fit",
        subject_id=release.id,
        dataset_id=release.dataset_id,
        settings=settings,
    )
    return Accepted(release, access.dataset, account, replayed=False)


def _charge(
    session: Session,
    principal: Principal,
    access: Access,
    account: AccountRow,
    release_id: str,
    prepared: Prepared,
) -> ReleaseRow:
    form, costed, evaluated = prepared.form, prepared.costing, prepared.evaluated
    entry, terms = costed.entry, costed.terms
    assert entry is not None
    assert terms is not None
    booked = ledger.admit(
        session,
        account=account,
        grant=access.grant,
        reveal_account=access.shows_budget,
        terms=terms,
        dataset_id=access.dataset.id,
        release_id=release_id,
        principal_id=principal.id,
        detail=_detail(entry.name, evaluated),
    )
    return ReleaseRow(
        id=release_id,
        dataset_id=access.dataset.id,
        account_id=account.id,
        principal_id=principal.id,
        grant_id=None if access.grant is None else access.grant.id,
        synthesizer=entry.name,
        synthesizer_version=entry.version,
        # The kernel alone measures an evaluation, whatever made the rows.
        assurance=entry.assurance if evaluated is None else "enforced",
        params=costed.params,
        guarantee=terms.guarantee.as_wire(),
        charge_primary=terms.charge.primary,
        charge_delta=terms.charge.delta,
        loss_kind=terms.loss.kind,
        loss_amount=terms.loss.amount,
        loss_delta=terms.loss.delta,
        rows=form.rows,
        public_dataset_id=form.public_dataset,
        # The same seed gives the evaluated rows again.
        seed=samples.new_seed() if evaluated is None else evaluated.seed,
        evaluates=None if evaluated is None else evaluated.to_json(),
        state="queued",
        progress=0.0,
        stage="queued",
        refunded=False,
        visibility="requester",
        ledger_sequence=booked.ledger_sequence,
        created_at=now(),
    )


def _detail(synthesizer: str, evaluated: Evaluated | None) -> dict[str, str]:
    """What the ledger says that a charge is for."""
    if evaluated is None:
        return {"synthesizer": synthesizer}
    return {"evaluates": evaluated.release_id}
