"""How the rows of an entity spread over the values of a column, and targets drawn from that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.entities.assignment import Target
from app.engine.entities.rows_per_entity import apportioned, stored_edges, stored_shares
from app.engine.entities.tuning import TUNING
from app.engine.method.model_file import ModelFormatError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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
