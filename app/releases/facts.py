"""The public facts of a request, read in one snapshot.

Nothing here reads a private dataset's rows, their number, or anything made from them: only its
dictionary, unit and declared bounds, and the dictionary and size of a public dataset.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access.permission import Access, open_dataset
from app.database import Database
from app.datasets import damage
from app.datasets.models import DatasetRow
from app.datasets.public_rows import PublicRows
from app.engine.method import PublicFacts
from app.engine.privacy.loss import Accountant
from app.engine.schema import PrivacyUnit, Schema
from app.ledger.models import AccountRow
from app.problems import Conflict, FieldError, Forbidden, Invalid, NotFound
from app.releases.dictionaries import dictionary_of
from app.releases.schemas import ReleaseIn
from app.security.principals import Principal
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class PublicDataset:
    """A public dataset that a request names. Its rows are opened when they are first read."""

    facts: PublicFacts
    rows: PublicRows


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a dataset and its account before any synthesizer checks the request.

    takes_approximate: whether the account has any delta for approximate steps at all.
    """

    schema: Schema
    unit: PrivacyUnit
    max_total_rows: int
    accountant: Accountant
    takes_approximate: bool
    public: PublicDataset | None = None
    problems: tuple[FieldError, ...] = ()


def read_facts(
    session: Session,
    access: Access,
    principal: Principal,
    form: ReleaseIn,
    database: Database,
    settings: Settings,
) -> Facts:
    """Raises `Conflict` for a dataset that takes no releases, such as one found damaged now.

    `database` is opened later, for the rows of a public dataset alone.
    """
    account = accepting(access)
    damage.require_whole(session, access.dataset, database)
    accountant = Accountant(account.accountant)
    public: PublicDataset | None = None
    problems: tuple[FieldError, ...] = ()
    try:
        facts = public_facts(session, principal, form.public_dataset)
        if facts is not None and form.public_dataset is not None:
            rows = PublicRows(database, settings, form.public_dataset)
            public = PublicDataset(facts, rows)
    except Invalid as error:
        problems = tuple(error.errors)
    return Facts(
        schema=dictionary_of(access.dataset),
        unit=PrivacyUnit.parse(access.dataset.unit),
        max_total_rows=access.dataset.max_total_rows,
        accountant=accountant,
        takes_approximate=accountant is Accountant.BASIC or account.delta_for_approximate > 0,
        public=public,
        problems=problems,
    )


def accepting(access: Access) -> AccountRow:
    """The account to charge, if the dataset takes releases of this principal.

    Raises `Conflict`, and `Forbidden` for an auditor.
    """
    dataset, account = access.dataset, access.account
    if access.role == "auditor":
        raise Forbidden("An auditor's grant shows the ledger and takes no releases.")
    if account is None:
        raise Conflict(
            "A public dataset has no budget and takes no releases; name it as `public_dataset`"
            " in a release of a private one."
        )
    if dataset.closed:
        raise Conflict(
            "The dataset's budget is closed: a newer dataset has the content of one that shares it."
        )
    if dataset.state == damage.STATE:
        raise damage.Damaged
    if dataset.state in ("rejected", "erased"):
        raise Conflict(f"The dataset is {dataset.state} and takes no releases.")
    return account


def public_facts(
    session: Session, principal: Principal, dataset_id: str | None
) -> PublicFacts | None:
    """Dictionary and size of the public dataset that a request names. Raises `Invalid`."""
    if dataset_id is None:
        return None
    try:
        dataset: DatasetRow = open_dataset(session, principal, dataset_id).dataset
    # The same refusal for a dataset that is private or does not exist: its id must reveal nothing.
    except NotFound:
        raise no_public_dataset() from None
    if dataset.visibility != "public" or dataset.state != "ready" or dataset.rows is None:
        raise no_public_dataset()
    # Its rows are read after the charge.
    damage.require_whole(session, dataset)
    return PublicFacts(dictionary_of(dataset), dataset.rows)


def no_public_dataset() -> Invalid:
    return Invalid.at(
        "/public_dataset",
        "There is no public dataset of that id that is ready.",
        "Name a dataset with visibility `public` in state `ready`, or leave the field out.",
    )
