"""Distances between marginals, on cases worked by hand and against a plain count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.engine import marginals
from app.engine.grouping import Grouping
from app.engine.marginals import Marginal, chosen, distances, distinct, total_variation


class Chunks:
    """A table in memory, cut into chunks of so many rows."""

    def __init__(self, rows: Sequence[tuple[int, ...]], names: str, size: int = 3) -> None:
        table = np.array(rows, dtype=np.uint8).reshape(len(rows), len(names))
        self._codes = {name: table[:, place] for place, name in enumerate(names)}
        self._rows, self._size = len(rows), size

    def chunks(self, columns: Sequence[str]) -> Iterator[Mapping[str, NDArray[Any]]]:
        for first in range(0, self._rows, self._size):
            yield {name: self._codes[name][first : first + self._size] for name in columns}


def marginal(**cells: int) -> Marginal:
    return Marginal({name: Grouping.identity(number, 0) for name, number in cells.items()})


@pytest.mark.parametrize(
    ("real", "synthetic", "distance"),
    [
        ([4, 4], [1, 1], 0.0),
        ([8, 0], [0, 3], 1.0),
        ([6, 2], [1, 1], 0.25),  # 3/4 and 1/4 beside halves
        ([0, 0], [0, 0], 0.0),
        ([0, 0], [1, 0], 1.0),
    ],
)
def test_total_variation_by_hand(real: list[int], synthetic: list[int], distance: float) -> None:
    assert total_variation(np.array(real), np.array(synthetic)) == pytest.approx(distance)


def test_a_distance_is_in_the_cells_of_the_grouping() -> None:
    real, synthetic = Chunks([(0,), (1,), (2,), (3,)], "a"), Chunks([(1,), (1,), (2,), (2,)], "a")
    halves = Marginal({"a": Grouping((0, 2, 4), 0)})
    assert list(distances(real, synthetic, [marginal(a=4), halves])) == [0.5, 0.0]


rows = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=12)


@given(rows, rows, st.booleans(), st.sampled_from([2**63, 16, 15, 4]))
def test_every_marginal_agrees_with_a_plain_count(
    real: list[tuple[int, ...]], synthetic: list[tuple[int, ...]], sparse: bool, numbered: int
) -> None:
    names = "abc"
    wanted = [
        marginal(**dict.fromkeys(columns, 4))
        for size in (1, 2, 3)
        for columns in combinations(names, size)
    ]
    with pytest.MonkeyPatch.context() as patch:
        if sparse:  # cells that occur are kept, and few marginals are held at once
            patch.setattr(marginals, "_DENSE_CELLS", 5)
            patch.setattr(marginals, "_CELLS_AT_ONCE", 10)
            patch.setattr(marginals, "_MOST_NUMBERED", numbered)
        found = list(distances(Chunks(real, names), Chunks(synthetic, names), wanted))
    assert found == pytest.approx([_plain(real, synthetic, names, each) for each in wanted])


def _plain(
    real: list[tuple[int, ...]], synthetic: list[tuple[int, ...]], names: str, each: Marginal
) -> float:
    places = [names.index(name) for name in each.columns]
    sides = [[tuple(row[place] for place in places) for row in side] for side in (real, synthetic)]
    cells = set(sides[0]) | set(sides[1])
    shares = [{cell: side.count(cell) / len(side) for cell in cells} for side in sides]
    return sum(abs(shares[0][cell] - shares[1][cell]) for cell in cells) / 2


def test_marginals_of_more_cells_than_63_bits_tell_all_of_them_apart() -> None:
    """Fourteen columns of 64 cells: 2^84, of which the first columns hold the difference."""
    names = "abcdefghijklmn"
    wide = marginal(**dict.fromkeys(names, 64))
    rows = [(place, 2 * place, 3 * place, *[0] * 11) for place in range(20)]
    others = [(place + 20, 2 * place + 1, 3 * place + 1, *[0] * 11) for place in range(20)]
    sides = [Chunks(each, names) for each in (rows, others, rows[:10] + others[10:])]
    assert list(distances(sides[0], sides[1], [wide])) == [1.0]
    assert list(distances(sides[0], sides[0], [wide])) == [0.0]
    assert list(distances(sides[0], sides[2], [wide])) == pytest.approx([0.5])
    assert [len(run) for run in wide.words] == [10, 4]


def test_distinct_values_are_each_once_whatever_their_sign() -> None:
    assert distinct(np.array([3, -5, 3, -1, -5, 0])).tolist() == [-5, -1, 0, 3]
    assert distinct(np.zeros(0, dtype=np.int64)).tolist() == []


def test_all_choices_are_taken_where_there_are_few() -> None:
    assert chosen("abc", 2, 3, seed=1) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert chosen("ab", 3, 100, seed=1) == []


def test_many_choices_are_drawn_with_a_public_seed() -> None:
    names = [f"c{number}" for number in range(40)]
    drawn = chosen(names, 3, 100, seed=1)
    assert drawn == chosen(names, 3, 100, seed=1) != chosen(names, 3, 100, seed=2)
    assert len(set(drawn)) == 100
    assert all(names.index(a) < names.index(b) < names.index(c) for a, b, c in drawn)
