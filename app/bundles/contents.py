"""What a bundle is made of, read from the store before its first byte is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from app.bundles.citation import Citation
from app.database import Database
from app.datasets.models import DatasetRow
from app.engine.privacy.journal import Record
from app.engine.schema import Schema
from app.ledger import proof
from app.problems import Invalid
from app.releases import certificates, repository, results, samples
from app.releases.dictionaries import dictionary_of
from app.releases.models import ReleaseRow, SampleRow
from app.reports import page
from app.reports.page import Facts
from app.signing.canonical import signed
from app.signing.keys import SigningKey

# A bundle is one download: more tables than this are better taken by themselves.
MOST_SAMPLES = 20


@dataclass(frozen=True, slots=True)
class Subject:
    """What a bundle is asked of: a release, and which of its samples (None: the first one).

    `citation` is a publication's; without one the release speaks for itself. `shows_totals`: with
    the totals of the account, in certificate and ledger proof.
    """

    release: ReleaseRow
    dataset: DatasetRow
    sample_ids: Sequence[str] | None = None
    citation: Citation | None = None
    shows_totals: bool = False


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a bundle says, but for the bytes of its tables.

    `certificate` is signed; `schema` has the values that the release discovered.
    """

    release_id: str
    certificate: Mapping[str, Any]
    dictionary: Mapping[str, Any]
    schema: Schema
    rows: Mapping[str, int]
    records: Sequence[Record]
    statement: Mapping[str, Any] | None
    report: Facts | None
    proof: Mapping[str, Any]
    citation: Citation


def chosen(
    session: Session, release: ReleaseRow, sample_ids: Sequence[str] | None
) -> list[SampleRow]:
    """The samples of a bundle, oldest first; the release's first one by default.

    Raises `Invalid` for one that the release does not have, or that was not made.
    """
    results.check_published(release)
    wanted = [samples.first_id(release.id)] if sample_ids is None else list(sample_ids)
    if not 1 <= len(set(wanted)) <= MOST_SAMPLES:
        raise Invalid.at(
            "/query/samples",
            f"A bundle holds 1 to {MOST_SAMPLES} samples.",
            "Name fewer; further samples can be downloaded by themselves.",
        )
    found = repository.made_samples(session, release.id, wanted)
    missing = sorted(set(wanted) - {sample.id for sample in found})
    if missing:
        raise Invalid.at(
            "/query/samples",
            f"The release has no finished sample {missing[0]}.",
            "Name samples of this release that have succeeded.",
        )
    return found


def read(
    session: Session,
    database: Database,
    subject: Subject,
    rows: Sequence[SampleRow],
    key: SigningKey,
) -> Contents:
    """The contents of a bundle of these samples (see `chosen`)."""
    release, dataset = subject.release, subject.dataset
    certificate = certificates.certificate(
        session, release, dataset, rows, shows_totals=subject.shows_totals
    )
    report = page.facts_of(session, database, release, dataset)
    return Contents(
        release_id=release.id,
        certificate=signed(certificate, key),
        dictionary=dataset.schema,
        schema=results.modelled(session, release, dictionary_of(dataset)),
        rows={sample.id: sample.rows or 0 for sample in rows},
        records=results.records(session, release),
        statement=None if release.statement is None else results.statement(release),
        # Renaming the dataset changes no bundle.
        report=replace(report, dataset=certificate["dataset"]["name"]),
        proof=proof.of_release(
            session,
            release.account_id,
            release.id,
            head=release.ledger_head or release.ledger_sequence,
            shows_totals=subject.shows_totals,
        ),
        citation=subject.citation or Citation.of_release(certificate),
    )
