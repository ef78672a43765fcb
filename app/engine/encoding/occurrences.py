"""How often each key occurs, counted block by block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Rows that are held until they are counted together: 8 MiB.
_HELD_ROWS = 2**20


class Occurrences:
    """Counts 64-bit keys, 16 bytes for each distinct one.

    Once there are `most` distinct keys no new ones are taken up, and only the known ones are
    counted on.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._held: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = []
        self._held_keys = 0
        self._keys = np.empty(0, np.uint64)
        self._rows = np.empty(0, np.int64)

    def add(self, keys: NDArray[np.uint64], rows: NDArray[np.int64] | None = None) -> None:
        """Keys, and in how many rows each one occurs: one, if not given."""
        held = np.ones(len(keys), np.int64) if rows is None else rows
        self._held.append((keys, held))
        self._held_keys += len(keys)
        if self._held_keys >= max(_HELD_ROWS, len(self._keys)):
            self._merge()

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows of each distinct key so far."""
        if self._held:
            self._merge()
        return self._rows

    @property
    def is_full(self) -> bool:
        """Whether there may be more keys than were taken up."""
        return self._most is not None and len(self.counts) >= self._most

    def _merge(self) -> None:
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._held)])
        rows = np.concatenate([self._rows, *(rows for _, rows in self._held)])
        distinct, place = np.unique(keys, return_inverse=True)
        counts = np.zeros(len(distinct), np.int64)
        np.add.at(counts, place, rows)
        if self._most is not None and len(self._keys) >= self._most:
            kept = np.isin(distinct, self._keys)
            distinct, counts = distinct[kept], counts[kept]
        self._keys, self._rows, self._held, self._held_keys = distinct, counts, [], 0
