"""The job that makes a release: a kernel here, its synthesizer in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from app.datasets import damage
from app.datasets.codes import StoredCodes, read_table
from app.datasets.models import DatasetRow
from app.engine.catalog import registry
from app.engine.catalog.registry import Entry
from app.engine.method import ExpectedError
from app.engine.privacy.certificate import Assurance, Certificate
from app.engine.privacy.journal import measurements, resolved
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.loss import Accountant, Charge, PrivacyLoss
from app.engine.privacy.queries import KernelFailure
from app.engine.privacy.session import ChildFailed, SessionEnded, SessionServer
from app.engine.privacy.source import CodeSource
from app.engine.privacy.wire import MOST_BYTES_TO_CHILD, Channel, FrameError
from app.engine.sandbox.protocol import FIT, FitTask, Sample, expected_errors_of
from app.engine.schema import PrivacyUnit, Schema
from app.engine.statements import KeptRows, Released, stated_and_pictured
from app.engine.table import PublicTable, Table
from app.jobs.evaluation import SyntheticMarginals, measure
from app.jobs.sampling import store_sample
from app.ledger.entries import ledger_hash
from app.ledger.marks import signature_of
from app.ledger.schemas import GuaranteeIn
from app.queue.context import JobContext
from app.releases import evaluations, repository, samples
from app.releases import service as releases
from app.releases.journal import StoredJournal
from app.releases.models import ReleaseRow
from app.releases.results import PICTURES
from app.releases.samples import Made
from app.sandbox.child import ChildHost, ChildUnusable
from app.sandbox.process import ChildProcess
from app.storage.blobs import BlobError, BlobStore
from app.storage.encryption import Keyring

# Name of the blob part that holds a fitted model, in the collection of its release.
MODEL = "model"
# Share of a release's progress at which its model is fitted.
FITTED = 0.9
# Share at which its first sample is stored.
STATED = 0.97


def run(context: JobContext, host: ChildHost) -> None:
    """Make the release `context.subject_id`, or continue it after a lost worker.

    The release succeeds in the same transaction that makes its first sample available. Raises
    what ended the run; the text of every such error is for the custodian alone.
    """
    try:
        _make(context, host)
    except (BlobError, KernelFailure) as error:
        # The kernel hides what it failed of from the synthesizer, and keeps it as the cause.
        cause = error.__cause__ if isinstance(error, KernelFailure) else error
        if isinstance(cause, BlobError):
            damage.note(context.database, cause.collection)
        raise


def _make(context: JobContext, host: ChildHost) -> None:
    admitted = _Admitted.read(context)
    source = StoredCodes(context.database, Keyring(context.settings), context.dataset_id)
    journal = StoredJournal(context)
    if admitted.release.evaluates is not None:
        _evaluate(context, host, admitted, source, journal)
        return
    with host.process(context.claim.memory_bytes) as child:
        context.on_interrupt(child.kill)
        model, expected = _fitted(context, child, admitted, source, journal)
        # A run after a lost worker overwrites it; nobody reads it before the release has succeeded.
        BlobStore(context.database).write(admitted.release.id, MODEL, [model], unit=context.fenced)
        context.progress(FITTED, "sampling")
        schema = resolved(source.schema, journal.entries())
        kept = KeptRows(schema)
        # A third party's process could keep more than its model. The sample is drawn in a fresh
        # process, from the stored bytes alone, so that every later sample is drawn in the same way.
        if not admitted.entry.builtin:
            child.close()
        made = store_sample(
            context,
            host,
            admitted.first_sample(schema, source.unit, model),
            samples.first_id(admitted.release.id),
            child if admitted.entry.builtin else None,
            kept.see,
        )
    _publish(context, admitted, source.unit, journal, kept, made, expected)


def _evaluate(
    context: JobContext,
    host: ChildHost,
    admitted: _Admitted,
    source: StoredCodes,
    journal: StoredJournal,
) -> None:
    """Draw the evaluated release's rows again, and measure how far they are from private ones."""
    release, schema = admitted.release, source.schema
    assert release.evaluates is not None
    model = BlobStore(context.database).read_all(release.evaluates["release"], MODEL)
    BlobStore(context.database).write(release.id, MODEL, [model], unit=context.fenced)
    kept = KeptRows(schema)
    synthetic = SyntheticMarginals(evaluations.marginals(release.evaluates, schema))

    def see(part: Table) -> None:
        kept.see(part)
        synthetic.see(part)

    made = store_sample(
        context,
        host,
        admitted.first_sample(schema, source.unit, model),
        samples.first_id(release.id),
        see=see,
    )
    context.progress(FITTED, "measuring distances")
    kernel = Kernel(_Interruptible(source, context), admitted.allowance)
    measure(kernel, journal, synthetic, context.progress)
    _publish(context, admitted, source.unit, journal, kept, made, ())


def _publish(
    context: JobContext,
    admitted: _Admitted,
    unit: PrivacyUnit,
    journal: StoredJournal,
    kept: KeptRows,
    made: Made,
    expected: Sequence[ExpectedError],
) -> None:
    context.progress(STATED, "stating")
    statement, pictures = stated_and_pictured(
        _released(unit, journal, kept, made, expected), context.check_cancelled
    )
    BlobStore(context.database).write(
        admitted.release.id, PICTURES, [pictures.to_bytes()], unit=context.fenced
    )
    certificate = admitted.certificate(unit, journal)
    # Certificate, sample and end in one transaction: nobody sees one without the others.
    with context.completing() as session:
        releases.succeeded(
            session,
            admitted.release.id,
            certificate=certificate.to_wire(),
            sample=made,
            expected_errors=expected,
            statement=statement.to_json(),
        )


@dataclass(frozen=True, slots=True)
class _Admitted:
    """The admitted release, with what its certificate states."""

    release: ReleaseRow
    entry: Entry
    accountant: Accountant
    ledger_row_hash: str
    ledger_signature: str | None
    max_total_rows: int

    @classmethod
    def read(cls, context: JobContext) -> _Admitted:
        keyring = Keyring(context.settings)
        with context.database.read() as session:
            release = repository.release(session, context.subject_id)
            account = repository.account(session, release.account_id)
            dataset = session.get_one(DatasetRow, release.dataset_id)
            return cls(
                release,
                registry.entry(release.synthesizer, context.settings.declared),
                Accountant(account.accountant),
                ledger_hash(session, account.id, release.ledger_sequence),
                signature_of(session, keyring, account.id, release.ledger_sequence),
                dataset.max_total_rows,
            )

    @property
    def allowance(self) -> PrivacyLoss:
        kind = cast(Literal["pure", "zcdp"], self.release.loss_kind)
        return PrivacyLoss(kind, self.release.loss_amount, self.release.loss_delta)

    @property
    def trusted(self) -> bool:
        """Declared when it was admitted, and still declared: the admin may have withdrawn that."""
        return self.release.assurance == self.entry.assurance == "declared"

    @property
    def uses_public(self) -> bool:
        """Whether the run is given the public table; a third party's always is."""
        if self.release.public_dataset_id is None:
            return False
        return not self.entry.ours or registry.ours(self.entry.name).uses_public != "no"

    def first_sample(self, schema: Schema, unit: PrivacyUnit, model: bytes) -> Sample:
        release = self.release
        return Sample(
            release.synthesizer,
            schema,
            unit,
            model,
            release.rows,
            samples.first_seed(release),
            self.max_total_rows,
        )

    def certificate(self, unit: PrivacyUnit, journal: StoredJournal) -> Certificate:
        release = self.release
        return Certificate.of_release(
            unit=unit,
            guarantee=GuaranteeIn.model_validate(release.guarantee).to_guarantee(),
            accountant=self.accountant,
            charge=Charge(release.charge_primary, release.charge_delta),
            allowance=self.allowance,
            journal=journal.entries(),
            synthesizer=self._method(),
            assurance=cast(Assurance, release.assurance),
            ledger_row_hash=self.ledger_row_hash,
            ledger_signature=self.ledger_signature,
        )

    def _method(self) -> dict[str, Any]:
        release = self.release
        method = {
            "name": release.synthesizer,
            "version": release.synthesizer_version,
            "params": release.params,
        }
        if release.evaluates is not None:
            method["evaluates"] = release.evaluates["release"]
        if release.public_dataset_id is not None:
            method["public_dataset"] = {
                "id": release.public_dataset_id,
                "used": self.uses_public,
            }
        return method


def _fitted(
    context: JobContext,
    child: ChildProcess,
    admitted: _Admitted,
    source: StoredCodes,
    journal: StoredJournal,
) -> tuple[bytes, tuple[ExpectedError, ...]]:
    """The model, and what it states of its own errors."""
    kernel = Kernel(_Interruptible(source, context), admitted.allowance, trusted=admitted.trusted)
    task = FitTask(
        admitted.release.synthesizer,
        admitted.release.params,
        admitted.release.seed,
        _public_table(context, admitted),
    )
    server = SessionServer(
        child.connection,
        kernel,
        journal,
        lambda fraction, stage: context.progress(FITTED * fraction, stage),
        task=task.to_json(),
        arrays=task.arrays(),
    )
    try:
        Channel(child.connection, MOST_BYTES_TO_CHILD).send(FIT)
        model = server.run()
        return model, _expected_errors(server.statement, kernel.schema)
    except SessionEnded as error:
        if isinstance(error, ChildFailed):
            error.add_note(error.detail)
        error.add_note(child.output)
        raise


def _released(
    unit: PrivacyUnit,
    journal: StoredJournal,
    kept: KeptRows,
    made: Made,
    expected: Sequence[ExpectedError],
) -> Released:
    """What the statement of how good the release is follows from: post-processing."""
    return Released(
        kept.schema,
        unit,
        [record.answer for record in measurements(journal.entries())],
        kept.rows(entities=unit.kind == "entity"),
        expected,
        made.repairs.rows / max(made.rows, 1) if made.repairs is not None else 0.0,
    )


def _expected_errors(statement: Any, schema: Schema) -> tuple[ExpectedError, ...]:
    """Raises `ChildUnusable` for a statement that cannot be read, as for any other bad answer."""
    try:
        return expected_errors_of(statement, schema)
    except FrameError as error:
        raise ChildUnusable(str(error)) from None


def _public_table(context: JobContext, admitted: _Admitted) -> PublicTable | None:
    if not admitted.uses_public:
        return None
    assert admitted.release.public_dataset_id is not None
    keyring = Keyring(context.settings)
    return read_table(context.database, keyring, admitted.release.public_dataset_id)


class _Interruptible:
    """A `CodeSource` that stops between two chunks when the run must stop."""

    def __init__(self, source: CodeSource, context: JobContext) -> None:
        self._source = source
        self._context = context

    @property
    def schema(self) -> Schema:
        return self._source.schema

    @property
    def unit(self) -> PrivacyUnit:
        return self._source.unit

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        for chunk in self._source.chunks(columns):
            self._context.check_cancelled()
            yield chunk

    def entities(self) -> Iterator[NDArray[np.uint64]]:
        for chunk in self._source.entities():
            self._context.check_cancelled()
            yield chunk

    def texts(self, column: str) -> Sequence[str]:
        return self._source.texts(column)

    def numbers(self, column: str) -> Iterator[NDArray[np.uint32]]:
        for chunk in self._source.numbers(column):
            self._context.check_cancelled()
            yield chunk
