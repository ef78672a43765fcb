"""How many rows of each entity a table has, and how many of them cannot count in any release.

Exact, so it is for the custodian alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Rows that are held until they are counted together: 8 MiB.
_HELD_ROWS = 2**20


@dataclass(frozen=True, slots=True)
class Bounding:
    """What the contribution bound `max_rows` leaves of a table.

    entities: how many there are. most_rows: of one entity. bounded_entities: those that have more
    rows than `max_rows`. rows_beyond: their rows above it, which count in no release.
    """

    max_rows: int
    entities: int
    most_rows: int
    bounded_entities: int
    rows_beyond: int


class EntityTally:
    """Counts rows by digests of ids, 16 bytes for each entity."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._held: list[NDArray[np.uint64]] = []
        self._held_rows = 0
        self._known = np.empty(0, np.uint64)
        self._rows = np.empty(0, np.int64)

    def add(self, digests: NDArray[np.uint64]) -> None:
        """`digests` has shape (rows, 2). Half of a digest is enough to tell entities apart here."""
        self._held.append(digests[:, 0].copy())
        self._held_rows += len(digests)
        if self._held_rows >= max(_HELD_ROWS, len(self._known)):
            self._merge()

    def _merge(self) -> None:
        new, counts = np.unique(np.concatenate(self._held), return_counts=True)
        known, place = np.unique(np.concatenate([self._known, new]), return_inverse=True)
        rows = np.zeros(len(known), np.int64)
        np.add.at(rows, place, np.concatenate([self._rows, counts]))
        self._known, self._rows, self._held, self._held_rows = known, rows, [], 0

    def bounding(self) -> Bounding:
        if self._held:
            self._merge()
        beyond = np.maximum(self._rows - self._max_rows, 0)
        return Bounding(
            max_rows=self._max_rows,
            entities=len(self._rows),
            most_rows=int(self._rows.max(initial=0)),
            bounded_entities=int((beyond > 0).sum()),
            rows_beyond=int(beyond.sum()),
        )
