"""What a release would cost and need, and what stands in its way: public facts alone.

Nothing here reads a private dataset's rows, their number, or anything made from them: only
its dictionary, unit and declared bounds. All of it happens before the transaction that
admits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sqlalchemy.orm import Session

from app.database import Database
from app.datasets.models import DatasetRow
from app.engine.privacy.loss import Accountant
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.base import Limits, Preflight, PublicFacts
from app.engine.synthesizers.registry import Entry
from app.ledger import service as ledger
from app.problems import Conflict, FieldError, Invalid, NotFound
from app.releases import repository, samples
from app.releases.catalogue import Case, Catalogue
from app.releases.schemas import ReleaseIn
from app.security.access import Access, open_dataset
from app.security.principals import Principal
from app.settings import Settings

_LARGEST_EXPONENT = 300


@dataclass(frozen=True, slots=True)
class Costing:
    """The outcome: with `problems` the release is refused and the rest may be missing."""

    entry: Entry | None
    params: dict[str, Any]
    preview: ledger.Preview | None
    preflight: Preflight | None
    problems: tuple[FieldError, ...]
    accountant: Accountant

    @property
    def charge(self) -> dict[str, str] | None:
        """What would be booked, in the account's own terms."""
        return None if self.preview is None else self.preview.charge.as_wire(self.accountant)

    @property
    def expected_error(self) -> float | None:
        if self.preflight is None or not math.isfinite(self.preflight.expected_error):
            return None
        return self.preflight.expected_error


@dataclass
class _Faults:
    """Collects what is wrong, so that a request learns all of it at once."""

    found: list[FieldError] = field(default_factory=list)

    @contextmanager
    def caught(self) -> Iterator[None]:
        try:
            yield
        except Invalid as error:
            self.found += error.errors or [FieldError("", error.detail, "")]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What was read in one snapshot, before any synthesizer is asked."""

    dataset: DatasetRow
    accountant: Accountant
    public: PublicFacts | None
    preview: ledger.Preview | None


def cost(
    database: Database,
    catalogue: Catalogue,
    principal: Principal,
    dataset_id: str,
    form: ReleaseIn,
    settings: Settings,
) -> Costing:
    """Cost a request. Raises `NotFound` or `Conflict` for a dataset that takes no releases."""
    faults = _Faults()
    with database.read() as session:
        facts = _facts(session, principal, dataset_id, form, faults)
    with faults.caught():
        samples.check_rows(form.rows, facts.dataset.max_total_rows, settings)
    entry, params = None, {}
    with faults.caught():
        entry = catalogue.entry(form.synthesizer)
        params = plain_form(form.params)
    preflight = None
    if entry is not None and facts.preview is not None and not faults.found:
        case = _case(facts, facts.preview, form, settings)
        with faults.caught():
            params, preflight = catalogue.check(entry, params, case)
            faults.found += [
                FieldError(problem.pointer, problem.message, problem.remedy)
                for problem in preflight.problems
            ]
    problems = tuple(faults.found)
    return Costing(entry, params, facts.preview, preflight, problems, facts.accountant)


def accepting(access: Access) -> DatasetRow:
    """The dataset, if it takes releases from this principal. Raises `Conflict`."""
    dataset = access.dataset
    if dataset.visibility == "public":
        raise Conflict(
            "A public dataset has no budget and takes no releases; name it as `public_dataset`"
            " in a release of a private one."
        )
    if dataset.closed:
        raise Conflict("The dataset is closed: a newer one with the same content took over.")
    if dataset.state in ("rejected", "erased"):
        raise Conflict(f"The dataset is {dataset.state} and takes no releases.")
    return dataset


def public_facts(
    session: Session, principal: Principal, dataset_id: str | None
) -> PublicFacts | None:
    """Dictionary and size of the public dataset that a request names. Raises `Invalid`."""
    if dataset_id is None:
        return None
    try:
        dataset = open_dataset(session, principal, dataset_id).dataset
    except NotFound:
        raise _no_public_dataset() from None
    if dataset.visibility != "public" or dataset.state != "ready" or dataset.rows is None:
        raise _no_public_dataset()
    return PublicFacts(Schema.parse(dataset.schema), dataset.rows)


def plain_form(form: Mapping[str, Any]) -> dict[str, Any]:
    """The form with ordinary JSON numbers. Raises `Invalid` for one beyond their range."""
    return {name: _plain(value, f"/params/{_escaped(name)}") for name, value in form.items()}


def _facts(
    session: Session, principal: Principal, dataset_id: str, form: ReleaseIn, faults: _Faults
) -> _Facts:
    access = open_dataset(session, principal, dataset_id)
    dataset = accepting(access)
    assert dataset.account_id is not None
    account = repository.account(session, dataset.account_id)
    public = preview = None
    with faults.caught():
        public = public_facts(session, principal, form.public_dataset)
    with faults.caught():
        preview = ledger.preview(
            session,
            account=account,
            grant=access.grant,
            reveal_account=access.shows_budget,
            guarantee=form.guarantee.to_guarantee(),
            approximate_delta=0,
        )
    return _Facts(dataset, Accountant(account.accountant), public, preview)


def _case(facts: _Facts, preview: ledger.Preview, form: ReleaseIn, settings: Settings) -> Case:
    return Case(
        schema=Schema.parse(facts.dataset.schema),
        unit=PrivacyUnit.parse(facts.dataset.unit),
        loss=preview.loss,
        public=facts.public,
        limits=Limits(
            max_total_rows=facts.dataset.max_total_rows,
            rows=form.rows,
            memory_bytes=settings.job_memory_bytes,
            time_s=settings.job_time_limit_s,
        ),
    )


def _no_public_dataset() -> Invalid:
    return Invalid.at(
        "/public_dataset",
        "There is no public dataset of that id that is ready.",
        "Name a dataset with visibility `public` in state `ready`, or leave the field out.",
    )


def _plain(value: Any, pointer: str) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item, f"{pointer}/{_escaped(name)}") for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, f"{pointer}/{place}") for place, item in enumerate(value)]
    if isinstance(value, Decimal):
        if value and abs(value.adjusted()) > _LARGEST_EXPONENT:
            raise Invalid.at(pointer, "The number is out of range.", "Send a smaller one.")
        return float(value)
    if isinstance(value, int) and value.bit_length() > 64:
        raise Invalid.at(pointer, "The number is out of range.", "Send a smaller one.")
    return value


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
