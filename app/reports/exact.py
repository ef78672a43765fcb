"""The third of three places that read private rows: those that a custodian's report compares with.

What is read here gets no noise and is charged to no budget. It is used only in the exact part of a
report, which only the dataset's custodian may read. The rows are those that count for a release:
at most `max_rows` of each entity, drawn again for each comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.database import Database
from app.datasets.codes import StoredCodes
from app.engine.privacy.bounding import bound_rows
from app.engine.privacy.source import CodeSource
from app.engine.privacy.units import unit_of_rows
from app.engine.privacy.values import ResolvedCodes
from app.engine.schema import Schema
from app.storage.encryption import Keyring


class ExactRows:
    """The rows that count, chunk by chunk; `check` is called before each and may raise."""

    def __init__(self, source: CodeSource, check: Callable[[], None]) -> None:
        self._source = source
        self._check = check
        # The same bounding as in a release, so that the report measures the method and not the
        # bound.
        self._bounded = bound_rows(source)
        self.rows = sum(self._lengths())

    @classmethod
    def stored(
        cls,
        database: Database,
        keyring: Keyring,
        dataset_id: str,
        schema: Schema,
        check: Callable[[], None],
    ) -> ExactRows:
        """Of a ready dataset, coded by `schema`: its dictionary with values that a release found.

        Raises `DatasetUnreadable`, `BlobError` or `StorageKeyError`.
        """
        return cls(ResolvedCodes(StoredCodes(database, keyring, dataset_id), schema), check)

    def chunks(self, columns: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
        first = 0
        for chunk in self._source.chunks(columns):
            self._check()
            place = self._places(first, len(chunk[columns[0]]))
            first += len(chunk[columns[0]])
            yield (
                chunk
                if place is None
                else {name: codes[place >= 0] for name, codes in chunk.items()}
            )

    def owners(self) -> Iterator[NDArray[np.int64]]:
        """The entity of each row, numbered from 0 without gaps, chunk by chunk."""
        if self._bounded.starts is None:
            raise ValueError("a row unit has no entities")
        owner = unit_of_rows(self._bounded.starts)
        first = 0
        for digests in self._source.entities():
            self._check()
            place = self._places(first, len(digests))
            assert place is not None
            first += len(digests)
            yield owner[place[place >= 0]]

    def _places(self, first: int, rows: int) -> NDArray[np.int64] | None:
        place = self._bounded.place
        return None if place is None else place[first : first + rows]

    def _lengths(self) -> Iterator[int]:
        if self._bounded.starts is not None:
            yield int(self._bounded.starts[-1])
            return
        name = self._source.schema.columns[0].name
        for chunk in self._source.chunks([name]):
            yield len(chunk[name])
