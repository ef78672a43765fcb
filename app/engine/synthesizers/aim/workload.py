"""Marginals that the synthetic table is to answer, and those that may be measured for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from app.engine.synthesizers.aim.tuning import TUNING

Clique = tuple[str, ...]

# Marginals of a workload and their own: a selection offers all, and each has a reference.
MOST_CANDIDATES = 8000


@dataclass(frozen=True)
class Workload:
    """Marginals over columns of `names` with their weights; columns in the order of `names`."""

    names: Clique
    marginals: tuple[Clique, ...]
    weights: tuple[float, ...]

    @classmethod
    def of_degree(
        cls, names: Clique, degree: int, column_weights: Mapping[str, float], target: str | None
    ) -> Workload:
        """All marginals of `degree` columns, of all columns where there are fewer."""
        marginals = tuple(combinations(names, min(degree, len(names))))
        return cls.of(names, marginals, (1.0,) * len(marginals), column_weights, target)

    @classmethod
    def of(
        cls,
        names: Clique,
        marginals: Sequence[Clique],
        weights: Sequence[float],
        column_weights: Mapping[str, float],
        target: str | None,
    ) -> Workload:
        """A marginal's weight times those of its columns; the target counts four times."""
        rank = {name: i for i, name in enumerate(names)}
        of_column = dict.fromkeys(names, 1.0) | dict(column_weights)
        if target is not None:
            of_column[target] *= TUNING.target_weight
        return cls(
            names,
            tuple(tuple(sorted(marginal, key=rank.__getitem__)) for marginal in marginals),
            tuple(
                weight * float(np.prod([of_column[name] for name in marginal]))
                for marginal, weight in zip(marginals, weights, strict=True)
            ),
        )

    @cached_property
    def closure(self) -> tuple[Clique, ...]:
        """The marginals and all marginals of these, each once, the smallest first."""
        found = {
            part: None
            for marginal in self.marginals
            for size in range(1, len(marginal) + 1)
            for part in combinations(marginal, size)
        }
        rank = {name: i for i, name in enumerate(self.names)}
        return tuple(sorted(found, key=lambda part: (len(part), [rank[name] for name in part])))

    @property
    def candidates(self) -> tuple[Clique, ...]:
        """Those of the closure that say more than the one-way histograms."""
        return tuple(part for part in self.closure if len(part) > 1)

    def weight(self, clique: Clique) -> float:
        """The sum of the weights of the marginals that hold the clique."""
        return sum(
            weight
            for marginal, weight in zip(self.marginals, self.weights, strict=True)
            if set(clique) <= set(marginal)
        )

    def relevance(self, cliques: Sequence[Clique]) -> NDArray[np.float64]:
        """How much each clique bears on the workload: the sum over its marginals s of their weight
        times the columns that the clique shares with s (McKenna et al. 2022, section 4.1).

        The largest is 1. That the sum is one over columns makes it quick.
        """
        of_column = dict.fromkeys(self.names, 0.0)
        for marginal, weight in zip(self.marginals, self.weights, strict=True):
            for name in marginal:
                of_column[name] += weight
        sums = np.array([sum(of_column[name] for name in clique) for clique in cliques])
        return sums / sums.max() if sums.size and sums.max() > 0 else sums


def smallest(
    cliques: Sequence[Clique], shape: Mapping[str, int], *, each: int, in_all: int
) -> tuple[Clique, ...]:
    """The cliques of at most `each` cells, as many of the smallest as have `in_all` together."""
    sizes = {clique: prod(shape[name] for name in clique) for clique in cliques}
    kept: set[Clique] = set()
    cells = 0
    for clique in sorted(cliques, key=sizes.__getitem__):
        cells += sizes[clique]
        if sizes[clique] > each or cells > in_all:
            break
        kept.add(clique)
    return tuple(clique for clique in cliques if clique in kept)


def usual_degree(columns: int) -> int:
    """3 where the selection can offer all triples and pairs, else 2."""
    return 3 if candidates_of_degree(columns, 3) <= MOST_CANDIDATES else 2


def candidates_of_degree(columns: int, degree: int) -> int:
    return sum(comb(columns, size) for size in range(1, degree + 1))
