"""What a release by one synthesizer would cost and need, and what prevents it.

One pass over public facts, before the transaction that admits: the form is read, the guarantee
is converted with the part of delta that the form sets aside, and the synthesizer forecasts the
run. If it has to, it also reads the rows of a public dataset.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from sqlalchemy.orm import Session

from app.access.permission import Access
from app.datasets.public_rows import PublicRowsGone
from app.engine.catalog.registry import Entry
from app.engine.method import Limits, Preflight, Problem
from app.engine.sandbox.protocol import Check
from app.ledger import admission
from app.ledger.terms import Terms
from app.problems import FieldError, Invalid
from app.releases import samples
from app.releases.catalogue import Catalogue, SynthesizerChecks
from app.releases.facts import Facts, PublicDataset, accepting, no_public_dataset
from app.releases.forms import plain_form
from app.releases.schemas import ReleaseIn
from app.settings import Settings

_NO_APPROXIMATE_STEPS = FieldError(
    "/guarantee",
    "The run would take approximate steps (finding values or keys), for which the dataset's account"
    " has set no delta aside.",
    "Use params that need no such steps, such as `columns` with declared values; or let the"
    " custodian set `delta_for_approximate` by PUT /v1/datasets/{id}/budget.",
)


@dataclass(frozen=True, slots=True)
class Costing:
    """The outcome: with `problems` the release is refused and the rest may be missing.

    why: why the synthesizer was picked, None where the request names it or none could run.
    """

    entry: Entry | None
    params: dict[str, Any]
    terms: Terms | None
    preflight: Preflight | None
    problems: tuple[FieldError, ...]
    why: str | None = None

    @property
    def charge(self) -> dict[str, str] | None:
        """What would be booked, in the account's own terms."""
        return None if self.terms is None else self.terms.charge.as_wire(self.terms.accountant)

    @property
    def charge_as_epsilon(self) -> dict[str, str] | None:
        return None if self.terms is None else self.terms.charge_as_epsilon

    @property
    def expected_error(self) -> float | None:
        return None if self.preflight is None else _finite(self.preflight.expected_error)

    @property
    def least_expected_error(self) -> float | None:
        least = None if self.preflight is None else self.preflight.least_expected_error
        return self.expected_error if least is None else _finite(least)


def _finite(error: float) -> float | None:
    # JSON has no infinity.
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
            faults = error.errors or [FieldError("", error.detail, "")]
            self.found += [fault for fault in faults if fault not in self.found]


@dataclass(frozen=True, slots=True)
class _Forecast:
    """What a synthesizer forecasts, and the terms that it was given."""

    params: dict[str, Any]
    terms: Terms
    check: Check
    preflight: Preflight
    looks_at_public: bool


def cost_of(facts: Facts, catalogue: Catalogue, form: ReleaseIn, settings: Settings) -> Costing:
    """Cost a request that names its synthesizer."""
    faults = _Faults(list(facts.problems))
    entry: Entry | None = None
    params: dict[str, Any] = {}
    forecast: _Forecast | None = None
    with faults.caught():
        samples.check_rows(form.rows, facts.max_total_rows, settings)
    with faults.caught():
        entry = catalogue.entry(form.synthesizer)
        params = plain_form(form.params)
    if entry is not None and not faults.found:
        with faults.caught(), catalogue.checks(entry) as method:
            forecast = _forecast(method, entry, params, facts, form, settings)
    if entry is None or forecast is None:
        terms = None
        with faults.caught():
            terms = terms_of(facts, form)
        return Costing(entry, params, terms, None, tuple(faults.found))
    if forecast.terms.approximate_delta and not facts.takes_approximate:
        faults.found.append(_NO_APPROXIMATE_STEPS)
    faults.add(forecast.preflight.problems)
    # Last, and only if all else holds: it is the one check that reads rows.
    if forecast.looks_at_public and facts.public is not None and not faults.found:
        with faults.caught():
            faults.add(_public_problems(catalogue, entry, forecast, facts.public))
    return Costing(entry, forecast.params, forecast.terms, forecast.preflight, tuple(faults.found))


def terms_of(facts: Facts, form: ReleaseIn, delta_share: float = 0.0) -> Terms:
    """The guarantee as the account books it. Raises `Invalid`.

    delta_share: the share of its delta that the run sets aside for approximate steps.
    """
    guarantee = form.guarantee.to_guarantee()
    # Exact, as a fraction: in floating point a share of all the delta could round to more than it.
    for_approximate = math.floor((guarantee.delta or 0) * Fraction(delta_share))
    return Terms.of(guarantee, facts.accountant, for_approximate)


def _forecast(
    method: SynthesizerChecks,
    entry: Entry,
    params: dict[str, Any],
    facts: Facts,
    form: ReleaseIn,
    settings: Settings,
) -> _Forecast:
    # The form comes first: the part of delta that it sets aside decides what the guarantee costs.
    read = method.read_form(params, facts.schema)
    terms = terms_of(facts, form, read.delta_share)
    check = Check(
        name=entry.name,
        form=params,
        schema=facts.schema,
        unit=facts.unit,
        loss=terms.loss,
        public=None if facts.public is None else facts.public.facts,
        limits=Limits(
            max_total_rows=facts.max_total_rows,
            rows=form.rows,
            memory_bytes=settings.job_memory_bytes,
            time_s=settings.job_time_limit_s,
        ),
    )
    preflight = method.check(check)
    return _Forecast(read.params or {}, terms, check, preflight, read.looks_at_public)


def _public_problems(
    catalogue: Catalogue, entry: Entry, forecast: _Forecast, public: PublicDataset
) -> tuple[Problem, ...]:
    check = replace(forecast.check, form=forecast.params)
    try:
        return catalogue.check_public(entry, check, public.rows)
    except PublicRowsGone:
        raise no_public_dataset() from None


def preview(session: Session, access: Access, terms: Terms) -> admission.Preview:
    """Whether the budget covers these terms; nothing is charged."""
    return admission.preview(
        session,
        account=accepting(access),
        grant=access.grant,
        reveal_account=access.shows_budget,
        terms=terms,
    )
