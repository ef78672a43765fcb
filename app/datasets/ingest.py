"""The first of three places that read private rows: the job that encodes and stores an upload.

Everything is written under the job's fencing number, block by block, into the dataset's own
blob collection; the last transaction makes it visible. A run first deletes what an earlier one
left.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.database import now
from app.datasets import blocks, private_facts, recognition, repository
from app.datasets.bounding import Bounding, EntityTally
from app.datasets.master_key import require_same_key
from app.datasets.models import DatasetRow
from app.datasets.report import ingest_report
from app.datasets.staging import StagedFile, StagingArea
from app.engine.encoding import ContentHasher, EncodedBlock, Encoder, EncodeTotals
from app.engine.files import FileOptions, RowProblem, TableError, TableReader, open_table
from app.engine.schema import PrivacyUnit, Schema
from app.queue.context import JobContext
from app.storage import inventory
from app.storage.blobs import PIECE_BYTES, BlobStore, stored_bytes
from app.storage.encryption import Cipher, Keyring

log = logging.getLogger("halftone.ingest")

ID_KEY_BYTES = 32


class Superseded(Exception):
    """The dataset no longer needs this run: it was erased, or another run finished it."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a run works from, read in its first transaction."""

    schema: Schema
    unit: PrivacyUnit
    max_total_rows: int
    staged: StagedFile
    options: FileOptions
    content_key: bytes
    cipher: Cipher | None
    room_bytes: int


# The bytes that a principal stores, by the principal's id; samples count too.
# How many rows of a file may be read for each that the dataset may have.
MOST_READ = 10
UsedBytes = Callable[[Session, str], int]


def run(job: JobContext, used_bytes: UsedBytes) -> None:
    """Encode and store the staged upload of `job.dataset_id`; ends as ready or rejected.

    Raises `JobInterrupted` if the run must stop. Running it again is safe at any point.
    """
    try:
        _Ingest(job, used_bytes).run()
    except Superseded:
        log.info("ingest of %s is no longer needed", job.dataset_id)


def failed(session: Session, dataset_id: str) -> None:
    """The job ended for good without a result: it ran out of time, memory or retries."""
    row = repository.get(session, dataset_id)
    if row is None or row.state != "ingesting":
        return
    problem = RowProblem(
        None,
        None,
        None,
        "The ingest was stopped by its limit of time or memory, or by a fault of the service.",
        "Send the data again; split a very large file, or ask the operator to raise the limits.",
    )
    schema = Schema.parse(row.schema)
    nothing = EncodeTotals(violations=[0] * len(schema.constraints))
    # In the clear, since there may be no key to seal it with: it says nothing of the rows.
    _reject(row, ingest_report(schema, nothing, None, problems=[problem]), None)


class _Ingest:
    def __init__(self, job: JobContext, used_bytes: UsedBytes) -> None:
        self._job = job
        self._used_bytes = used_bytes
        self._blobs = BlobStore(job.database)
        self._staging = StagingArea(job.settings)
        self._dataset_id = job.dataset_id

    def run(self) -> None:
        plan = self._begin()
        self._blobs.delete(self._dataset_id, unit=self._unit)
        encoder = Encoder(plan.schema, plan.unit)
        table: _Table | None = None
        reader: TableReader | None = None
        try:
            with self._staging.reader(plan.staged) as file:
                reader = open_table(file, plan.options, plan.schema.names)
                encoder = Encoder(plan.schema, plan.unit, reader.layout)
                table = _Table(self, plan)
                content = self._store(file, plan, reader, encoder, table)
            if encoder.totals.problems.count:
                raise TableError([])
            if not encoder.totals.rows_kept:
                raise _no_rows(encoder.totals.dropped_without_id)
            self._accept(plan, reader, encoder, table, content)
        except TableError as error:
            self._refuse(
                plan,
                ingest_report(
                    plan.schema,
                    encoder.totals,
                    reader,
                    problems=error.problems,
                    problem_count=error.count,
                ),
            )
        # After the commit: until then a run after a lost worker needs the file.
        self._staging.remove(plan.staged.name)

    def _begin(self) -> _Plan:
        settings = self._job.settings
        keyring = Keyring(settings)
        with self._unit() as session:
            row = _awaited(session, self._dataset_id)
            assert row.staged is not None
            require_same_key(session, keyring)
            # A new key for each run: what an earlier run left cannot be read any more.
            row.wrapped_key = keyring.new_key(row.id)
            options = FileOptions.parse(row.file_options, settings.max_upload_bytes)
            # Without what an earlier run of this job left, which is deleted next.
            used = self._used_bytes(session, row.owner_id) - stored_bytes(session, row.id)
            return _Plan(
                schema=Schema.parse(row.schema),
                unit=PrivacyUnit.parse(row.unit),
                max_total_rows=row.max_total_rows,
                staged=StagedFile.from_wire(row.staged),
                options=options,
                content_key=recognition.content_key(session, keyring),
                cipher=keyring.cipher(row.id, row.wrapped_key),
                room_bytes=settings.max_stored_bytes - used,
            )

    @contextmanager
    def _unit(self) -> Iterator[Session]:
        """A fenced unit of work that also checks that the dataset still waits for this run."""
        with self._job.fenced() as session:
            _awaited(session, self._dataset_id)
            yield session

    def _store(
        self,
        file: BinaryIO,
        plan: _Plan,
        reader: TableReader,
        encoder: Encoder,
        table: _Table,
    ) -> ContentHasher:
        content = ContentHasher(plan.content_key)
        size_bytes = self._staging.size_bytes(plan.staged)
        for batch in reader:
            content.update(batch)
            block = encoder.encode(batch)
            # Rows with faults or without an id are not kept, but cost as much to read, and a few
            # bytes of Parquet can stand for millions of them.
            read = reader.rows // MOST_READ
            if max(encoder.totals.rows_kept, read) > plan.max_total_rows:
                raise _too_many_rows(plan.max_total_rows)
            # After the first fault nothing is stored, but the rest is read, so that all faults are
            # reported.
            if not encoder.totals.problems.count:
                table.add(block)
            done = file.tell() / max(size_bytes, 1)
            # The rest of the progress is the last transaction.
            self._job.progress(0.95 * min(done, 1.0), "encoding")
        return content

    def put(self, pieces: dict[str, bytes], sequence: int, cipher: Cipher | None) -> int:
        """Store the parts of one block; each transaction takes at most one chunk's size."""
        return sum(self._put_some(some, sequence, cipher) for some in _grouped(pieces))

    def put_texts(self, part: str, packed: bytes, cipher: Cipher | None) -> int:
        return self._blobs.write(self._dataset_id, part, [packed], unit=self._unit, cipher=cipher)

    def _put_some(self, pieces: dict[str, bytes], sequence: int, cipher: Cipher | None) -> int:
        with self._unit() as session:
            return sum(
                self._blobs.put(session, self._dataset_id, part, sequence, piece, cipher=cipher)
                for part, piece in pieces.items()
            )

    def _accept(
        self,
        plan: _Plan,
        reader: TableReader,
        encoder: Encoder,
        table: _Table,
        content: ContentHasher,
    ) -> None:
        manifest = table.finish({name: found.texts for name, found in encoder.texts.items()})
        with self._job.completing() as session:
            row = _awaited(session, self._dataset_id)
            content_hmac = recognition.content_hmac(
                plan.content_key, row.owner_id, content.digest()
            )
            try:
                # In the transaction that makes the dataset ready, so that of two equal uploads one
                # sees the other.
                closed = recognition.recognise(
                    session,
                    row,
                    content_hmac,
                    most_comparisons=self._job.settings.compared_uploads,
                )
            except recognition.NotAccepted as error:
                problem = RowProblem(None, None, None, error.message, error.remedy)
                report = ingest_report(plan.schema, encoder.totals, reader, problems=[problem])
                _reject(row, report, plan.cipher)
            else:
                self._blobs.put(
                    session, row.id, blocks.MANIFEST, 0, manifest.to_bytes(), cipher=plan.cipher
                )
                inventory.record(session, row.id)
                report = ingest_report(
                    plan.schema, encoder.totals, reader, bounding=table.bounding(), closed=closed
                )
                private_facts.put_report(row, report, plan.cipher)
                private_facts.put_rows(row, manifest.rows, plan.cipher)
                row.state, row.staged, row.ready_at = "ready", None, now()
                row.content_hmac = content_hmac
            is_ready = row.state == "ready"
        # Deleted in several transactions; the last one of the job is over, so it has its own check.
        if not is_ready:
            self._blobs.delete(self._dataset_id, unit=self._rejected)

    @contextmanager
    def _rejected(self) -> Iterator[Session]:
        """A unit of work after the job's end, as long as the dataset is as this run left it."""
        with self._job.database.write() as session:
            row = repository.get(session, self._dataset_id)
            if row is None or row.state != "rejected":
                raise Superseded
            yield session

    def _refuse(self, plan: _Plan, report: dict[str, Any]) -> None:
        self._blobs.delete(self._dataset_id, unit=self._unit)
        with self._unit() as session:
            _reject(_awaited(session, self._dataset_id), report, plan.cipher)


class _Table:
    """Collects encoded batches into blocks of equal length, and stores them."""

    def __init__(self, ingest: _Ingest, plan: _Plan) -> None:
        self._ingest = ingest
        self._cipher = plan.cipher
        self._room_bytes = plan.room_bytes
        self._block_rows = blocks.block_rows(plan.schema, plan.unit)
        self._parts = blocks.part_names(plan.schema)
        self._number_parts = blocks.number_parts(plan.schema)
        # Never stored: nobody, not even with the store and its keys, can test whether an id is in
        # it.
        self._id_key = secrets.token_bytes(ID_KEY_BYTES)
        self._tally = EntityTally(plan.unit.max_rows) if plan.unit.kind == "entity" else None
        self._held: list[dict[str, NDArray[Any]]] = []
        self._held_rows = 0
        self._blocks = 0
        self._rows = 0

    def add(self, block: EncodedBlock) -> None:
        arrays = {self._parts[name]: codes for name, codes in block.codes.items()}
        arrays |= {self._number_parts[name]: array for name, array in block.numbers.items()}
        if block.entity_text is not None:
            digests = arrays[blocks.ENTITIES] = _digests(block.entity_text, self._id_key)
            if self._tally is not None:
                self._tally.add(digests)
        self._held.append(arrays)
        self._held_rows += block.rows
        while self._held_rows >= self._block_rows:
            self._write(self._block_rows)

    def bounding(self) -> Bounding | None:
        """What the contribution bound leaves of the rows; None where each row is a unit."""
        return None if self._tally is None else self._tally.bounding()

    def finish(self, texts: Mapping[str, Sequence[str]]) -> blocks.Manifest:
        """`texts` holds, by number, those of each column whose values a release discovers."""
        if self._held_rows:
            self._write(self._held_rows)
        for name, known in texts.items():
            part = blocks.texts_part(self._number_parts[name])
            packed = self._sized(blocks.pack_texts(known))
            self._room_bytes -= self._ingest.put_texts(part, packed, self._cipher)
        if self._room_bytes < 0:
            raise _no_room()
        return blocks.Manifest(self._rows, self._block_rows)

    def _sized(self, packed: bytes) -> bytes:
        return packed if self._cipher is None else blocks.padded(packed)

    def _write(self, rows: int) -> None:
        whole = {
            part: np.concatenate([arrays[part] for arrays in self._held]) for part in self._held[0]
        }
        packed = {part: self._sized(blocks.pack(array[:rows])) for part, array in whole.items()}
        self._held = [{part: array[rows:].copy() for part, array in whole.items()}]
        self._held_rows -= rows
        self._room_bytes -= self._ingest.put(packed, self._blocks, self._cipher)
        if self._room_bytes < 0:
            raise _no_room()
        self._blocks += 1
        self._rows += rows


def _awaited(session: Session, dataset_id: str) -> DatasetRow:
    row = repository.get(session, dataset_id)
    if row is None or row.state != "ingesting":
        raise Superseded
    return row


def _reject(row: DatasetRow, report: dict[str, Any], cipher: Cipher | None) -> None:
    row.state, row.staged = "rejected", None
    private_facts.put_report(row, report, cipher)


def _digests(ids: pa.DictionaryArray, key: bytes) -> NDArray[np.uint64]:
    """Keyed 128-bit digests of entity ids, shape (rows, 2); each distinct id is hashed once."""
    hashed = b"".join(
        hashlib.blake2b(text.encode(), digest_size=blocks.ENTITY_BYTES, key=key).digest()
        for text in ids.dictionary.fill_null("").to_pylist()
    )
    distinct = np.frombuffer(hashed, "<u8").astype(np.uint64).reshape(-1, 2)
    digests: NDArray[np.uint64] = distinct[np.asarray(ids.indices)]
    return digests


def _grouped(pieces: dict[str, bytes]) -> Iterator[dict[str, bytes]]:
    group: dict[str, bytes] = {}
    size = 0
    for part, piece in pieces.items():
        if group and size + len(piece) > PIECE_BYTES:
            yield group
            group, size = {}, 0
        group[part] = piece
        size += len(piece)
    if group:
        yield group


def _no_rows(dropped: int) -> TableError:
    message = "The table has no rows."
    if dropped:
        message = "Every row lacks its id, so the table has no rows that belong to anybody."
    remedy = "Send the file with its rows" + (
        ", and with the ids of their entities." if dropped else "."
    )
    return TableError([RowProblem(None, None, None, message, remedy)])


def _too_many_rows(limit: int) -> TableError:
    return TableError(
        [
            RowProblem(
                None,
                None,
                None,
                f"The file has more than {limit} rows, the `max_total_rows` of the dataset.",
                "Create the dataset with a larger `max_total_rows`, or send fewer rows.",
            )
        ]
    )


def _no_room() -> TableError:
    return TableError(
        [
            RowProblem(
                None,
                None,
                None,
                "Your stored tables and samples take more than the service allows.",
                "Erase datasets or samples that are not needed, or ask for a higher limit.",
            )
        ]
    )
