"""The job that makes one more sample of a release: post-processing, free of charge."""

from __future__ import annotations

from typing import Literal, cast

from app.engine.sandbox.protocol import Sample
from app.engine.schema import PrivacyUnit, Schema
from app.jobs.fit import MODEL
from app.jobs.sampling import store_sample
from app.queue.context import JobContext
from app.releases import repository, results, samples
from app.sandbox.child import ChildHost
from app.storage.blobs import BlobStore


def run(context: JobContext, host: ChildHost) -> None:
    """Make the sample `context.subject_id`; the same seed gives the same rows."""
    request = _request(context)
    made = store_sample(context, host, request, context.subject_id)
    with context.completing() as session:
        samples.succeeded(session, context.subject_id, made)


def _request(context: JobContext) -> Sample:
    with context.database.read() as session:
        sample = repository.sample(session, context.subject_id)
        release = repository.release(session, sample.release_id)
        dataset = repository.dataset(session, release.dataset_id)
        assert dataset is not None
        schema = results.modelled(session, release, Schema.parse(dataset.schema))
    return Sample(
        name=release.synthesizer,
        schema=schema,
        unit=PrivacyUnit.parse(dataset.unit),
        model=BlobStore(context.database).read_all(release.id, MODEL),
        rows=sample.rows,
        seed=sample.seed,
        most_rows=dataset.max_total_rows,
        kind=cast(Literal["rows", "counts"], sample.kind),
    )
