"""Which parts the store must hold: how many chunks each has, their bytes, and a hash of them.

A part is recorded once it is whole, and the record goes with the part. So chunks that have gone are
missed: of a table, the chunks alone could not tell. The hash is over the hashes of the chunks as
stored, which are sealed ones in an encrypted dataset, and so tells nothing of the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from sqlalchemy import ColumnElement, Subquery, and_, case, delete, func, insert, select
from sqlalchemy.orm import Session

from app.storage.models import ChunkRow, PartRow


def record(session: Session, collection: str, part: str | None = None) -> None:
    """Note what is there now of a whole part, or of a whole collection."""
    forget(session, collection, part)
    rows = [
        {
            "collection": collection,
            "part": name,
            "chunks": len(chunks),
            "size_bytes": sum(size for _, size, _ in chunks),
            "sha256": _joined(sha256 for _, _, sha256 in chunks),
        }
        for name, chunks in _stored(session, collection, part)
    ]
    if rows:
        session.execute(insert(PartRow), rows)


def forget(session: Session, collection: str, part: str | None = None) -> None:
    """Of a part that is dropped or made anew, or of a collection."""
    gone = delete(PartRow).where(PartRow.collection == collection)
    session.execute(gone if part is None else gone.where(PartRow.part == part))


def is_complete(session: Session, collection: str) -> bool:
    """Whether a collection has parts, and all their chunks; reads no bytes, only keys."""
    found = _held(collection)
    missing = case((func.coalesce(found.c.chunks, 0) != PartRow.chunks, 1), else_=0)
    counts = select(func.count(), func.sum(missing)).select_from(PartRow)
    parts, incomplete = session.execute(
        counts.outerjoin(found, _same(found)).where(PartRow.collection == collection)
    ).one()
    return bool(parts and not incomplete)


def is_intact(session: Session, collection: str) -> bool:
    """Whether all chunks are there and hold the bytes that were stored; reads all of them."""
    chunks = select(ChunkRow.sha256, ChunkRow.data).where(ChunkRow.collection == collection)
    held = session.execute(chunks.execution_options(yield_per=1))
    changed = any(hashlib.sha256(data).hexdigest() != sha256 for sha256, data in held)
    return not changed and not any(changed_parts(session, collection))


def missing_parts(session: Session) -> Iterator[tuple[str, str]]:
    """(collection, part) where chunks are missing or too many."""
    found = _held()
    incomplete = func.coalesce(found.c.chunks, 0) != PartRow.chunks
    recorded = select(PartRow.collection, PartRow.part).outerjoin(found, _same(found))
    for row in session.execute(recorded.where(incomplete)):
        yield row.collection, row.part


def changed_parts(session: Session, only: str | None = None) -> Iterator[tuple[str, str]]:
    """(collection, part) whose chunks, as many as there are, are not those that were recorded."""
    recorded = select(PartRow.collection, PartRow.part, PartRow.size_bytes, PartRow.sha256)
    if only is not None:
        recorded = recorded.where(PartRow.collection == only)
    for collection, part, size_bytes, sha256 in session.execute(recorded).all():
        for _, chunks in _stored(session, collection, part):
            found = (sum(size for _, size, _ in chunks), _joined(each for _, _, each in chunks))
            if found != (size_bytes, sha256):
                yield collection, part


def _held(collection: str | None = None) -> Subquery:
    """How many chunks there are of each part."""
    # By the index of the primary key alone: a chunk's row lies on pages of 4 MiB.
    held = select(ChunkRow.collection, ChunkRow.part, func.count().label("chunks"))
    if collection is not None:
        held = held.where(ChunkRow.collection == collection)
    return held.group_by(ChunkRow.collection, ChunkRow.part).subquery()


def _same(found: Subquery) -> ColumnElement[bool]:
    return and_(found.c.collection == PartRow.collection, found.c.part == PartRow.part)


_Chunk = tuple[str, int, str]


def _stored(
    session: Session, collection: str, part: str | None
) -> Iterator[tuple[str, list[_Chunk]]]:
    """Each part with its chunks in order: (part, size, hash)."""
    rows = select(ChunkRow.part, ChunkRow.size_bytes, ChunkRow.sha256).where(
        ChunkRow.collection == collection
    )
    rows = rows if part is None else rows.where(ChunkRow.part == part)
    ordered = session.execute(rows.order_by(ChunkRow.part, ChunkRow.sequence))
    chunks = ((row.part, row.size_bytes, row.sha256) for row in ordered)
    for name, group in groupby(chunks, key=itemgetter(0)):
        yield name, list(group)


def _joined(hashes: Iterator[str]) -> str:
    return hashlib.sha256("".join(hashes).encode()).hexdigest()
