"""From weighted public entities to the rows of synthetic ones.

Entities are taken as often as their weights say, and each of their rows is used as often as its own
weight says: about once. Of the uses of a public row the first keep its content; the later ones
(`smooth` of all) take the content of another public row of its pool. Contents are assigned so that
every content of a pool is used as often as its weight says, those kept counted in, and what is
rounded off in one pool is made good in the next; so the weights hold for what stays with the entity
and for the contents, and no noise is added by chance draws.
Contents come from rows whose `place` (the cell of the columns that stay) is another one, as far as
a pool has them: a content that is in a place already adds nothing new there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.rounding import apportion

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class WeightedRows:
    """Atoms: public rows, entity after entity, and after them rows that only lend contents.

    starts: shape (entities + 1,), where each entity's rows begin and the last one's end.
    entities: their weights, positive. rows: how often each atom is wanted, shape (atoms,), not
    all 0. pool, place: a number for each atom. alike: the same number for atoms that no noisy
    count distinguishes but by `place`.
    """

    starts: Places
    entities: Floats
    rows: Floats
    pool: Places
    place: Places
    alike: Places

    @property
    def pools(self) -> int:
        return int(self.pool.max()) + 1

    @property
    def sizes(self) -> Floats:
        """Expected rows of each use of each entity."""
        sizes: Floats = np.add.reduceat(self.uses, self.starts[:-1])
        return sizes

    @cached_property
    def uses(self) -> Floats:
        """Uses of each public row for each use of its entity: one number for a pool and place."""
        public = int(self.starts[-1])
        group = self.pool * (int(self.place.max()) + 1) + self.place
        group = np.unique(group, return_inverse=True)[1].reshape(-1)
        wanted = np.bincount(group, self.rows)
        given = np.repeat(self.entities, np.diff(self.starts))
        have = np.bincount(group[:public], given, minlength=wanted.size)
        uses: Floats = (wanted / np.where(have > 0, have, 1.0))[group[:public]]
        return uses


@dataclass(frozen=True)
class AssembledRows:
    """Of each synthetic row: the public row that it stands in for, the one whose content it has,
    and its entity, numbered from 0 without gaps."""

    slots: Places
    contents: Places
    entity: Places


def assembled_rows(
    weighted: WeightedRows,
    entities: int,
    rows: int,
    most: int,
    smooth: float,
    rng: np.random.Generator,
) -> AssembledRows:
    """`rows` rows of at most `entities` entities, none with more than `most` rows.

    Raises `ValueError` if so many rows do not fit.
    """
    if rows > entities * most:
        raise ValueError("there is no room for so many rows")
    copies = np.repeat(
        np.arange(weighted.entities.size), apportion(weighted.entities, entities, rng)
    )
    copies = rng.permutation(copies)
    slots, owner = _skeleton(weighted.starts, copies)
    uses = _uses(weighted, slots, rows, rng)
    uses = _bounded(uses, owner, entities, most, rng)
    slots, owner = np.repeat(slots, uses), np.repeat(owner, uses)
    contents = _contents(weighted, slots, smooth, rng)
    number = np.unique(owner, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return AssembledRows(slots, contents, number)


def _skeleton(starts: Places, copies: Places) -> tuple[Places, Places]:
    """The public rows of the entities in order, and the number of each one's copy."""
    sizes = np.diff(starts)[copies]
    ends = np.cumsum(sizes)
    rows = np.repeat(starts[copies] - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
    return rows.astype(np.int64), np.repeat(np.arange(len(copies)), sizes).astype(np.int64)


def _uses(weighted: WeightedRows, slots: Places, rows: int, rng: np.random.Generator) -> Places:
    """How often each slot is used; slots of one pool and place round up in turn."""
    weights = weighted.uses[slots]
    if not weights.sum() > 0:
        weights = np.ones(len(slots))
    order = _in_order(weighted.pool, weighted.place, slots, rng)
    uses = np.empty(len(slots), dtype=np.int64)
    uses[order] = apportion(weights[order], rows, rng)
    return uses


def _bounded(
    uses: Places, owner: Places, entities: int, most: int, rng: np.random.Generator
) -> Places:
    """The uses with those beyond `most` of an entity moved to entities that have room."""
    have = np.bincount(owner, uses, minlength=entities).astype(np.int64)
    if have.max(initial=0) <= most:
        return uses
    each = rng.permutation(np.repeat(np.arange(len(uses)), uses))
    each = each[np.argsort(owner[each], kind="stable")]
    first = np.searchsorted(owner[each], np.arange(entities))
    kept = each[np.arange(len(each)) - first[owner[each]] < most]
    room = most - np.minimum(have, most)
    moved = rng.permutation(np.repeat(np.arange(entities), room))[: len(each) - len(kept)]
    begins = np.searchsorted(owner, np.arange(entities + 1))
    sizes = np.diff(begins)[moved]
    more = begins[moved] + rng.integers(0, sizes)
    return np.bincount(np.concatenate([kept, more]), minlength=len(uses)).astype(np.int64)


def _contents(
    weighted: WeightedRows, slots: Places, smooth: float, rng: np.random.Generator
) -> Places:
    """The content of each slot: its own in its first uses, as often as that is wanted."""
    used = np.bincount(slots, minlength=weighted.rows.size)
    wanted = _wanted_uses(weighted, used)
    most = np.ceil((1 - smooth) * used)
    own = np.minimum(most, np.floor(wanted + rng.random(wanted.size))).astype(np.int64)
    redrawn = np.flatnonzero(_rank(slots) >= own[slots])
    redrawn = redrawn[_in_order(weighted.pool, weighted.place, slots[redrawn], rng)]
    members = _in_order(weighted.pool, weighted.alike, np.arange(used.size), rng)
    missing = np.maximum(wanted - own, 0.0)
    owed = np.bincount(weighted.alike, wanted - own - missing).astype(np.float64)
    contents = slots.copy()
    asked = np.searchsorted(weighted.pool[slots[redrawn]], np.arange(weighted.pools + 1))
    listed = np.searchsorted(weighted.pool[members], np.arange(weighted.pools + 1))
    for pool in rng.permutation(np.flatnonzero(np.diff(asked))):
        open_slots = redrawn[asked[pool] : asked[pool + 1]]
        rows = members[listed[pool] : listed[pool + 1]]
        alike = weighted.alike[rows]
        uses = missing[rows] if missing[rows].sum() > 0 else np.ones(len(rows))
        uses = uses * (len(open_slots) / uses.sum())
        given = apportion(_with_owed(uses, alike, owed), len(open_slots), rng)
        np.add.at(owed, alike, uses - given)
        dealt_out = np.repeat(rows, given)
        dealt_out = dealt_out[_in_order(weighted.pool, weighted.place, dealt_out, rng)]
        contents[open_slots] = np.roll(dealt_out, len(open_slots) // 2)
    return contents


def _with_owed(uses: Floats, alike: Places, owed: Floats) -> Floats:
    """The uses; contents that no count distinguishes are used more or less by what other pools owe
    them, so that what rounding takes from them in one pool they get in the next."""
    kinds, kind = np.unique(alike, return_inverse=True)
    together = np.bincount(kind, uses)
    wanted = np.maximum(together + owed[kinds], 0.0)
    factor = np.divide(wanted, together, out=np.zeros(len(kinds)), where=together > 0)
    more: Floats = uses * factor[kind]
    return more if more.sum() > 0 else uses


def _wanted_uses(weighted: WeightedRows, used: Places) -> Floats:
    """How often each content should be used, given how often slots of its pool are."""
    wanted = np.bincount(weighted.pool, weighted.rows)
    uses = np.bincount(weighted.pool, used)
    factor = np.divide(uses, wanted, out=np.zeros(len(uses)), where=wanted > 0)
    scaled: Floats = weighted.rows * factor[weighted.pool]
    return scaled


def _rank(slots: Places) -> Places:
    """Which use of its row each slot is, from 0, in order."""
    order = np.argsort(slots, kind="stable")
    rank = np.empty(len(slots), dtype=np.int64)
    rank[order] = np.arange(len(slots)) - np.searchsorted(slots[order], slots[order])
    return rank


def _in_order(first: Places, then: Places, rows: Places, rng: np.random.Generator) -> Places:
    order: Places = np.lexsort((rng.random(len(rows)), then[rows], first[rows]))
    return order
