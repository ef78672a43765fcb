"""How many rows of each entity a table has, and how many of them cannot count in any release.

Exact, so it is for the custodian alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.encoding.occurrences import Occurrences


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
    """Counts the rows of each entity, by the digests of ids."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._rows = Occurrences()

    def add(self, digests: NDArray[np.uint64]) -> None:
        """`digests` has shape (rows, 2). Half of a digest is enough to tell entities apart here."""
        self._rows.add(digests[:, 0].copy())

    def bounding(self) -> Bounding:
        rows = self._rows.counts
        beyond = np.maximum(rows - self._max_rows, 0)
        return Bounding(
            max_rows=self._max_rows,
            entities=len(rows),
            most_rows=int(rows.max(initial=0)),
            bounded_entities=int((beyond > 0).sum()),
            rows_beyond=int(beyond.sum()),
        )
