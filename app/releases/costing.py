"""What a release would cost and need, and what stands in its way: public facts alone.

Nothing here reads a private dataset's rows, their number, or anything made from them: only
its dictionary, unit and declared bounds, and the rows of a public dataset. All of it happens
before the transaction that admits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlalchemy.orm import Session

from app.access.permission import Access, open_dataset
from app.database import Database
from app.datasets.models import DatasetRow
from app.datasets.public_rows import PublicRows, PublicRowsGone
from app.engine.catalog import registry
from app.engine.catalog.auto import AUTO, Request, choices, form_for
from app.engine.catalog.registry import Entry
from app.engine.method import Limits, Preflight, Problem, PublicFacts
from app.engine.privacy.accounting import GuaranteeNotAccepted, open_guarantee
from app.engine.privacy.loss import Accountant, Charge, Guarantee, PrivacyLoss
from app.engine.schema import PrivacyUnit
from app.ledger import admission
from app.ledger.models import AccountRow
from app.problems import Conflict, FieldError, Invalid, NotFound
from app.releases import samples
from app.releases.catalogue import Case, Catalogue
from app.releases.dictionaries import dictionary_of
from app.releases.schemas import ReleaseIn
from app.security.principals import Principal
from app.settings import Settings

_WISHES = frozenset({"/params/target", "/public_dataset"})
"""What methods that come later would leave out where it is at fault."""

_NO_APPROXIMATE_STEPS = FieldError(
    "/guarantee",
    "The run would take approximate steps (finding values or keys), for which the dataset's account"
    " has set no delta aside.",
    "Use params that do without, such as `columns` with declared values; or ask for a dataset with"
    " `delta_for_approximate`.",
)
_LARGEST_EXPONENT = 300
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Terms:
    """What the account would book for the guarantee, and the loss that the session opens with.

    `approximate_delta` is the part of the guarantee's delta, in its units, that the session
    sets aside for approximate steps.
    """

    guarantee: Guarantee
    accountant: Accountant
    approximate_delta: int
    charge: Charge
    loss: PrivacyLoss

    @classmethod
    def of(cls, guarantee: Guarantee, accountant: Accountant, delta_share: float = 0.0) -> Terms:
        """Raises `Invalid` for a guarantee that the accountant does not take."""
        aside = math.floor((guarantee.delta or 0) * Fraction(delta_share))
        try:
            return cls(guarantee, accountant, aside, *open_guarantee(guarantee, accountant, aside))
        except GuaranteeNotAccepted as error:
            raise Invalid.at(error.pointer, error.message, error.remedy) from None


@dataclass(frozen=True, slots=True)
class Costing:
    """The outcome: with `problems` the release is refused and the rest may be missing.

    `why` tells why the synthesizer was picked, None where the request names it or none could
    be picked.
    """

    entry: Entry | None
    why: str | None
    params: dict[str, Any]
    terms: Terms | None
    preflight: Preflight | None
    problems: tuple[FieldError, ...]

    @property
    def charge(self) -> dict[str, str] | None:
        """What would be booked, in the account's own terms."""
        return None if self.terms is None else self.terms.charge.as_wire(self.terms.accountant)

    @property
    def expected_error(self) -> float | None:
        return None if self.preflight is None else _told(self.preflight.expected_error)

    @property
    def least_expected_error(self) -> float | None:
        least = None if self.preflight is None else self.preflight.least_expected_error
        return self.expected_error if least is None else _told(least)


def _told(error: float) -> float | None:
    return error if math.isfinite(error) else None


@dataclass
class _Faults:
    """Collects what is wrong, so that a request learns all of it at once."""

    found: list[FieldError] = field(default_factory=list)

    def add(self, problems: Iterable[Problem]) -> None:
        self.found += [FieldError(each.pointer, each.message, each.remedy) for each in problems]

    @contextmanager
    def caught(self) -> Iterator[None]:
        try:
            yield
        except Invalid as error:
            self.found += error.errors or [FieldError("", error.detail, "")]


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read in one snapshot, before any synthesizer is asked, and what is wrong yet.

    `takes_approximate`: whether the account has any delta for approximate steps at all.
    """

    dataset: DatasetRow
    public: PublicFacts | None
    terms: Terms | None
    takes_approximate: bool
    problems: tuple[FieldError, ...]


def read_facts(session: Session, access: Access, principal: Principal, form: ReleaseIn) -> Facts:
    """The public facts of a request. Raises `Conflict` for a dataset without releases."""
    account = accepting(access)
    faults = _Faults()
    public = terms = None
    with faults.caught():
        public = public_facts(session, principal, form.public_dataset)
    with faults.caught():
        terms = Terms.of(form.guarantee.to_guarantee(), Accountant(account.accountant))
    is_zcdp = Accountant(account.accountant) is Accountant.ZCDP
    takes_approximate = not is_zcdp or account.delta_for_approximate > 0
    return Facts(access.dataset, public, terms, takes_approximate, tuple(faults.found))


def cost(
    facts: Facts, catalogue: Catalogue, form: ReleaseIn, database: Database, settings: Settings
) -> Costing:
    """Cost a request: its form and limits, and the synthesizer's own check of them. `database` is
    opened for the rows of a public dataset alone.

    Where none is named, the first that could run is picked; if none could, what stands in the
    way of the first is told, and no reason for a choice. A wish that cannot be met is told too:
    the next might run, but only because it leaves the wish out. So is a public dataset beside
    which none can run that reads it, where a better method could without it.
    """
    if form.synthesizer != AUTO:
        return _cost(facts, catalogue, form, database, settings)
    try:
        params = catalogue.auto_params(plain_form(form.params))
    except Invalid as error:
        return Costing(None, None, {}, facts.terms, None, (*facts.problems, *error.errors))
    refused: list[Costing] = []
    request = Request(
        dictionary_of(facts.dataset),
        PrivacyUnit.parse(facts.dataset.unit),
        params,
        None if facts.terms is None else facts.terms.loss,
        facts.public,
    )
    for choice in choices(request):
        named = form.model_copy(
            update={
                "synthesizer": choice.synthesizer,
                "params": form_for(choice.synthesizer, params),
            }
        )
        costed = replace(_cost(facts, catalogue, named, database, settings), why=choice.why)
        if not costed.problems:
            found = _without_public(costed, facts, catalogue, form, database, settings)
            if found is not None and found in [each.entry for each in refused]:
                told = (*refused[0].problems, _better_without(found))
                return replace(refused[0], why=None, problems=told)
            return replace(costed, why=_why(costed, refused))
        refused.append(costed)
        if any(problem.pointer in _WISHES for problem in refused[0].problems):
            break
    return replace(refused[0], why=None)


def _without_public(
    costed: Costing,
    facts: Facts,
    catalogue: Catalogue,
    form: ReleaseIn,
    database: Database,
    settings: Settings,
) -> Entry | None:
    """What would be picked without the public dataset, where what is picked does not read it."""
    assert costed.entry is not None
    reads = registry.ours(costed.entry.name).uses_public != "no"
    if form.public_dataset is None or reads:
        return None
    alone = form.model_copy(update={"public_dataset": None})
    return cost(replace(facts, public=None), catalogue, alone, database, settings).entry


def _better_without(entry: Entry) -> FieldError:
    return FieldError(
        "/public_dataset",
        f"No method that learns from the public dataset can run here; `{entry.name}` could without"
        " it.",
        "Leave the field out, or name a smaller public dataset.",
    )


def _why(picked: Costing, refused: Sequence[Costing]) -> str:
    """Why it was picked, and what stood in the way of those before it."""
    passed_over = (
        f"`{each.entry.name}` cannot run here ({each.problems[0].message.rstrip('.')})"
        for each in refused
        if each.entry is not None
    )
    return "; ".join((*passed_over, picked.why or ""))


def _cost(
    facts: Facts, catalogue: Catalogue, form: ReleaseIn, database: Database, settings: Settings
) -> Costing:
    faults = _Faults(list(facts.problems))
    with faults.caught():
        samples.check_rows(form.rows, facts.dataset.max_total_rows, settings)
    entry, params = None, {}
    with faults.caught():
        entry = catalogue.entry(form.synthesizer)
        params = plain_form(form.params)
    terms, preflight = facts.terms, None
    if entry is not None and terms is not None and not faults.found:
        with faults.caught():
            case = _case(facts, terms.loss, form, settings)
            checked = catalogue.check(entry, params, case)
            if checked.delta_share:
                terms = Terms.of(terms.guarantee, terms.accountant, checked.delta_share)
                case = replace(case, loss=terms.loss)
                checked = catalogue.check(entry, params, case)
                if terms.approximate_delta and not facts.takes_approximate:
                    faults.found.append(_NO_APPROXIMATE_STEPS)
            params, preflight = checked.params or {}, checked.preflight
            faults.add(preflight.problems)
            if form.public_dataset is not None and checked.looks_at_public and not faults.found:
                rows = PublicRows(database, settings, form.public_dataset)
                faults.add(_public_problems(catalogue, entry, params, case, rows))
    return Costing(entry, None, params, terms, preflight, tuple(faults.found))


def _public_problems(
    catalogue: Catalogue, entry: Entry, params: dict[str, Any], case: Case, rows: PublicRows
) -> tuple[Problem, ...]:
    try:
        return catalogue.check_public(entry, params, case, rows)
    except PublicRowsGone:
        raise _no_public_dataset() from None


def preview(session: Session, access: Access, terms: Terms) -> admission.Preview:
    """What the budget would say to these terms; nothing is charged."""
    return admission.preview(
        session,
        account=accepting(access),
        grant=access.grant,
        reveal_account=access.shows_budget,
        guarantee=terms.guarantee,
        approximate_delta=terms.approximate_delta,
    )


def accepting(access: Access) -> AccountRow:
    """The account to charge, if the dataset takes releases. Raises `Conflict`."""
    dataset, account = access.dataset, access.account
    if account is None:
        raise Conflict(
            "A public dataset has no budget and takes no releases; name it as `public_dataset`"
            " in a release of a private one."
        )
    if dataset.closed:
        raise Conflict("The dataset is closed: a newer one with the same content took over.")
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
        dataset = open_dataset(session, principal, dataset_id).dataset
    except NotFound:
        raise _no_public_dataset() from None
    if dataset.visibility != "public" or dataset.state != "ready" or dataset.rows is None:
        raise _no_public_dataset()
    return PublicFacts(dictionary_of(dataset), dataset.rows)


def plain_form(form: Mapping[str, Any]) -> dict[str, Any]:
    """The form with ordinary JSON numbers.

    Raises `Invalid` for numbers beyond their range, and for text that cannot be written.
    """
    plain: dict[str, Any] = _plain(dict(form), "/params")
    return plain


def _case(facts: Facts, loss: PrivacyLoss, form: ReleaseIn, settings: Settings) -> Case:
    return Case(
        schema=dictionary_of(facts.dataset),
        unit=PrivacyUnit.parse(facts.dataset.unit),
        loss=loss,
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


def _plain(value: Any, pointer: str, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise Invalid.at("/params", "The form is nested too deeply.", "Send a flatter one.")
    if isinstance(value, dict):
        return {
            name: _plain(item, f"{pointer}/{_escaped(name)}", depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_plain(item, f"{pointer}/{place}", depth + 1) for place, item in enumerate(value)]
    if isinstance(value, Decimal):
        if value and abs(value.adjusted()) > _LARGEST_EXPONENT:
            raise Invalid.at(pointer, "The number is out of range.", "Send a smaller one.")
        return float(value)
    if isinstance(value, int) and value.bit_length() > 64:
        raise Invalid.at(pointer, "The number is out of range.", "Send a smaller one.")
    return value


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
