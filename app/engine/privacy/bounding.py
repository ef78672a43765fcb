"""Which rows count: at most k of each entity, drawn once for a session.

Statement. Adjacent datasets differ by all rows of one entity, added or removed. The rows kept
of every other entity have the same distribution in both and can be coupled to be the same. So
the kept rows differ by at most k rows, all of one entity.
Proof. Each row gets its own random key, and an entity's rows are ranked by their keys among
themselves: what is kept of an entity depends on its own rows and keys alone.

Keys are 64 random bits of the operating system. Two keys among the n rows of an entity are
equal with probability at most n^2 / 2^65. Such a tie is broken by row order, which makes the
draw very slightly less uniform and changes nothing in the statement above. No amplification by
sampling is claimed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.source import CodeSource


@dataclass(frozen=True, slots=True)
class Bounded:
    """The rows that count.

    place: int64, shape (rows of the source,): the position of each row among those that
    count, entity after entity, or -1. starts: int64, shape (entities + 1,): where each
    entity's rows begin. Both are None on a row unit, where every row counts and is its own.
    """

    place: NDArray[np.int64] | None
    starts: NDArray[np.int64] | None

    @property
    def is_row_unit(self) -> bool:
        return self.place is None


def random_keys(count: int) -> NDArray[np.uint64]:
    """Independent uniform 64-bit keys from the operating system, shape (count,)."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def rank_within(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of each element in its run, for groups that are sorted."""
    index = np.arange(len(group), dtype=np.int64)
    begins = np.empty(len(group), dtype=bool)
    begins[:1] = True
    np.not_equal(group[1:], group[:-1], out=begins[1:])
    return index - np.maximum.accumulate(np.where(begins, index, 0))


def bound_rows(source: CodeSource) -> Bounded:
    """Draws at most `max_rows` rows of each entity, uniformly without replacement."""
    if source.unit.kind == "row":
        return Bounded(None, None)
    digests = np.concatenate([np.empty((0, 2), np.uint64), *source.entities()])
    return bounded_by(digests, source.unit.max_rows)


def bounded_by(digests: NDArray[np.uint64], max_rows: int) -> Bounded:
    """The draw itself. `digests` has shape (rows, 2); equal digests are one entity."""
    rows = len(digests)
    high, low = digests[:, 0], digests[:, 1]
    # The last key sorts first: by entity, and within an entity by random key.
    order = np.lexsort((random_keys(rows), low, high))
    is_new = np.ones(rows, dtype=bool)
    is_new[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
    entity = np.cumsum(is_new) - 1
    kept = rank_within(entity) < max_rows
    place = np.full(rows, -1, dtype=np.int64)
    place[order[kept]] = np.arange(int(kept.sum()), dtype=np.int64)
    sizes = np.bincount(entity[kept]) if rows else np.empty(0, np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Bounded(place, starts)
