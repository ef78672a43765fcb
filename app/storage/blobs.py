"""Blobs: collections of named parts, kept in the store as chunks of at most 4 MiB.

BlobError
├── BlobMissing
└── BlobCorrupt
"""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import accumulate

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_if_new
from sqlalchemy.orm import Session

from app.database import Database
from app.problems import StorageFull
from app.storage import inventory
from app.storage.encryption import OVERHEAD_BYTES, Cipher, SealBroken
from app.storage.models import ChunkRow, CollectionRow, StoredRow

# Bounds how long one chunk holds the store's write lock, and the memory of a reader.
CHUNK_BYTES = 4 * 1024**2
# Largest piece before sealing, so that its chunk stays within the limit.
PIECE_BYTES = CHUNK_BYTES - OVERHEAD_BYTES
# 64 MiB, so that other writers do not wait long behind a deletion.
DELETED_AT_ONCE = 16

# Of the parts of a collection that are read at once: one variable for each would make as many
# statements as there are widths of tables, and each is cached.
PARTS_AT_ONCE = 32

_ADD = insert(ChunkRow)
_GROW = (
    update(StoredRow.__table__)  # type: ignore[arg-type]
    .where(
        StoredRow.owner_id
        == select(CollectionRow.owner_id)
        .where(CollectionRow.id == bindparam("grown"))
        .scalar_subquery()
    )
    .values(size_bytes=StoredRow.size_bytes + bindparam("by_bytes"))
)

WriteUnit = Callable[[], AbstractContextManager[Session]]


class BlobError(Exception):
    """A blob cannot be read; the text names the blob, never its content."""

    def __init__(self, collection: str, part: str, sequence: int | None = None) -> None:
        place = f"{collection}/{part}" + ("" if sequence is None else f"/{sequence}")
        super().__init__(f"{place}: {type(self).__doc__}")
        self.collection = collection
        self.part = part
        self.sequence = sequence


class BlobMissing(BlobError):
    """not in the store"""


class BlobCorrupt(BlobError):
    """the stored bytes are not those that were written"""


class BlobStore:
    """Reads and writes blobs; every chunk in a unit of work of its own.

    Writers pass `unit` when their writes carry a condition, such as a job's fencing number;
    the default is the store's own write unit. `cipher` seals a chunk for its place.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(
        self,
        collection: str,
        part: str,
        data: Iterable[bytes],
        *,
        unit: WriteUnit | None = None,
        cipher: Cipher | None = None,
    ) -> int:
        """Replace a part by `data`, and record it as whole; returns the stored bytes.

        An empty part still exists.
        """
        unit = unit or self._database.write
        # Also what a lost worker may have left of the part.
        self.delete(collection, part, unit=unit)
        stored = 0
        for sequence, piece in enumerate(_pieces(data)):
            with unit() as session:
                stored += self.put(session, collection, part, sequence, piece, cipher=cipher)
        with unit() as session:
            inventory.record(session, collection, part)
        return stored

    def put(
        self,
        session: Session,
        collection: str,
        part: str,
        sequence: int,
        piece: bytes,
        *,
        cipher: Cipher | None = None,
    ) -> int:
        """Add one chunk in the caller's transaction; how many bytes are stored.

        Whoever adds the last one records the part in the `inventory`.
        """
        if len(piece) > PIECE_BYTES:
            raise ValueError(f"a piece has at most {PIECE_BYTES} bytes")
        place = _place(collection, part, sequence)
        stored = piece if cipher is None else cipher.seal(piece, place)
        session.execute(
            _ADD,
            {
                "collection": collection,
                "part": part,
                "sequence": sequence,
                "size_bytes": len(stored),
                "sha256": hashlib.sha256(stored).hexdigest(),
                "data": stored,
            },
        )
        session.execute(_GROW, {"grown": collection, "by_bytes": len(stored)})
        return len(stored)

    def get(
        self,
        session: Session,
        collection: str,
        parts: Iterable[str],
        sequence: int,
        *,
        cipher: Cipher | None = None,
    ) -> dict[str, bytes]:
        """The chunks of several parts at one sequence number, in the caller's transaction."""
        wanted = list(parts)
        found = {}
        for first in range(0, len(wanted), PARTS_AT_ONCE):
            rows = session.execute(
                select(ChunkRow.part, ChunkRow.sha256, ChunkRow.data).where(
                    ChunkRow.collection == collection,
                    ChunkRow.part.in_(wanted[first : first + PARTS_AT_ONCE]),
                    ChunkRow.sequence == sequence,
                )
            )
            for part, sha256, data in rows:
                found[part] = _checked(collection, part, sequence, data, sha256, cipher)
        for part in wanted:
            if part not in found:
                raise BlobMissing(collection, part, sequence)
        return found

    def read(self, collection: str, part: str, *, cipher: Cipher | None = None) -> Iterator[bytes]:
        """The chunks of a part in order, each checked. Raises `BlobMissing`, `BlobCorrupt`."""
        for sequence in range(len(self._sizes(collection, part))):
            yield self._chunk(collection, part, sequence, cipher)

    def read_all(self, collection: str, part: str, *, cipher: Cipher | None = None) -> bytes:
        return b"".join(self.read(collection, part, cipher=cipher))

    def read_within(self, session: Session, collection: str, part: str) -> bytes:
        """A small part as a whole, in the caller's transaction. Raises as `read` does."""
        sizes = _sizes(session, collection, part)
        if not sizes:
            raise BlobMissing(collection, part)
        return b"".join(
            self.get(session, collection, [part], sequence)[part] for sequence in range(len(sizes))
        )

    def open(self, collection: str, part: str, *, cipher: Cipher | None = None) -> BlobFile:
        """A part as a read-only, seekable file; holds one chunk in memory."""
        overhead = 0 if cipher is None else OVERHEAD_BYTES
        sizes = [size - overhead for size in self._sizes(collection, part)]
        return BlobFile(sizes, lambda sequence: self._chunk(collection, part, sequence, cipher))

    def delete(
        self, collection: str, part: str | None = None, *, unit: WriteUnit | None = None
    ) -> None:
        """Drop a part, or a whole collection; a few chunks to a transaction.

        Raises `StorageFull` where there is not even room to overwrite one chunk.
        """
        unit = unit or self._database.write
        at_once, was_emptied = DELETED_AT_ONCE, False
        while True:
            try:
                with unit() as session:
                    if not delete_some(session, collection, part, at_once):
                        return
            except StorageFull:
                if was_emptied:
                    raise
                # What is deleted is overwritten, in the log at first: on a disk that is nearly full
                # the log is emptied for each chunk.
                self._database.checkpoint()
                at_once, was_emptied = 1, True
            else:
                was_emptied = False

    def size(self, collection: str, part: str | None = None) -> int:
        """Stored bytes of a part or a collection; 0 if there is none."""
        with self._database.read() as session:
            return stored_bytes(session, collection, part)

    def exists(self, collection: str, part: str) -> bool:
        with self._database.read() as session:
            return bool(_sizes(session, collection, part))

    def _sizes(self, collection: str, part: str) -> list[int]:
        with self._database.read() as session:
            sizes = _sizes(session, collection, part)
        if not sizes:
            raise BlobMissing(collection, part)
        return sizes

    def _chunk(self, collection: str, part: str, sequence: int, cipher: Cipher | None) -> bytes:
        with self._database.read() as session:
            return self.get(session, collection, [part], sequence, cipher=cipher)[part]


class BlobFile(io.RawIOBase):
    """A blob as a seekable binary file; chunks are fetched, and checked, when reached."""

    def __init__(self, sizes: list[int], fetch: Callable[[int], bytes]) -> None:
        self._starts = [0, *accumulate(sizes)]
        self._fetch = fetch
        self._position = 0
        self._held: tuple[int, bytes] = (-1, b"")

    @property
    def size(self) -> int:
        return self._starts[-1]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("a position is not negative")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, except at the end: Arrow takes a short read for the end of the file."""
        filled = 0
        while filled < len(buffer) and self._position < self.size:
            sequence = bisect_right(self._starts, self._position) - 1
            if self._held[0] != sequence:
                self._held = (sequence, self._fetch(sequence))
            first = self._position - self._starts[sequence]
            part = self._held[1][first : first + len(buffer) - filled]
            buffer[filled : filled + len(part)] = part
            filled += len(part)
            self._position += len(part)
        return filled


def delete_some(
    session: Session, collection: str, part: str | None = None, at_once: int = DELETED_AT_ONCE
) -> bool:
    """Drop a few chunks in the caller's transaction; whether there were any."""
    inventory.forget(session, collection, part)
    rows = select(ChunkRow.part, ChunkRow.sequence, ChunkRow.size_bytes).where(
        ChunkRow.collection == collection
    )
    if part is not None:
        rows = rows.where(ChunkRow.part == part)
    keys = session.execute(rows.limit(at_once)).all()
    for found, sequence, _ in keys:
        session.execute(
            delete(ChunkRow).where(
                ChunkRow.collection == collection,
                ChunkRow.part == found,
                ChunkRow.sequence == sequence,
            )
        )
    freed_bytes = sum(size_bytes for *_, size_bytes in keys)
    session.execute(_GROW, {"grown": collection, "by_bytes": -freed_bytes})
    return bool(keys)


def own(session: Session, collection: str, owner_id: str) -> None:
    """Count what is stored in a collection as the principal's; call before the first chunk.

    Owning it again changes nothing.
    """
    nothing_yet = {"owner_id": owner_id, "size_bytes": 0}
    session.execute(insert_if_new(StoredRow).on_conflict_do_nothing(), nothing_yet)
    owned = {"id": collection, "owner_id": owner_id}
    session.execute(insert_if_new(CollectionRow).on_conflict_do_nothing(), owned)


def owned_bytes(session: Session, owner_id: str) -> int:
    """Stored bytes of all collections of a principal."""
    found = select(StoredRow.size_bytes).where(StoredRow.owner_id == owner_id)
    return session.scalar(found) or 0


def stored_bytes(session: Session, collection: str, part: str | None = None) -> int:
    """Stored bytes of a collection, or of one part of it."""
    total = select(func.coalesce(func.sum(ChunkRow.size_bytes), 0)).where(
        ChunkRow.collection == collection
    )
    if part is not None:
        total = total.where(ChunkRow.part == part)
    return int(session.execute(total).scalar_one())


def _sizes(session: Session, collection: str, part: str) -> list[int]:
    return list(
        session.scalars(
            select(ChunkRow.size_bytes)
            .where(ChunkRow.collection == collection, ChunkRow.part == part)
            .order_by(ChunkRow.sequence)
        )
    )


def _place(collection: str, part: str, sequence: int) -> bytes:
    return f"{collection}/{part}/{sequence}".encode()


def _checked(
    collection: str, part: str, sequence: int, data: bytes, sha256: str, cipher: Cipher | None
) -> bytes:
    # Of the stored bytes, so that damage is found without the key.
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BlobCorrupt(collection, part, sequence)
    if cipher is None:
        return data
    try:
        return cipher.open(data, _place(collection, part, sequence))
    except SealBroken:
        raise BlobCorrupt(collection, part, sequence) from None


def _pieces(data: Iterable[bytes]) -> Iterator[bytes]:
    """`data` cut into pieces of full size and a last one; at least one piece."""
    held = bytearray()
    cut = 0
    for block in data:
        held += block
        while len(held) >= PIECE_BYTES:
            yield bytes(held[:PIECE_BYTES])
            cut += 1
            del held[:PIECE_BYTES]
    if held or not cut:
        yield bytes(held)
