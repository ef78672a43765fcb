"""Table of blobs: collections of named parts, each a sequence of chunks of at most 4 MiB."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Integer, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base


class ChunkRow(Base):
    """`collection` is the id of what the blob belongs to (`ds_`, `rl_`, `sm_`)."""

    __tablename__ = "chunks"

    collection: Mapped[str] = mapped_column(String(64), primary_key=True)
    part: Mapped[str] = mapped_column(String(64), primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    size_bytes: Mapped[int] = mapped_column(Integer)
    # Of the bytes as stored.
    sha256: Mapped[str] = mapped_column(String(64))
    data: Mapped[bytes] = mapped_column(LargeBinary)


class StoredRow(Base):
    """How many bytes are stored for a principal: the sum over the collections that it owns.

    Kept, not added up when it is asked for: that would take longer with every sample.
    """

    __tablename__ = "stored"

    owner_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)

    __table_args__ = (CheckConstraint("size_bytes >= 0", name="size_bytes_not_negative"),)


class CollectionRow(Base):
    """Whose space a collection of blobs takes. One that is not here counts as nobody's."""

    __tablename__ = "collections"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("stored.owner_id"))


class PartRow(Base):
    """A part that is whole: what `inventory` misses if chunks have gone."""

    __tablename__ = "stored_parts"

    collection: Mapped[str] = mapped_column(String(64), primary_key=True)
    part: Mapped[str] = mapped_column(String(64), primary_key=True)
    chunks: Mapped[int] = mapped_column(Integer)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    # Of the hashes of its chunks, in order.
    sha256: Mapped[str] = mapped_column(String(64))


class SecretRow(Base):
    """Keys of this store, such as the one for fingerprints of content.

    `value` is the key, or its wrapped form under the master key.
    """

    __tablename__ = "secrets"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[bytes] = mapped_column(LargeBinary)
