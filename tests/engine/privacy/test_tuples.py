"""Exact counts of listed tuples: against a plain count, and how much one unit may add."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.engine.grouping import Grouping
from app.engine.privacy import tuples
from app.engine.privacy.queries import Parts
from app.engine.privacy.tuples import count_tuples, listed_items, tuples_held
from app.engine.tuple_tree import TupleTree

CELLS = 3
COLUMNS = 4


def starts_of(sizes: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def random_items(rng: np.random.Generator, rows: int) -> NDArray[np.int32]:
    cells = rng.integers(0, CELLS, (rows, COLUMNS))
    return (cells + CELLS * np.arange(COLUMNS)).astype(np.int32)


def random_list(rng: np.random.Generator, length: int) -> NDArray[np.int32]:
    """A third of all tuples of one cell from each of `length` columns."""
    every = [
        combination
        for combination in combinations(range(CELLS * COLUMNS), length)
        if len({item // CELLS for item in combination}) == length
    ]
    chosen = rng.permutation(len(every))[: len(every) // 3]
    return np.array([every[index] for index in chosen], dtype=np.int32)


def plain_counts(
    listed: NDArray[np.int32], items: NDArray[np.int32], starts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which unit holds which tuple, shape (units, tuples)."""
    holds = np.zeros((len(starts) - 1, len(listed)), dtype=bool)
    for unit in range(len(starts) - 1):
        for row in items[starts[unit] : starts[unit + 1]]:
            holds[unit] |= np.isin(listed, row).all(axis=1)
    return holds


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, COLUMNS), st.lists(st.integers(1, 3), max_size=20))
def test_without_a_limit_the_counts_are_those_of_a_plain_count(
    seed: int, length: int, sizes: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    starts = starts_of(sizes)
    items, listed = random_items(rng, int(starts[-1])), random_list(rng, length)
    holds = plain_counts(listed, items, starts)
    tree = TupleTree.of(listed, CELLS * COLUMNS)
    assert count_tuples(tree, items, starts, 10**6).tolist() == holds.sum(axis=0).tolist()
    assert tuples_held(tree, items, starts).tolist() == holds.sum(axis=1).tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_one_unit_adds_at_most_its_limit_and_only_to_what_it_holds(
    seed: int, length: int, limit: int, rows: int
) -> None:
    rng = np.random.default_rng(seed)
    items, listed = random_items(rng, rows), random_list(rng, length)
    starts = starts_of([rows])
    holds = plain_counts(listed, items, starts)[0]
    counts = count_tuples(TupleTree.of(listed, CELLS * COLUMNS), items, starts, limit)
    assert counts.max() <= 1
    assert not counts[~holds].any()
    assert counts.sum() == min(limit, holds.sum())


def test_the_tuples_kept_are_uniform_and_drawn_without_replacement() -> None:
    units, limit = 20_000, 2
    items = np.tile(np.array([[0, 3, 6, 9]], dtype=np.int32), (units, 1))
    listed = np.array(list(combinations([0, 3, 6, 9], 2)), dtype=np.int32)
    counts = count_tuples(TupleTree.of(listed, 12), items, np.arange(units + 1), limit)
    assert counts.sum() == units * limit
    # Each count is binomial (20,000, 1/3): 6.5 standard deviations are below 1e-10 for all six.
    assert np.abs(counts - units / 3).max() < 6.5 * np.sqrt(units * 2 / 9)


def test_stretches_of_units_do_not_change_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuples, "_DRAWS_AT_ONCE", 7)
    rng = np.random.default_rng(3)
    items, listed = random_items(rng, 100), random_list(rng, 2)
    starts = starts_of([2] * 50)
    holds = plain_counts(listed, items, starts)
    counts = count_tuples(TupleTree.of(listed, 12), items, starts, 2)
    assert counts.sum() == np.minimum(holds.sum(axis=1), 2).sum()


def test_nothing_listed_counts_nothing() -> None:
    tree = TupleTree.of(np.empty((0, 2), dtype=np.int32), 12)
    items = random_items(np.random.default_rng(0), 5)
    assert count_tuples(tree, items, np.arange(6), 3).shape == (0,)
    assert tuples_held(tree, items, np.arange(6)).tolist() == [0] * 5


@pytest.mark.parametrize(
    "listed", [[[0, 12]], [[3, 0]], [[0, 0]], [[0, 3], [0, 3]], [[-1, 3]]], ids=str
)
def test_a_list_that_is_none_is_refused(listed: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="tuple"):
        TupleTree.of(np.array(listed, dtype=np.int32), 12)


def test_a_column_of_parts_has_an_item_for_each_part_of_a_cell() -> None:
    groupings = {"tags": Grouping.identity(3, 1), "b": Grouping.identity(2, 0)}
    parts = {"tags": Parts(("blue", "green", "red"), ((2,), (0, 2), (0, 1), ()))}
    codes = {"tags": np.array([0, 1, 3]), "b": np.array([1, 0, 1])}
    items = listed_items(codes, ("tags", "b"), groupings, parts)
    assert items.tolist() == [[2, -1, 4], [0, 2, 3], [-1, -1, 4]]
    counts = count_tuples(
        TupleTree.of(np.array([[0, 2], [2, 4]], dtype=np.int32), 5), items, np.arange(4), 10
    )
    assert counts.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("names", "of_cell"), [((), ()), (("a", "a"), ()), (("a",), ((1,),)), (("a", "b"), ((1, 0),))]
)
def test_parts_that_are_none_are_refused(
    names: tuple[str, ...], of_cell: tuple[tuple[int, ...], ...]
) -> None:
    with pytest.raises(ValueError, match="part"):
        Parts(names, of_cell)


def test_rows_become_items_with_the_running_sums_of_cells() -> None:
    groupings = {"a": Grouping((0, 2, 4), 1), "b": Grouping.identity(2, 0)}
    codes = {"a": np.array([0, 3, 4]), "b": np.array([1, 0, 1])}
    assert listed_items(codes, ("a", "b"), groupings, {}).tolist() == [[0, 4], [1, 3], [2, 4]]
