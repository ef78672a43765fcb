"""Reading the stored codes of a ready dataset, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.database import Database
from app.datasets import blocks, repository
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable, Table
from app.storage.blobs import BlobCorrupt, BlobStore
from app.storage.encryption import Keyring


class DatasetUnreadable(Exception):
    """The dataset has no rows to read: it is not ready, or private where a public one is needed."""


class StoredCodes:
    """A `CodeSource` on the store. No lock or snapshot is held between two blocks.

    Raises `DatasetUnreadable`, `BlobError` or `StorageKeyError`.
    """

    def __init__(self, database: Database, keyring: Keyring, dataset_id: str) -> None:
        with database.read() as session:
            row = repository.get(session, dataset_id)
            if row is None or row.state != "ready":
                raise DatasetUnreadable
            wire, unit, wrapped_key = row.schema, row.unit, row.wrapped_key
            self.is_public = row.visibility == "public"
        self.schema = Schema.parse(wire)
        self.unit = PrivacyUnit.parse(unit)
        self._database = database
        self._dataset_id = dataset_id
        self._blobs = BlobStore(database)
        self._cipher = keyring.cipher(dataset_id, wrapped_key)
        self._parts = blocks.part_names(self.schema)
        self._number_parts = blocks.number_parts(self.schema)
        self._manifest = blocks.Manifest.from_bytes(
            self._blobs.read_all(dataset_id, blocks.MANIFEST, cipher=self._cipher)
        )

    @property
    def rows(self) -> int:
        """Exact, and so private unless the dataset is public."""
        return self._manifest.rows

    @property
    def blocks(self) -> int:
        return self._manifest.blocks

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        return self.some_chunks(columns, range(self.blocks))

    def some_chunks(
        self, columns: Sequence[str], blocks: Sequence[int]
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Only these blocks, in this order."""
        parts = {name: self._parts[name] for name in columns}
        for block in blocks:
            arrays = self._block(block, list(parts.values())) if parts else {}
            yield {name: arrays[part] for name, part in parts.items()}

    def entities(self) -> Iterator[NDArray[np.uint64]]:
        if self.unit.kind != "entity":
            raise ValueError("a row unit has no entities")
        for block in range(self._manifest.blocks):
            yield self._block(block, [blocks.ENTITIES])[blocks.ENTITIES]

    def texts(self, column: str) -> Sequence[str]:
        part = blocks.texts_part(self._number_parts[column])
        packed = self._blobs.read_all(self._dataset_id, part, cipher=self._cipher)
        return blocks.unpack_texts(packed)

    def numbers(self, column: str) -> Iterator[NDArray[np.uint32]]:
        part = self._number_parts[column]
        for block in range(self._manifest.blocks):
            yield self._block(block, [part])[part]

    def _block(self, block: int, parts: list[str]) -> dict[str, NDArray[Any]]:
        with self._database.read() as session:
            packed = self._blobs.get(session, self._dataset_id, parts, block, cipher=self._cipher)
        arrays = {part: blocks.unpack(data) for part, data in packed.items()}
        for part, array in arrays.items():
            # A block of another length would shift every row after it against the other columns.
            if len(array) != self._manifest.rows_of(block):
                raise BlobCorrupt(self._dataset_id, part, block)
        return arrays


def read_table(database: Database, keyring: Keyring, dataset_id: str) -> PublicTable:
    """A public dataset in full. Raises `DatasetUnreadable` for a private one."""
    source = StoredCodes(database, keyring, dataset_id)
    if not source.is_public:
        raise DatasetUnreadable
    names = [column.name for column in source.schema.columns]
    held: dict[str, list[NDArray[np.int64]]] = {name: [] for name in names}
    for chunk in source.chunks(names):
        for name in names:
            held[name].append(chunk[name].astype(np.int64))
    codes = {name: _joined(arrays) for name, arrays in held.items()}
    return PublicTable(source.schema, Table(codes, source.rows, _numbered(source)))


def _joined(arrays: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _numbered(source: StoredCodes) -> NDArray[np.int64] | None:
    """The entity of each row, numbered from 0."""
    if source.unit.kind != "entity":
        return None
    digests = np.concatenate([np.zeros((0, 2), np.uint64), *source.entities()])
    # By digest, so the numbers do not depend on the order of the rows.
    _, numbers = np.unique(digests, axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64)
