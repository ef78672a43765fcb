"""Greedy choice of the cliques of a junction tree, with a price for each cell that a clique adds.

Each step compares the most promising candidates. It takes the one with the largest gain less the
price of the cells that it adds, as long as this is positive. A high price is better where cells
are scarce, and a price of 0 where they are not. So several prices are tried, and the run with the
largest sum of gains is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from app.engine.inference.elimination import GrowingTree
from app.engine.inference.measurements import AxisNames


class Candidates(Protocol):
    """Numbered sets of axes that may be taken, with the gain of each."""

    @property
    def sum(self) -> float:
        """The sum of the gains of all candidates that were taken."""
        ...

    def promising(self, most: int) -> Sequence[tuple[int, float]]:
        """At most `most` open candidates and their gains, which are positive."""
        ...

    def axes(self, candidate: int) -> AxisNames: ...

    def fits(self, candidate: int) -> bool:
        """Whether it may still be taken, apart from the size of the tree."""
        ...

    def take(self, candidate: int) -> None: ...

    def drop(self, candidate: int) -> None: ...


AnyCandidates = TypeVar("AnyCandidates", bound=Candidates)


def best_growth(
    start: Callable[[], AnyCandidates],
    shape: Mapping[str, int],
    cliques: Sequence[AxisNames],
    most_cells: int,
    prices: Sequence[float],
    *,
    looked_at: int,
) -> AnyCandidates:
    """The run with the largest sum of gains, among one run for each price; deterministic.

    `start` makes new candidates, none of them taken. The junction tree of `cliques` and the taken
    candidates has at most `most_cells` cells. A step compares the `looked_at` most promising ones.
    """
    runs = []
    for price in prices:
        runs.append(start())
        _grow(runs[-1], GrowingTree(shape, cliques), most_cells, price, looked_at)
    return max(runs, key=lambda run: run.sum)


def _grow(
    run: Candidates, tree: GrowingTree, most_cells: int, price: float, looked_at: int
) -> None:
    (cells,) = tree.with_each([()])
    while promising := run.promising(looked_at):
        best: tuple[float, int, int] | None = None
        grown = tree.with_each([run.axes(candidate) for candidate, _ in promising])
        for (candidate, gain), size in zip(promising, grown, strict=True):
            net = gain - price * (size - cells)
            if net <= 0 or size > most_cells or not run.fits(candidate):
                # A tree only grows, so a candidate that is too large now stays too large.
                run.drop(candidate)
            elif best is None or net > best[0]:
                best = net, candidate, size
        if best is not None:
            _, candidate, cells = best
            tree.add(run.axes(candidate))
            run.take(candidate)
