"""A maximum spanning tree of columns, chosen edge by edge with private selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.junction import predicted_with_each
from app.engine.inference.measurements import AxisNames
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Count, GridReference
from app.engine.synthesizers.axes import Axes
from app.engine.synthesizers.base import Session

Pair = tuple[str, str]

_LOOKED_AT_EACH_ROUND = 1000
"""Pairs whose junction trees are looked at anew in every round: of more, so many on average."""


@dataclass(frozen=True)
class KnownStart:
    """A model that is known already: what it expects in each cell of a pair, the cliques of its
    junction tree, and how many cells this may have when pairs have been joined to it."""

    expected: Mapping[Pair, GridReference]
    cliques: Sequence[AxisNames]
    most_cells: int

    def fitting(self, axes: Axes, chosen: Sequence[Pair], pairs: Sequence[Pair]) -> list[Pair]:
        shape = dict(zip(axes.names, axes.shape, strict=True))
        sizes = predicted_with_each(shape, [*self.cliques, *chosen], pairs)
        return [pair for pair, size in zip(pairs, sizes, strict=True) if size <= self.most_cells]


def choose_tree(
    session: Session,
    axes: Axes,
    references: Mapping[str, NDArray[np.float64]],
    loss: PrivacyLoss,
    *,
    most_cells: int,
    noise_per_cell: float,
    start: KnownStart | None = None,
) -> tuple[Pair, ...]:
    """Pairs of columns that form a tree, strongest associations first.

    Kruskal's algorithm with a noisy maximum in each round, among the pairs that join two
    components. A pair's score is how far (L1, in counts) its histogram is from the product
    of `references`, the noisy one-way counts with one common total, less the distance that
    the noise of measuring it is expected to add, `noise_per_cell` times its cells (McKenna,
    Mullins, Sheldon and Miklau 2022). The loss is divided equally among the d - 1 rounds.
    Pairs of over `most_cells` cells are left out, so that what comes back may be a forest. With
    a `start` a pair's score is how far it is from what that expects, and pairs that would make
    its junction tree too large are left out: of thousands once in some rounds, and a pair that
    has come to be too large since then, if it wins, takes its round's loss for nothing.
    """
    open_pairs = [pair for pair in combinations(axes.names, 2) if _cells(axes, pair) <= most_cells]
    candidates = {
        pair: Candidate(
            Count(pair, {name: axes.groupings[name] for name in pair}),
            (references[pair[0]], _as_shares(references[pair[1]]))
            if start is None
            else start.expected[pair],
            bias=-noise_per_cell * _cells(axes, pair),
        )
        for pair in open_pairs
    }
    component = {name: name for name in axes.names}
    chosen: list[Pair] = []
    rounds = max(1, -(-len(open_pairs) // _LOOKED_AT_EACH_ROUND))
    for number, round_loss in enumerate(loss.split([1.0] * max(1, len(axes.names) - 1))):
        open_pairs = [pair for pair in open_pairs if component[pair[0]] != component[pair[1]]]
        if start is not None and number % rounds == 0:
            open_pairs = start.fitting(axes, chosen, open_pairs)
        if not open_pairs:
            break
        pair = _strongest(session, [candidates[pair] for pair in open_pairs], round_loss)
        if start is not None and rounds > 1 and not start.fitting(axes, chosen, [pair]):
            open_pairs.remove(pair)
            continue
        chosen.append(pair)
        joined, kept = component[pair[1]], component[pair[0]]
        component = {name: kept if own == joined else own for name, own in component.items()}
    return tuple(chosen)


def _strongest(session: Session, candidates: list[Candidate], loss: PrivacyLoss) -> Pair:
    winner = 0 if len(candidates) == 1 else session.select(candidates, loss)[0]
    first, second = candidates[winner].count.columns
    return first, second


def _as_shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    total = counts.sum()
    return counts / total if total > 0 else counts


def _cells(axes: Axes, pair: Pair) -> int:
    return axes.groupings[pair[0]].cells * axes.groupings[pair[1]].cells
