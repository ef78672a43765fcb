"""Making a sample from a stored model, and keeping it: rows or counts, as Parquet."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator

from app.engine.constraints.stream import RepairedRows
from app.engine.method import CountsTable
from app.engine.sandbox.protocol import Sample
from app.engine.table import Table
from app.queue.context import JobContext
from app.releases.downloads import PART
from app.releases.rendering import write_counts, write_rows
from app.releases.samples import Made
from app.sandbox.child import ChildHost
from app.sandbox.process import ChildProcess
from app.storage.blobs import BlobStore


def store_sample(
    context: JobContext,
    host: ChildHost,
    request: Sample,
    sample_id: str,
    child: ChildProcess | None = None,
    see: Callable[[Table], None] | None = None,
) -> Made:
    """Make the sample and write its bytes, chunk by chunk, under the job's claim.

    `see` is called with each part of the rows, in order, as it is written. The model is sampled in
    `child`, or in a new process. For every synthesizer, rows are repaired to meet the rules between
    columns before anyone sees them. Raises `ChildUnusable`, `UnmetRulesError`, or `JobInterrupted`
    if the run must stop.
    """
    with sampled(context, host, request, child) as table:
        return _Writing(context, request, sample_id, see).stored(table)


@contextlib.contextmanager
def sampled(
    context: JobContext, host: ChildHost, request: Sample, child: ChildProcess | None = None
) -> Iterator[CountsTable | RepairedRows]:
    """The sample itself, inside the block; its rows can be read once.

    Raises what `store_sample` raises.
    """
    if child is not None:
        yield _made(host, request, child)
        return
    with host.process(context.claim.memory_bytes) as own:
        context.on_interrupt(own.kill)
        yield _made(host, request, own)


def _made(host: ChildHost, request: Sample, child: ChildProcess) -> CountsTable | RepairedRows:
    if request.kind == "counts":
        return host.counts(request, child)
    return RepairedRows(host.rows(request, child), request.schema, request.seed)


class _Writing:
    """Counts and hashes the rows on their way into the store."""

    def __init__(
        self,
        context: JobContext,
        request: Sample,
        sample_id: str,
        see: Callable[[Table], None] | None,
    ) -> None:
        self._context = context
        self._request = request
        self._sample_id = sample_id
        self._see = see
        self._hash = hashlib.sha256()
        self._rows = 0
        self._size_bytes = 0

    def stored(self, table: CountsTable | RepairedRows) -> Made:
        schema, unit = self._request.schema, self._request.unit
        if isinstance(table, CountsTable):
            self._rows = table.values.size
            pieces = write_counts(table, schema)
        else:
            pieces = write_rows(self._counted(table), schema, unit)
        BlobStore(self._context.database).write(
            self._sample_id, PART, self._hashed(pieces), unit=self._context.fenced
        )
        # Known only now, after all rows have passed.
        repairs = None if isinstance(table, CountsTable) else table.repairs
        return Made(self._rows, self._size_bytes, self._hash.hexdigest(), repairs)

    def _counted(self, parts: Iterable[Table]) -> Iterator[Table]:
        for part in parts:
            self._context.check_cancelled()
            self._rows += part.rows
            if self._see is not None:
                self._see(part)
            yield part

    def _hashed(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._context.check_cancelled()
            self._hash.update(piece)
            self._size_bytes += len(piece)
            yield piece
