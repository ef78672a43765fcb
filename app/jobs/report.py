"""The job of a report: compares the release's first sample, made again, with the exact rows.

A third party's model is sampled in a process of its own, which ends before an exact row is
read; the comparison runs in the worker, in the service's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.datasets.models import DatasetRow
from app.engine.catalog import registry
from app.engine.marginals import Marginal
from app.engine.method import CountsTable
from app.engine.privacy.journal import Record
from app.engine.privacy.queries import Count, Measurement
from app.engine.sandbox.protocol import Sample, expected_errors_of
from app.engine.schema import PrivacyUnit, Schema
from app.jobs.fit import MODEL
from app.jobs.sampling import sampled
from app.queue.context import JobContext
from app.queue.jobs import JobCancelled
from app.releases import repository as releases
from app.releases import results, samples
from app.releases.models import ReleaseRow
from app.reports import repository, service
from app.reports.combinations import PublishedCombinations
from app.reports.comparison import Measured, Subject, compared
from app.reports.evaluation.evaluating import evaluated
from app.reports.evaluation.form import ReportIn
from app.reports.exact import ExactRows
from app.reports.synthetic import SyntheticRows
from app.sandbox.child import ChildHost
from app.storage.blobs import BlobStore
from app.storage.encryption import Keyring

# Share of a report's progress at which the synthetic rows have been made.
SAMPLED = 0.2
# Share at which marginals have been compared, and the evaluation begins.
COMPARED = 0.5


def run(context: JobContext, host: ChildHost) -> None:
    """Make the exact part of the report `context.subject_id`, which is for the custodian alone."""
    published = _Published.read(context)
    context.progress(0.0, "sampling")
    # Sampled first: a third party's process has ended before the first exact row is read.
    synthetic = _synthetic(context, host, published)
    keyring = Keyring(context.settings)
    real = ExactRows.stored(
        context.database, keyring, context.dataset_id, published.schema, context.check_cancelled
    )
    columns = tuple(synthetic.codes)
    exact = compared(
        real, synthetic, published.subject(columns), _progress(context, SAMPLED, COMPARED)
    )
    evaluation = evaluated(
        real,
        synthetic,
        published.schema,
        published.unit,
        columns,
        published.choices,
        _progress(context, COMPARED, 1.0),
    )
    exact = exact.model_copy(update={"evaluation": evaluation})
    with context.completing() as session:
        dataset = session.get_one(DatasetRow, context.dataset_id)
        # Exact figures are as private as the rows, so they are sealed with the dataset's own key.
        cipher = keyring.cipher(dataset.id, dataset.wrapped_key)
        service.succeeded(session, context.database, context.subject_id, exact, cipher)


def _progress(context: JobContext, start: float, end: float) -> Callable[[float, str], None]:
    return lambda fraction, stage: context.progress(start + (end - start) * fraction, stage)


@dataclass(frozen=True)
class _Published:
    """A published release, with what it published."""

    release: ReleaseRow
    schema: Schema
    unit: PrivacyUnit
    max_total_rows: int
    model: bytes
    records: Sequence[Record]
    choices: ReportIn

    @classmethod
    def read(cls, context: JobContext) -> _Published:
        with context.database.read() as session:
            report = repository.get(session, context.subject_id)
            # Dropped between the claim and here.
            if report is None:
                raise JobCancelled
            release = releases.release(session, report.release_id)
            dataset = session.get_one(DatasetRow, release.dataset_id)
            records = results.records(session, release)
            schema = results.modelled(session, release, Schema.parse(dataset.schema))
        return cls(
            release,
            schema,
            PrivacyUnit.parse(dataset.unit),
            dataset.max_total_rows,
            BlobStore(context.database).read_all(release.id, MODEL),
            records,
            ReportIn.model_validate(report.choices or {}),
        )

    @property
    def first_sample(self) -> Sample:
        release = self.release
        return Sample(
            release.synthesizer,
            self.schema,
            self.unit,
            self.model,
            release.rows,
            samples.first_seed(release),
            self.max_total_rows,
        )

    def subject(self, columns: tuple[str, ...]) -> Subject:
        stated = {"expected_errors": self.release.expected_errors or []}
        model = self._built_in_model()
        axes = getattr(model, "axes", None)
        return Subject(
            self.schema,
            self.unit,
            columns,
            _measured(self.records, self.schema, self.unit, columns),
            expected_errors_of(stated, self.schema),
            _published_combinations(model),
            {} if axes is None else axes.groupings,
        )

    def _built_in_model(self) -> Any:
        """For the cells and counts that it published; None of a third party's method."""
        try:
            synthesizer = registry.builtin(self.release.synthesizer)
        except registry.UnknownSynthesizer:
            return None
        return synthesizer.load(self.schema, self.unit, self.model)


def _published_combinations(model: Any) -> PublishedCombinations | None:
    # Methods are imported when they are first used, so that a worker starts at once.
    from app.engine.synthesizers.aggregate_seeded.model import AggregateSeededModel

    if not isinstance(model, AggregateSeededModel):
        return None
    return PublishedCombinations(model.layout, model.aggregates)


def _synthetic(context: JobContext, host: ChildHost, published: _Published) -> SyntheticRows:
    with sampled(context, host, published.first_sample) as table:
        assert not isinstance(table, CountsTable)
        return SyntheticRows.of(table, published.schema)


def _measured(
    records: Sequence[Record], schema: Schema, unit: PrivacyUnit, columns: Sequence[str]
) -> tuple[Measured, ...]:
    """The marginals of modelled columns that were measured, each once, in order."""
    found: dict[tuple[Any, ...], Measured] = {}
    for table in (record.answer for record in records):
        if not isinstance(table, Measurement) or not isinstance(table.count, Count):
            continue
        count = table.count
        if not count.columns or not set(count.columns) <= set(columns):
            continue
        own = {name: schema.column(name).grouping for name in count.columns}
        marginal = Marginal({name: count.groupings.get(name, own[name]) for name in own})
        # Where entities are weighted, the noisy table does not count rows, so it has no exact
        # counterpart.
        counts_rows = count.contribution.rule == "rows" or unit.kind == "row"
        noisy = table.values.reshape(-1) if counts_rows else None
        found.setdefault(tuple(marginal.groupings.items()), Measured(marginal, noisy))
    return tuple(found.values())
