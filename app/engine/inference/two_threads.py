"""Work on a junction tree by two threads, if this process may use two processors.

Each branch of the tree goes to one of the threads, by the sizes of the cliques. The trunk, which
connects the branches, goes to the first. A clique is never divided, so the same loops write the
same cells in the same order, whichever thread runs them and whether there is another one at all.
The root is chosen such that the longest wait is shortest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from app.engine.inference.junction_tree import JunctionTree


def run_both(own: Callable[[], None], other: Callable[[], None]) -> None:
    """Runs both and returns when both are done. They must write to separate memory.

    On a busy machine the other thread may not have begun when `own` is done. Then this thread
    runs `other` too, instead of waiting.
    """
    thread = _other_thread() if processors() > 1 else None
    if thread is None:
        own()
        other()
        return
    waiting = thread.submit(other)
    try:
        own()
    finally:
        # Also after an error: the other piece may still be writing to the caller's buffers.
        is_left = waiting.cancel()
        if not is_left:
            waiting.result()
    if is_left:
        other()


@cache
def processors() -> int:
    """How many this process may use; some systems only report how many there are."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _other_thread() -> ThreadPoolExecutor | None:
    """None if the process cannot start a thread."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="inference")
    try:
        thread.submit(int).result()
    except RuntimeError:
        return None
    return thread


# A forked process does not inherit the thread, so it must start its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_other_thread.cache_clear)


Numbers = NDArray[np.int64]
Sizes = Sequence[int]

# The second thread gets at least this many cells, or no work at all: handing work over takes as
# long as about 10,000 cells do.
_LEAST_CELLS = 2**16


@dataclass(frozen=True, eq=False)
class DividedTree:
    """A tree with a new root, and the numbers of the cliques of each thread and of the trunk.

    Numbers are in increasing order. `places` gives the new number of each clique of the original
    tree.
    """

    tree: JunctionTree
    places: tuple[int, ...]
    own: Numbers
    other: Numbers
    trunk: Numbers

    @classmethod
    def of(cls, tree: JunctionTree) -> DividedTree:
        """A division; if two threads would not be faster, the first does all the work.

        The root is then the smallest clique.
        """
        least, best, owners = tree.cells + 1, 0, {}
        roots = sorted(range(len(tree.sizes)), key=lambda i: (tree.sizes[i], i))
        for root in roots if tree.cells >= 2 * _LEAST_CELLS else roots[:1]:
            waiting, assigned = _least_waiting(*_rooted(tree.neighbours, root), tree.sizes)
            if waiting < least:
                least, best, owners = waiting, root, assigned
        hung, order = tree.rooted_at(best)
        owned = np.array([owners.get(clique, -1) for clique in order])
        return cls(
            hung,
            tuple(np.argsort(order).tolist()),
            *(np.flatnonzero(owned == owner).astype(np.int64) for owner in (0, 1, -1)),
        )


def _rooted(neighbours: Sequence[Sequence[int]], root: int) -> tuple[list[int], dict[int, int]]:
    """The cliques, parents before children, and the parent of each clique but the root."""
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
    """The shortest time until all is done, in cells, and the thread of each clique (0 or 1).

    The time is that of the trunk plus that of the thread with more cells.
    """
    branches = list(sizes)
    children: dict[int, list[int]] = {clique: [] for clique in order}
    for clique in reversed(order[1:]):
        branches[parents[clique]] += branches[clique]
        children[parents[clique]].append(clique)
    tops, trunk = [order[0]], 0
    waiting, owners = branches[order[0]], {order[0]: 0}
    # The largest branch is split into its top, which joins the trunk, and its children, as long as
    # a larger trunk can still be worth it.
    while tops and trunk < waiting:
        largest = max(tops, key=lambda top: (branches[top], -top))
        trunk += sizes[largest]
        tops.remove(largest)
        tops += children[largest]
        loads, assigned = _assigned(tops, branches)
        if min(loads) >= _LEAST_CELLS and trunk + max(loads) < waiting:
            waiting, owners = trunk + max(loads), assigned
    for clique in order:
        if clique in parents and parents[clique] in owners:
            owners[clique] = owners[parents[clique]]
    return waiting, owners


def _assigned(tops: Sequence[int], branches: Sizes) -> tuple[list[int], dict[int, int]]:
    """The cells of both threads, and the thread of each branch.

    The largest branch goes first, each to the thread with fewer cells (Graham 1969).
    """
    loads, owners = [0, 0], {}
    for top in sorted(tops, key=lambda top: (-branches[top], top)):
        owners[top] = int(loads[1] < loads[0])
        loads[owners[top]] += branches[top]
    return loads, owners
