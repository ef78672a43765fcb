"""Use-cases of samples: request more, list them, open one for download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, cast

from sqlalchemy.orm import Session

from app.database import Database
from app.datasets.models import DatasetRow
from app.engine.catalog import registry
from app.engine.catalog.registry import UnknownSynthesizer
from app.engine.method import Limits
from app.engine.method.needs import table_bytes
from app.idempotency import Attempt, find_replay, remember
from app.pages import Place
from app.problems import Conflict, Invalid, NotReady
from app.releases import repository, results, samples, service
from app.releases.dictionaries import dictionary_of
from app.releases.downloads import PART, StoredSample
from app.releases.models import ReleaseRow, SampleRow
from app.releases.schemas import SampleIn
from app.security.principals import Principal
from app.settings import Settings
from app.storage.blobs import BlobMissing, BlobStore

ACCEPTED = 202
_RETRY_AFTER_S = 2


@dataclass(frozen=True, slots=True)
class Accepted:
    """A sample, just queued or (`replayed`) queued by an earlier attempt."""

    sample_id: str
    replayed: bool


def request(
    session: Session,
    principal: Principal,
    release_id: str,
    form: SampleIn,
    attempt: Attempt | None,
    settings: Settings,
) -> Accepted:
    """Queue a sample. Raises `Invalid`, or `Conflict` where nothing can be sampled from."""
    replay = find_replay(session, attempt)
    if replay is not None:
        return Accepted(replay.resource_id, replayed=True)
    release, dataset = service.visible(session, principal, release_id)
    results.check_published(release)
    _check_form(form, release, dataset, settings)
    # The caller's own limit, whoever requested the release: the sample counts as theirs.
    samples.check_room(session, principal.id, settings)
    sample = samples.add(
        session,
        release,
        principal_id=principal.id,
        kind=form.kind,
        rows=form.rows,
        seed=form.seed,
        settings=settings,
    )
    remember(session, attempt, ACCEPTED, sample.id)
    return Accepted(sample.id, replayed=False)


def page(session: Session, release: ReleaseRow, after: Place | None, limit: int) -> list[SampleRow]:
    return repository.page_of_samples(session, release.id, after, limit)


def ready(
    database: Database, principal: Principal, sample_id: str, settings: Settings
) -> StoredSample:
    """The sample, open for reading; rows that were dropped are queued to be made again.

    Raises `NotReady` until then, `Conflict` for a sample that failed.
    """
    with database.read() as session:
        sample, _, dataset = samples.visible(session, principal, sample_id)
    if sample.state == "failed":
        raise Conflict(
            "The sample could not be made. Ask for another one, with fewer rows if it was large;"
            " if none can be made, the release's model may be damaged: run `halftone verify`."
        )
    if sample.state != "succeeded":
        raise NotReady("The sample is still being made.", retry_after_s=_RETRY_AFTER_S)
    try:
        return stored(database, sample, dataset)
    except RowsDropped:
        remake(database, sample_id, settings)
        raise


class RowsDropped(NotReady):
    """The rows were dropped; `remake` has them made again."""

    def __init__(self, sample_id: str) -> None:
        super().__init__("The sample is being made again.", retry_after_s=_RETRY_AFTER_S)
        self.sample_id = sample_id


def stored(database: Database, sample: SampleRow, dataset: DatasetRow) -> StoredSample:
    """A sample that was made, open for reading. Raises `RowsDropped`."""
    # A sample can be dropped after it was read here, so a missing blob means the same.
    file = None if sample.dropped else _open(database, sample.id)
    if file is None or sample.state != "succeeded":
        raise RowsDropped(sample.id)
    assert sample.content_sha256 is not None
    assert sample.size_bytes is not None
    return StoredSample(
        id=sample.id,
        kind=sample.kind,
        content_sha256=sample.content_sha256,
        size_bytes=sample.size_bytes,
        schema=dictionary_of(dataset),
        file=file,
    )


def _open(database: Database, sample_id: str) -> BinaryIO | None:
    try:
        return cast(BinaryIO, BlobStore(database).open(sample_id, PART))
    except BlobMissing:
        return None


def remake(database: Database, sample_id: str, settings: Settings) -> None:
    """Queue a sample of a published release whose rows were dropped."""
    with database.write() as session:
        sample = repository.sample(session, sample_id)
        release = repository.release(session, sample.release_id)
        results.check_published(release)
        samples.remake(session, sample, release, settings)


def _check_form(
    form: SampleIn, release: ReleaseRow, dataset: DatasetRow, settings: Settings
) -> None:
    if form.kind == "rows":
        samples.check_rows(form.rows, dataset.max_total_rows, settings)
        _check_memory(form.rows, release, dataset, settings)
        return
    if form.rows is not None:
        raise Invalid.at(
            "/rows", "A sample of counts has a row for each cell.", "Leave `rows` out."
        )
    if "counts" not in outputs(release.synthesizer):
        raise Invalid.at(
            "/kind",
            f"`{release.synthesizer}` makes no histogram.",
            'Ask for {"kind": "rows"}, or release with `histogram`.',
        )


def _check_memory(
    rows: int | None, release: ReleaseRow, dataset: DatasetRow, settings: Settings
) -> None:
    """Refuse, from public facts, more rows than the job could hold."""
    columns = _least_columns(release, dataset)
    allowed = settings.job_memory_bytes
    limits = Limits(dataset.max_total_rows, rows, allowed, settings.job_time_limit_s)
    if rows is not None and table_bytes(columns, limits) > allowed:
        raise Invalid.at(
            "/rows",
            f"{rows} rows would take more than the {allowed // 2**20} MiB that are allowed.",
            "Ask for fewer rows; take several samples with different seeds for more.",
        )


def _least_columns(release: ReleaseRow, dataset: DatasetRow) -> int:
    """The smallest number of columns that a sample may have, from `columns` of a built-in's form.

    Other forms have other fields for what is left out, and a third party's `columns` may mean
    anything: then it is 1.
    """
    try:
        fields = registry.ours(release.synthesizer).Params.model_fields
    except UnknownSynthesizer:
        return 1
    if "columns" not in fields:
        return 1
    return len(release.params.get("columns") or dictionary_of(dataset).columns)


def outputs(synthesizer: str) -> tuple[str, ...]:
    """Kinds of samples that a synthesizer gives; a third party may give both."""
    try:
        return registry.ours(synthesizer).outputs
    except UnknownSynthesizer:
        return ("rows", "counts")
