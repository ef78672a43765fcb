"""What a report is made of: all of it is published with the release already."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy.orm import Session

from app.database import Database, format_time
from app.datasets.models import DatasetRow
from app.engine.catalog import registry
from app.engine.catalog.registry import UnknownSynthesizer
from app.engine.privacy.loss import Accountant, Charge
from app.engine.statements import Pictures
from app.ledger import as_epsilon
from app.ledger.models import AccountRow
from app.ledger.schemas import GuaranteeIn
from app.releases import repository, results, samples
from app.releases.models import ReleaseRow
from app.releases.results import PICTURES
from app.storage.blobs import BlobMissing, BlobStore

# What an attacker may have believed before, of which the page says what it can become.
_BELIEFS = (0.01, 0.1, 0.5)


@dataclass(frozen=True, slots=True)
class Odds:
    """What an attacker may believe before and, at most, after seeing all that the release gave."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Facts:
    """A release as its report tells it. `pictures` and `statement` are None for a release of an
    earlier version, which kept none. epsilon, delta: what the guarantee comes to."""

    release: str
    dataset: str
    synthesizer: str
    synthesizer_version: str
    title: str
    reference: str
    made: str
    rows: int | None
    guarantee: Mapping[str, str]
    epsilon: str | None
    delta: str
    unit: Mapping[str, Any]
    certificate: Mapping[str, Any]
    statement: Mapping[str, Any] | None
    pictures: Pictures | None

    @property
    def odds(self) -> list[Odds]:
        """By Bayes' rule, since the odds change by a factor of at most e^epsilon (Wasserman and
        Zhou 2010, section 2.4; Kasiviswanathan and Smith 2014), but for a chance of delta."""
        if self.epsilon is None:
            return []
        grown = math.exp(min(float(Decimal(self.epsilon)), 700.0))
        return [Odds(before, before * grown / (1 - before + before * grown)) for before in _BELIEFS]


def facts_of(
    session: Session, database: Database, release: ReleaseRow, dataset: DatasetRow
) -> Facts:
    """The facts of a published release. Raises `NotReady` or `Conflict` for other releases."""
    certificate = results.certificate(release)
    account = session.get_one(AccountRow, release.account_id)
    first = repository.sample(session, samples.first_id(release.id))
    epsilon, delta = _booked(release, Accountant(account.accountant))
    title, reference = _method(release.synthesizer)
    assert release.finished_at is not None
    return Facts(
        release=release.id,
        dataset=dataset.name,
        synthesizer=release.synthesizer,
        synthesizer_version=release.synthesizer_version,
        title=title,
        reference=reference,
        made=format_time(release.finished_at),
        rows=first.rows,
        guarantee=release.guarantee,
        epsilon=epsilon,
        delta=delta,
        unit=dataset.unit,
        certificate=certificate,
        statement=release.statement,
        pictures=_pictures(session, database, release.id),
    )


def _pictures(session: Session, database: Database, release_id: str) -> Pictures | None:
    try:
        # With the request's own connection: each request holds one at most.
        stored = BlobStore(database).read_within(session, release_id, PICTURES)
    except BlobMissing:
        return None
    return Pictures.from_bytes(stored)


def _booked(release: ReleaseRow, accountant: Accountant) -> tuple[str | None, str]:
    charge = Charge(release.charge_primary, release.charge_delta)
    if accountant is Accountant.BASIC:
        wire = charge.as_wire(accountant)
        return wire["epsilon"], wire["delta"]
    guarantee = GuaranteeIn.model_validate(release.guarantee).to_guarantee()
    told = as_epsilon.requested(charge, guarantee, accountant)
    return (None, "0") if told is None else (told["epsilon"], told["delta"])


def _method(name: str) -> tuple[str, str]:
    try:
        synthesizer = registry.ours(name)
    except UnknownSynthesizer:
        return name, ""
    return synthesizer.title, synthesizer.reference
