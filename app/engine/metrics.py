"""The scores of the NIST Temporal Map Challenge: how close a synthetic table is to the real one.

The scores compare with exact rows, so they are for public tables and for the custodian alone.
Columns are integer arrays of equal length: values, cells or bins, compared by equality only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.marginals import total_variation

Columns = Mapping[str, NDArray[Any]]

SPRINT3_GROUP = ("pickup_community_area", "shift")
SPRINT3_MAP = ("pickup_community_area", "dropoff_community_area")
# The columns whose pairs are scored, with the inner edges of their bins (closed on the left).
SPRINT3_EDGES: Mapping[str, tuple[int, ...] | None] = {
    "company_id": None,
    "dropoff_community_area": None,
    "payment_type": None,
    "fare": tuple(range(0, 100, 10)),
    "tips": tuple(range(0, 100, 10)),
    "trip_total": tuple(range(0, 100, 10)),
    "trip_seconds": tuple(range(0, 2000, 200)),
    "trip_miles": tuple(range(0, 100, 10)),
}

# The numbers below are those of the challenge, so that scores can be compared with its board.
CONJUNCTIONS = 50
TOLERANCES = (5, 50)

SMALLEST_SHARE = 0.05
MISLEADING_PENALTY = 0.2
BIAS_PENALTY = 0.25
LARGEST_BIAS = 500


@dataclass(frozen=True, slots=True)
class Sprint3Score:
    """K (pairs of columns by place and shift), P (the map) and H (taxis alike), out of 1000."""

    pairs: float
    places: float
    taxis: float

    @property
    def mean(self) -> float:
        return (self.pairs + self.places + self.taxis) / 3


def sprint3(
    real: Columns, synthetic: Columns, rng: np.random.Generator, entity: str = "taxi_id"
) -> Sprint3Score:
    """The Sprint 3 score of a table of trips, whose columns hold the challenge's values.

    `rng` draws the taxis and tolerances of H. An empty synthetic table scores 0 on K and P.
    """
    pairs = pair_score(_binned(real), _binned(synthetic), SPRINT3_GROUP, tuple(SPRINT3_EDGES))
    return Sprint3Score(
        1000 * pairs,
        1000 * share_score(real, synthetic, SPRINT3_MAP),
        1000 * conjunction_score(real, synthetic, entity, SPRINT3_GROUP, rng),
    )


def _binned(table: Columns) -> dict[str, NDArray[Any]]:
    cells = {
        name: table[name] if edges is None else np.searchsorted(edges, table[name], side="right")
        for name, edges in SPRINT3_EDGES.items()
    }
    return cells | {name: table[name] for name in SPRINT3_GROUP}


def pair_score(
    real: Columns, synthetic: Columns, group: Sequence[str], columns: Sequence[str]
) -> float:
    """1 less half the mean L1 distance of the frequencies of each pair of columns in each group.

    Groups are those of either table and weigh the same; where one table has no row, the
    distance is 2. A pair and its mirror image have the same distance, so each is taken once.
    """
    groups, real_group, synthetic_group = _numbered(_keys(real, group), _keys(synthetic, group))
    coded = {name: _numbered(real[name], synthetic[name]) for name in columns}
    owner = np.concatenate([real_group, synthetic_group])
    weights, empty = _group_weights(real_group, synthetic_group, groups)
    distances = []
    for one, other in combinations(columns, 2):
        (cells, *first), (width, *second) = coded[one], coded[other]
        cell = np.concatenate(first) * width + np.concatenate(second)
        _, place = np.unique(owner * (cells * width) + cell, return_inverse=True)
        difference = np.abs(np.bincount(place, weights))
        of_place = np.empty(len(difference), dtype=np.int64)
        of_place[place] = owner
        distance = np.bincount(of_place, difference, minlength=groups)
        distance[empty] = 2
        distances.append(distance.mean())
    return float(1 - np.mean(distances) / 2)


def _group_weights(
    real: NDArray[np.int64], synthetic: NDArray[np.int64], groups: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The weight of each row in its group's difference, and the groups that one table lacks."""
    sizes = [np.bincount(part, minlength=groups) for part in (real, synthetic)]
    weights = np.concatenate([1 / sizes[0][real], -1 / sizes[1][synthetic]])
    return weights, (sizes[0] == 0) | (sizes[1] == 0)


def share_score(real: Columns, synthetic: Columns, columns: Sequence[str]) -> float:
    """1 less half the L1 distance of the two tables' shares over the cells of `columns`.

    0 if one table has no row.
    """
    cells, ours, theirs = _numbered(_keys(real, columns), _keys(synthetic, columns))
    if not (len(ours) and len(theirs)):
        return 0.0
    counts = [np.bincount(part, minlength=cells) for part in (ours, theirs)]
    return 1 - total_variation(counts[0], counts[1])


def conjunction_score(
    real: Columns,
    synthetic: Columns,
    entity: str,
    columns: Sequence[str],
    rng: np.random.Generator,
    draws: int = CONJUNCTIONS,
) -> float:
    """How similar the entities are, each described by its counts over the values of every column.

    Each of `draws` times, a real entity is drawn, and a whole tolerance from 5 to 50 for each
    count. The score is 1 less the mean difference between the fractions of real and of synthetic
    entities that are within tolerance of it on all counts.
    """
    coded = [_numbered(real[name], synthetic[name]) for name in columns]
    ours = _profiles(real[entity], [(cells, first) for cells, first, _ in coded])
    theirs = _profiles(synthetic[entity], [(cells, second) for cells, _, second in coded])
    differences = []
    for _ in range(draws):
        centre = ours[rng.integers(len(ours), size=1)]
        tolerance = rng.integers(TOLERANCES[0], TOLERANCES[1] + 1, ours.shape[1:])
        shares = [_share_within(table, centre, tolerance) for table in (ours, theirs)]
        differences.append(abs(shares[0] - shares[1]))
    return float(1 - np.mean(differences))


def _profiles(
    entity: NDArray[Any], columns: Sequence[tuple[int, NDArray[np.int64]]]
) -> NDArray[np.int64]:
    """Counts of every entity, shape (entities, cells of all columns)."""
    ids, owner = np.unique(entity, return_inverse=True)
    parts = [
        np.bincount(owner * cells + codes, minlength=len(ids) * cells).reshape(len(ids), cells)
        for cells, codes in columns
    ]
    return np.concatenate(parts, axis=1).astype(np.int64)


def _share_within(
    profiles: NDArray[np.int64], centre: NDArray[np.int64], tolerance: NDArray[np.int64]
) -> float:
    if not len(profiles):
        return 0.0
    return float((np.abs(profiles - centre) <= tolerance).all(axis=1).mean())


def sprint1(real: NDArray[np.int64], synthetic: NDArray[np.int64]) -> float:
    """The Sprint 1 map score: the sum over neighbourhood-months, of which each gives 0 to 1.

    Both arrays hold counts, shape (..., types); the leading axes are the neighbourhood-months.
    Shares under 5 % are set to 0. Each loses its Jensen-Shannon divergence (base 2; 1 where
    only one side has counts), 0.2 for every type that only the synthetic side then has, and
    0.25 if the totals differ by more than 500.
    """
    types = real.shape[-1]
    ours, theirs = real.reshape(-1, types), synthetic.reshape(-1, types)
    kept, made = _large_shares(ours), _large_shares(theirs)
    misleading = ((kept == 0) & (made > 0)).sum(axis=1)
    biased = np.abs(ours.sum(axis=1) - theirs.sum(axis=1)) > LARGEST_BIAS
    lost = _divergence(kept, made) + MISLEADING_PENALTY * misleading + BIAS_PENALTY * biased
    return float(np.clip(1 - lost, 0, 1).sum())


def _large_shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Shares of at least 5 %, scaled to add up to 1; zeros where there are no counts."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    large = np.where(shares >= SMALLEST_SHARE, shares, 0.0)
    total = large.sum(axis=1, keepdims=True)
    scaled: NDArray[np.float64] = large / np.where(total > 0, total, 1)
    return scaled


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Jensen-Shannon, base 2, for each row of shares."""
    mean = (p + q) / 2
    divergence = (_relative_entropy(p, mean) + _relative_entropy(q, mean)) / 2
    one_sided = p.any(axis=1) != q.any(axis=1)
    return np.where(one_sided, 1.0, divergence)


def _relative_entropy(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
    entropy: NDArray[np.float64] = (p * np.log2(ratio)).sum(axis=1)
    return entropy


def _keys(table: Columns, columns: Sequence[str]) -> NDArray[Any]:
    return np.stack([table[name] for name in columns], axis=1)


def _numbered(
    real: NDArray[Any], synthetic: NDArray[Any]
) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """The number of distinct values (or rows) in both tables, and the number of each value."""
    both = np.concatenate([real, synthetic])
    found, number = np.unique(both, axis=0, return_inverse=True)
    number = number.reshape(-1).astype(np.int64)
    return len(found), number[: len(real)], number[len(real) :]
