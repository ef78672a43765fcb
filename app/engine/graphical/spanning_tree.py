"""A maximum spanning tree of columns, chosen edge by edge with private selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from app.engine.columns.axes import Axes
from app.engine.inference.elimination import predicted_cells_with_each
from app.engine.inference.measurements import AxisNames
from app.engine.method import Session
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Count, GridReference

Pair = tuple[str, str]

# Of more open pairs several are taken at once: to score them all takes long.
_MANY_PAIRS = 1000

# Of the edges that are missing, so many parts are made, and the pairs of one taken at once.
_PART_AT_ONCE = 8

# No more are taken at once when what later edges can be paid has fallen by so much. The last such
# round wastes at most an eighth of what is left, so that a third of an equal part is always paid.
_LEAST_PART = 2

# A pair in one round: its question to the kernel, and its score.
_SECONDS_PER_OFFER = 1e-4


@dataclass(frozen=True)
class TreePrior:
    """A model that is known already: what it expects in each cell of a pair, the cliques of its
    junction tree, and how many cells this may have when pairs have been joined to it."""

    expected: Mapping[Pair, GridReference]
    cliques: Sequence[AxisNames]
    most_cells: int

    def fitting(self, axes: Axes, chosen: Sequence[Pair], pairs: Sequence[Pair]) -> list[Pair]:
        shape = dict(zip(axes.names, axes.shape, strict=True))
        sizes = predicted_cells_with_each(shape, [*self.cliques, *chosen], pairs)
        return [pair for pair, size in zip(pairs, sizes, strict=True) if size <= self.most_cells]


def least_loss(loss: PrivacyLoss, columns: int) -> PrivacyLoss:
    """What an edge of a tree over so many columns is paid at least, if all are chosen."""
    edges = max(columns - 1, 1)
    may_waste = columns * (columns - 1) // 2 > _MANY_PAIRS
    return loss.of_each(edges * (3 if may_waste else 1))


def selection_seconds(columns: int) -> float:
    """About how long a choice takes of one core, if all pairs stay open to the end, and waste
    leaves half of the edges to be taken one by one."""
    pairs, still, rounds = columns * (columns - 1) // 2, columns - 1, 0
    while 2 * still > columns:
        still -= _winners(pairs, still)
        rounds += 1
    return (rounds + still) * pairs * _SECONDS_PER_OFFER


def _winners(pairs: int, still: int) -> int:
    """How many of the open pairs a round takes, if so many edges are still missing."""
    return 1 if pairs <= _MANY_PAIRS else max(still // _PART_AT_ONCE, 1)


def choose_tree(
    session: Session,
    axes: Axes,
    references: Mapping[str, NDArray[np.float64]],
    loss: PrivacyLoss,
    *,
    most_cells: int,
    noise_per_cell: float,
    prior: TreePrior | None = None,
) -> tuple[Pair, ...]:
    """Pairs of columns that form a tree, strongest associations first.

    Kruskal's algorithm with a noisy maximum in each round, among the pairs that join two
    components. A pair's score is how far (L1, in counts) its histogram is from the product
    of `references`, the noisy one-way counts with one common total, less the distance that
    the noise of measuring it is expected to add, `noise_per_cell` times its cells (McKenna,
    Mullins, Sheldon and Miklau 2022). The loss is divided equally among d - 1 edges. Pairs of
    over `most_cells` cells are left out, so that what comes back may be a forest. With a `prior`
    a pair's score is how far it is from what that expects, and pairs that would make its
    junction tree too large are left out.

    Of many pairs a round takes several winners and pays for each. One that a stronger winner of
    its round has made useless is paid for nothing, and later edges share what is left; where that
    is not one unit of loss for each, they are left out.
    """
    open_pairs = [pair for pair in combinations(axes.names, 2) if _cells(axes, pair) <= most_cells]
    candidates = {
        pair: Candidate(
            Count(pair, {name: axes.groupings[name] for name in pair}),
            (references[pair[0]], _as_shares(references[pair[1]]))
            if prior is None
            else prior.expected[pair],
            bias=-noise_per_cell * _cells(axes, pair),
        )
        for pair in open_pairs
    }
    component = {name: name for name in axes.names}
    chosen: list[Pair] = []
    missing, left = len(axes.names) - 1, loss.amount
    equal = each = left // max(missing, 1)
    while missing > len(chosen):
        open_pairs = _useful(axes, chosen, component, open_pairs, prior)
        still = missing - len(chosen)
        each = min(each, left // still)
        if not open_pairs or (len(open_pairs) > 1 and not each):
            break
        is_thrifty = each * _LEAST_PART < equal
        winners = 1 if is_thrifty else _winners(len(open_pairs), still)
        paid = PrivacyLoss(loss.kind, each * winners)
        left -= paid.amount
        for pair in _strongest(session, [candidates[pair] for pair in open_pairs], paid, winners):
            if winners > 1 and not _useful(axes, chosen, component, [pair], prior):
                continue
            chosen.append(pair)
            joined, kept = component[pair[1]], component[pair[0]]
            component = {name: kept if own == joined else own for name, own in component.items()}
    return tuple(chosen)


def _useful(
    axes: Axes,
    chosen: Sequence[Pair],
    component: Mapping[str, str],
    pairs: Sequence[Pair],
    prior: TreePrior | None,
) -> list[Pair]:
    """Those that join two components, and leave the tree of a prior small enough."""
    joining = [pair for pair in pairs if component[pair[0]] != component[pair[1]]]
    return joining if prior is None else prior.fitting(axes, chosen, joining)


def _strongest(
    session: Session, candidates: Sequence[Candidate], loss: PrivacyLoss, winners: int
) -> list[Pair]:
    """Best first. A single candidate wins without a question."""
    won = (0,) if len(candidates) == 1 else session.select(candidates, loss, winners)
    columns = [candidates[winner].count.columns for winner in won]
    return [(first, second) for first, second in columns]


def _as_shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    total = counts.sum()
    return counts / total if total > 0 else counts


def _cells(axes: Axes, pair: Pair) -> int:
    return axes.groupings[pair[0]].cells * axes.groupings[pair[1]].cells
