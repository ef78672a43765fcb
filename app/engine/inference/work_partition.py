"""Work on a junction tree, divided between two threads by the sizes of its cliques alone.

Branches of the tree go to one thread or the other, and what holds them together, the trunk, to
the first. A clique is one thread's as a whole, so the same loops write the same cells in the same
order whoever runs them. The tree is hung at the clique that leaves least to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.junction_tree import JunctionTree

Numbers = NDArray[np.int64]
Sizes = Sequence[int]

# The fewest cells of the other thread: to hand work over takes as long as some 10,000 cells do.
_LEAST_CELLS = 2**16


@dataclass(frozen=True, eq=False)
class DividedTree:
    """A tree hung anew, and its cliques' numbers, rising: of either thread, and of the trunk.

    `places` lists where each clique of the original tree stands now.
    """

    tree: JunctionTree
    places: tuple[int, ...]
    own: Numbers
    other: Numbers
    trunk: Numbers

    @classmethod
    def of(cls, tree: JunctionTree) -> DividedTree:
        """Where the other thread would have little to do, the first does everything, and the root
        is the smallest clique."""
        least, best, owners = tree.cells + 1, 0, {}
        roots = sorted(range(len(tree.sizes)), key=lambda i: (tree.sizes[i], i))
        for root in roots if tree.cells >= 2 * _LEAST_CELLS else roots[:1]:
            waiting, dealt = _least_waiting(*_hung(tree.neighbours, root), tree.sizes)
            if waiting < least:
                least, best, owners = waiting, root, dealt
        hung, order = tree.rooted_at(best)
        owned = np.array([owners.get(clique, -1) for clique in order])
        return cls(
            hung,
            tuple(np.argsort(order).tolist()),
            *(np.flatnonzero(owned == owner).astype(np.int64) for owner in (0, 1, -1)),
        )


def _hung(neighbours: Sequence[Sequence[int]], root: int) -> tuple[list[int], dict[int, int]]:
    """Cliques in an order that puts parents first, and the parent of each but the root."""
    order: list[int] = [root]
    parents: dict[int, int] = {}
    for clique in order:
        for near in neighbours[clique]:
            if near != parents.get(clique):
                parents[near] = clique
                order.append(near)
    return order, parents


def _least_waiting(
    order: Sequence[int], parents: dict[int, int], sizes: Sizes
) -> tuple[int, dict[int, int]]:
    """The cells of the trunk and of the thread that has more, and whose each clique is."""
    branches = list(sizes)
    children: dict[int, list[int]] = {clique: [] for clique in order}
    for clique in reversed(order[1:]):
        branches[parents[clique]] += branches[clique]
        children[parents[clique]].append(clique)
    tops, trunk = [order[0]], 0
    waiting, owners = branches[order[0]], {order[0]: 0}
    while tops and trunk < waiting:
        largest = max(tops, key=lambda top: (branches[top], -top))
        trunk += sizes[largest]
        tops.remove(largest)
        tops += children[largest]
        loads, dealt = _dealt(tops, branches)
        if min(loads) >= _LEAST_CELLS and trunk + max(loads) < waiting:
            waiting, owners = trunk + max(loads), dealt
    for clique in order:
        if clique in parents and parents[clique] in owners:
            owners[clique] = owners[parents[clique]]
    return waiting, owners


def _dealt(tops: Sequence[int], branches: Sizes) -> tuple[list[int], dict[int, int]]:
    """The cells of either thread, and whose each branch is: the largest first, to who has less."""
    loads, owners = [0, 0], {}
    for top in sorted(tops, key=lambda top: (-branches[top], top)):
        owners[top] = int(loads[1] < loads[0])
        loads[owners[top]] += branches[top]
    return loads, owners
