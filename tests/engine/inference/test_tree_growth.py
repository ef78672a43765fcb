"""Greedy growth of a junction tree under a price for each cell."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from app.engine.inference.elimination import predicted_cells
from app.engine.inference.tree_growth import best_growth

Pair = tuple[str, str]
SHAPE = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 30}


class Fixed:
    """Candidates of gains that do not change; one pair may be too large for other reasons."""

    def __init__(self, gains: dict[Pair, float], unfit: Pair | None = None) -> None:
        self.gains = gains
        self.unfit = unfit
        self.open = sorted(gains, key=lambda pair: -gains[pair])
        self.pairs = list(gains)
        self.taken: list[Pair] = []

    @property
    def sum(self) -> float:
        return sum(self.gains[pair] for pair in self.taken)

    def promising(self, most: int) -> list[tuple[int, float]]:
        return [(self.pairs.index(pair), self.gains[pair]) for pair in self.open[:most]]

    def axes(self, candidate: int) -> Pair:
        return self.pairs[candidate]

    def fits(self, candidate: int) -> bool:
        return self.pairs[candidate] != self.unfit

    def take(self, candidate: int) -> None:
        self.taken.append(self.pairs[candidate])
        self.drop(candidate)

    def drop(self, candidate: int) -> None:
        self.open.remove(self.pairs[candidate])


def random_gains(seed: int) -> dict[Pair, float]:
    rng = np.random.default_rng(seed)
    return {pair: float(rng.uniform(0.1, 1)) for pair in combinations(SHAPE, 2)}


def grown(gains: dict[Pair, float], most: int, *prices: float, unfit: Pair | None = None) -> Fixed:
    return best_growth(lambda: Fixed(gains, unfit), SHAPE, (), most, prices, looked_at=4)


def test_all_are_taken_where_there_is_room_and_no_price() -> None:
    gains = random_gains(0)
    assert set(grown(gains, 2 * 3 * 4 * 5 * 30, 0.0).taken) == set(gains)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("most", [50, 150, 400])
def test_the_tree_keeps_within_its_cells(seed: int, most: int) -> None:
    run = grown(random_gains(seed), most, 0.0, 0.001, 0.01)
    assert predicted_cells(SHAPE, run.taken) <= most


@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_several_prices_is_no_worse_than_each(seed: int) -> None:
    gains = random_gains(seed)
    prices = (0.0, 0.001, 0.01, 0.1)
    sums = [grown(gains, 150, price).sum for price in prices]
    assert grown(gains, 150, *prices).sum == max(sums)


def test_a_price_leaves_out_what_adds_too_many_cells() -> None:
    gains = {("a", "b"): 0.5, ("d", "e"): 1.0}
    assert grown(gains, 1000, 0.1).taken == [("a", "b")]


def test_what_does_not_fit_for_other_reasons_is_left_out() -> None:
    gains = {("a", "b"): 0.5, ("a", "c"): 1.0}
    assert grown(gains, 1000, 0.0, unfit=("a", "c")).taken == [("a", "b")]


def test_cliques_of_the_start_count_against_the_cells() -> None:
    gains = {("a", "b"): 1.0}
    room = predicted_cells(SHAPE, [("d", "e")])
    found = best_growth(lambda: Fixed(gains), SHAPE, [("d", "e")], room, (0.0,), looked_at=4).taken
    # a and b joined are 6 cells in place of 5.
    assert found == []
