"""Which sets of axes to join in a junction tree, if each cell that the tree grows by has a price.

Greedy: of the candidates that promise most, the one is taken whose gain is largest after the price
of the cells that it adds, as long as any is worth its price. Where cells are scarce a high price
does better, where they are not a price of 0: some are tried, and the best sum of gains wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from app.engine.inference.elimination import GrowingTree
from app.engine.inference.measurements import AxisNames


class Candidates(Protocol):
    """Sets of axes that may be taken, numbered, and what each would add to a sum of gains."""

    @property
    def sum(self) -> float:
        """What all that were taken gain together."""
        ...

    def promising(self, most: int) -> Sequence[tuple[int, float]]:
        """At most so many open candidates and their gains, which are positive."""
        ...

    def axes(self, candidate: int) -> AxisNames: ...

    def fits(self, candidate: int) -> bool:
        """Whether it may still be taken, whatever the tree has room for."""
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
    """The run with the largest sum among one for each price of a cell; deterministic.

    `start` makes the candidates of which none is taken. The junction tree over those taken and
    `cliques` has at most `most_cells` cells. A step compares the `looked_at` most promising.
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
                run.drop(candidate)
            elif best is None or net > best[0]:
                best = net, candidate, size
        if best is not None:
            _, candidate, cells = best
            tree.add(run.axes(candidate))
            run.take(candidate)
