"""Whether a store is intact: its ledgers, what they charge for, and its stored chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from sqlalchemy import JSON, Select, and_, or_, select, text
from sqlalchemy.orm import Session, aliased

from app.datasets import damage
from app.datasets.models import DatasetRow
from app.integrity.ledgers import verify_all
from app.ledger.models import LedgerRow
from app.releases.models import ReleaseRow
from app.storage import inventory
from app.storage.models import ChunkRow, PartRow

# 16 MiB at once, since a store may be far larger than the memory.
_CHUNKS_AT_ONCE = 4


def file_problems(session: Session) -> Iterator[str]:
    """What SQLite itself finds wrong with the file."""
    for (found,) in session.execute(text("PRAGMA integrity_check")):
        if found != "ok":
            yield f"store: {found}"


def release_problems(session: Session) -> Iterator[str]:
    """Releases without their charge, charges without their release, refunds not stated."""
    charge = aliased(LedgerRow)
    uncharged = (
        select(ReleaseRow.id)
        .outerjoin(
            charge,
            and_(
                charge.account_id == ReleaseRow.account_id,
                charge.sequence == ReleaseRow.ledger_sequence,
            ),
        )
        .where(
            or_(
                charge.sequence.is_(None),
                charge.kind != "charge",
                charge.release_id.is_distinct_from(ReleaseRow.id),
                charge.primary != ReleaseRow.charge_primary,
                charge.delta != ReleaseRow.charge_delta,
                charge.grant_id.is_distinct_from(ReleaseRow.grant_id),
            )
        )
    )
    for release_id in session.scalars(uncharged):
        yield f"release {release_id} is not what its ledger entry charged for"
    refund = aliased(LedgerRow)
    unstated = (
        select(ReleaseRow.id)
        .outerjoin(refund, and_(refund.release_id == ReleaseRow.id, refund.kind == "refund"))
        .where(ReleaseRow.refunded != refund.sequence.is_not(None))
    )
    for release_id in session.scalars(unstated):
        yield f"release {release_id} and its ledger disagree on a refund"
    unknown = (
        select(LedgerRow.release_id)
        .outerjoin(ReleaseRow, ReleaseRow.id == LedgerRow.release_id)
        .where(LedgerRow.kind == "charge", ReleaseRow.id.is_(None))
    )
    for charged in session.scalars(unknown):
        yield f"release {charged} was charged but is not there"


def part_problems(session: Session) -> Iterator[str]:
    """Parts of which chunks have gone or were exchanged, and what has no part that it must have."""
    for collection, part in inventory.missing_parts(session):
        yield f"part {collection}/{part} has not all its chunks"
    for collection, part in inventory.changed_parts(session):
        yield f"part {collection}/{part} does not hold the chunks that were stored"
    tables = select(DatasetRow.id).where(DatasetRow.state.in_(("ready", damage.STATE)))
    yield from _without(session, tables, "dataset")
    # A release of an erased dataset may have been withdrawn, and then has no certificate.
    fitted = select(ReleaseRow.id).where(
        ReleaseRow.state == "succeeded", ReleaseRow.certificate != JSON.NULL
    )
    yield from _without(session, fitted, "release")


def _without(session: Session, ids: Select[Any], kind: str) -> Iterator[str]:
    for each in session.scalars(ids.except_(select(PartRow.collection))):
        yield f"{kind} {each} has none of its parts"


def chunk_problems(session: Session) -> Iterator[str]:
    """Stored chunks whose bytes are not those that were written."""
    rows = session.execute(
        select(
            ChunkRow.collection,
            ChunkRow.part,
            ChunkRow.sequence,
            ChunkRow.size_bytes,
            ChunkRow.sha256,
            ChunkRow.data,
        ).execution_options(yield_per=_CHUNKS_AT_ONCE)
    )
    for collection, part, sequence, size_bytes, sha256, data in rows:
        if len(data) != size_bytes or hashlib.sha256(data).hexdigest() != sha256:
            yield f"chunk {collection}/{part}/{sequence} is damaged"


def problems(session: Session) -> Iterator[str]:
    """Everything that is wrong with the store, in words for its operator."""
    for found in verify_all(session):
        for problem in found.problems:
            yield f"account {found.account_id}: {problem}"
    yield from beyond_ledgers(session)


def beyond_ledgers(session: Session) -> Iterator[str]:
    """What is wrong with the store apart from its ledgers."""
    yield from release_problems(session)
    yield from file_problems(session)
    yield from part_problems(session)
    # Last, because it reads every byte of the store.
    yield from chunk_problems(session)
