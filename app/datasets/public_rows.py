"""Rows of a public dataset, for the checks that are made before a release is charged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.database import Database
from app.datasets.codes import DatasetUnreadable, StoredCodes
from app.engine.schema import Schema
from app.settings import Settings
from app.storage.blobs import BlobError
from app.storage.encryption import Keyring

# At most so many blocks are opened and rows given to a check: seconds of work for any method.
MOST_BLOCKS = 16
MOST_ROWS = 2**17


class PublicRowsGone(Exception):
    """The dataset is not public, not ready, or was erased meanwhile."""


class PublicRows:
    """`PublicChunks` of a stored dataset: all its rows, or a part of them taken evenly.

    Nothing is opened before the first use, which may raise `PublicRowsGone`.
    """

    def __init__(self, database: Database, settings: Settings, dataset_id: str) -> None:
        self._database = database
        self._settings = settings
        self.dataset_id = dataset_id

    @property
    def schema(self) -> Schema:
        return self._codes.schema

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        blocks = self._codes.blocks
        # Evenly over the file, which may be sorted: its beginning would not represent it.
        shown = np.unique(np.linspace(0, blocks - 1, min(blocks, MOST_BLOCKS)).astype(np.int64))
        rows = -(-self._codes.rows * len(shown) // max(1, blocks))
        step = max(1, -(-rows // MOST_ROWS))
        try:
            for chunk in self._codes.some_chunks(columns, shown.tolist()):
                yield {name: np.ascontiguousarray(codes[::step]) for name, codes in chunk.items()}
        except BlobError:
            raise PublicRowsGone from None

    @cached_property
    def _codes(self) -> StoredCodes:
        try:
            codes = StoredCodes(self._database, Keyring(self._settings), self.dataset_id)
        except (DatasetUnreadable, BlobError):
            raise PublicRowsGone from None
        if not codes.is_public:
            raise PublicRowsGone
        return codes
