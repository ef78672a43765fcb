"""How many rows entities have, and how these spread over the values of a column.

Both are histograms, from which sizes and targets of synthetic entities are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.entities.assignment import Target
from app.engine.entities.tuning import TUNING
from app.engine.inference.rounding import apportion
from app.engine.method.model_file import ModelFormatError
from app.engine.method.model_file import weights as stored_weights

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_STEEPEST = 8.0
_HALVINGS = 40


def row_edges(most: int) -> Ints:
    """First row numbers of the cells, then `most + 1`: single numbers up to 8, then cells that
    grow by a quarter; `most`, where bounding piles up entities, has its own."""
    edges = list(range(1, min(TUNING.single_rows, most) + 1))
    while (following := max(edges[-1] + 1, round(edges[-1] * TUNING.growth_of_rows))) < most:
        edges.append(following)
    return np.unique(np.array([*edges, most, most + 1], dtype=np.int64))


def apportioned(weights: Floats, total: int, rng: np.random.Generator) -> Ints:
    """Cell numbers, `total` of them in rising order, each about as often as it weighs."""
    counts = apportion(weights, total, rng)
    return np.repeat(np.arange(len(weights), dtype=np.int64), counts)


@dataclass(frozen=True)
class RowsPerEntity:
    """Cell i has entities of `edges[i]` to `edges[i + 1] - 1` rows and weighs `weights[i]`.

    edges: int64, shape (cells + 1,), rising from 1. weights: float64, shape (cells,), not
    negative and not all 0.
    """

    edges: Ints
    weights: Floats

    @property
    def most(self) -> int:
        """The most rows that any drawn entity has, before sizes are fitted to a total."""
        last = int(np.flatnonzero(self.weights)[-1])
        return int(self.edges[last + 1]) - 1

    @property
    def middles(self) -> Floats:
        """Mean rows of each cell, were they even within it."""
        return (self.edges[:-1] + self.edges[1:] - 1) / 2

    @property
    def mean(self) -> float:
        return float(self.middles @ self.weights / self.weights.sum())

    def draw(self, entities: int, rng: np.random.Generator) -> Ints:
        """Sizes in random order, even within each cell."""
        cells = apportioned(self.weights, entities, rng)
        sizes = rng.integers(self.edges[cells], self.edges[cells + 1])
        rng.shuffle(sizes)
        return sizes

    def tilted(self, mean: float) -> RowsPerEntity:
        """The weights times a power of the rows: their mean is so, or as near as it gets."""
        low, high = -_STEEPEST, _STEEPEST
        scale = np.log(self.middles)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            power = scale * middle
            found = RowsPerEntity(self.edges, self.weights * np.exp(power - power.max()))
            low, high = (middle, high) if found.mean < mean else (low, middle)
        return found

    def sizes(self, entities: int, rows: int, max_rows: int, rng: np.random.Generator) -> Ints:
        """Sizes that add up to `rows`, shape (entities,), each 1 to `max_rows`.

        The histogram is tilted by a power of the rows until its mean is right; what is then missing
        moves sizes within their cells, and only where that does not do beyond. There are as many
        rows as entities at least, and no more than `max_rows` for each.
        """
        sizes = self.tilted(rows / entities).draw(entities, rng)
        cells = np.searchsorted(self.edges, sizes, side="right") - 1
        lows, highs = self.edges[cells], self.edges[cells + 1] - 1
        for least, most in ((lows, highs), (np.ones_like(sizes), np.full_like(sizes, max_rows))):
            sizes = _towards(sizes, least, np.maximum(most, sizes), rows, rng)
        return sizes

    def to_arrays(self) -> dict[str, Ints | Floats]:
        return {"rows_edges": self.edges, "rows_weights": self.weights}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], max_rows: int) -> RowsPerEntity:
        """Raises `ModelFormatError` for what `to_arrays` cannot have made."""
        edges = stored_edges(arrays, "rows_edges", max_rows + 1)
        return cls(edges, stored_shares(arrays, "rows_weights", (len(edges) - 1,)))


def _towards(sizes: Ints, least: Ints, most: Ints, rows: int, rng: np.random.Generator) -> Ints:
    """Sizes moved between their bounds so that they add up to `rows`, or as near as they can."""
    missing = rows - int(sizes.sum())
    room = most - sizes if missing > 0 else sizes - least
    steps = min(abs(missing), int(room.sum()))
    if steps == 0:
        return sizes
    moved = apportion(room.astype(np.float64), steps, rng)
    return sizes + moved if missing > 0 else sizes - moved


def stored_edges(arrays: Mapping[str, NDArray[Any]], name: str, last: int) -> Ints:
    """Edges from 1, rising, to at most `last`."""
    edges = arrays.get(name)
    if edges is None or edges.ndim != 1 or edges.dtype != np.int64 or len(edges) < 2:
        raise ModelFormatError(f"the stored model has no valid `{name}`")
    if edges[0] != 1 or edges[-1] > last or (np.diff(edges) <= 0).any():
        raise ModelFormatError(f"`{name}` of the stored model holds impossible values")
    return edges.astype(np.int64)


def stored_shares(arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> Floats:
    """Weights of which each line along the last axis has a positive sum."""
    found = stored_weights(arrays, name, shape)
    totals = found.sum(axis=-1)
    if not (np.isfinite(totals).all() and (totals > 0).all()):
        raise ModelFormatError(f"`{name}` of the stored model weighs nothing")
    return found


@dataclass(frozen=True)
class ColumnProfile:
    """Two histograms of entities for a column.

    *Distinct values*: an entity of `groups[g]` to `groups[g + 1] - 1` rows has `values[d]` to
    `values[d + 1] - 1` distinct values with weight `distinct[g, d]`. *Spread*: with two values
    or more, and rows per value from `ratios[r - 1]` to below `ratios[r]`, the standard deviation
    of the rows of its values lies from `deviations[s]` to below `deviations[s + 1]` with weight
    `spread[r, s]`.

    Edges are int64 and rise from 1; ratios and deviations are float64 and rise, deviations from
    0; the weights of each line have a positive sum.
    """

    column: str
    groups: Ints
    values: Ints
    distinct: Floats
    ratios: Floats
    deviations: Floats
    spread: Floats

    def draw(self, sizes: Ints, rng: np.random.Generator) -> Target:
        """What entities of these sizes are to be like."""
        distinct = self._distinct(sizes, rng)
        return Target(distinct, self._squares(sizes, distinct, rng))

    def _distinct(self, sizes: Ints, rng: np.random.Generator) -> Ints:
        """The larger entities of a group have more values, but for some jitter."""
        group = np.clip(
            np.searchsorted(self.groups, sizes, side="right") - 1, 0, len(self.distinct) - 1
        )

        def drawn(cells: Ints) -> Floats:
            return rng.integers(self.values[cells], self.values[cells + 1]).astype(np.float64)

        found = _by_group(group, sizes.astype(np.float64), self.distinct, drawn, rng)
        return np.clip(found.astype(np.int64), 1, sizes)

    def _squares(self, sizes: Ints, distinct: Ints, rng: np.random.Generator) -> Ints:
        """The sum of the squared rows of each value: of deviation s, d s^2 + n^2 / d."""
        ratio = sizes / distinct
        group = np.searchsorted(self.ratios, ratio, side="right")

        def drawn(cells: Ints) -> Floats:
            return rng.uniform(self.deviations[cells], self.deviations[cells + 1])

        deviation = np.zeros(len(sizes))
        several = distinct > 1
        deviation[several] = _by_group(group[several], ratio[several], self.spread, drawn, rng)
        wanted = np.rint(distinct * deviation**2 + sizes * ratio)
        whole, over = np.divmod(sizes, distinct)
        least = distinct * whole**2 + over * (2 * whole + 1)
        most = (sizes - distinct + 1) ** 2 + distinct - 1
        return np.clip(np.minimum(wanted, 2.0**62).astype(np.int64), least, most)

    def to_arrays(self, number: int) -> dict[str, Ints | Floats]:
        return {
            f"habit{number}_groups": self.groups,
            f"habit{number}_values": self.values,
            f"habit{number}_distinct": self.distinct,
            f"habit{number}_ratios": self.ratios,
            f"habit{number}_deviations": self.deviations,
            f"habit{number}_spread": self.spread,
        }

    @classmethod
    def from_arrays(
        cls, column: str, number: int, arrays: Mapping[str, NDArray[Any]], max_rows: int
    ) -> ColumnProfile:
        """Raises `ModelFormatError` for what `to_arrays` cannot have made."""
        groups = stored_edges(arrays, f"habit{number}_groups", max_rows + 1)
        values = stored_edges(arrays, f"habit{number}_values", max_rows + 1)
        ratios = _stored_cuts(arrays, f"habit{number}_ratios", max_rows)
        deviations = _stored_cuts(arrays, f"habit{number}_deviations", max_rows)
        if len(deviations) < 2 or deviations[0] != 0:
            raise ModelFormatError("the stored model has no valid deviations")
        distinct = (len(groups) - 1, len(values) - 1)
        spread = (len(ratios) + 1, len(deviations) - 1)
        return cls(
            column,
            groups,
            values,
            stored_shares(arrays, f"habit{number}_distinct", distinct),
            ratios,
            deviations,
            stored_shares(arrays, f"habit{number}_spread", spread),
        )


def _by_group(
    group: Ints,
    order: Floats,
    weights: Floats,
    drawn: Callable[[Ints], Floats],
    rng: np.random.Generator,
) -> Floats:
    """A number for each entity from the histogram of its group, rising about as `order` does."""
    found = np.empty(len(group))
    rank = order * np.exp(TUNING.jitter * rng.standard_normal(len(order)))
    for number in np.unique(group):
        members = np.flatnonzero(group == number)
        numbers = drawn(apportioned(weights[number], len(members), rng))
        found[members[np.argsort(rank[members], kind="stable")]] = np.sort(numbers)
    return found


def _stored_cuts(arrays: Mapping[str, NDArray[Any]], name: str, most: int) -> Floats:
    cuts = arrays.get(name)
    if cuts is None or cuts.ndim != 1 or cuts.dtype != np.float64:
        raise ModelFormatError(f"the stored model has no valid `{name}`")
    if not np.isfinite(cuts).all() or (np.diff(cuts) <= 0).any():
        raise ModelFormatError(f"`{name}` of the stored model holds impossible values")
    if cuts.size and not 0 <= cuts[0] <= cuts[-1] <= most:
        raise ModelFormatError(f"`{name}` of the stored model holds impossible values")
    return cuts
