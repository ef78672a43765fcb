"""Rows keep their number and change entities alone, and entities come near what is wanted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.engine.entities import assignment
from app.engine.entities.assignment import (
    Target,
    distinct_values,
    expected_distinct,
    grouped,
    rows_of_values,
    squares_of_rows,
)

Ints = NDArray[np.int64]


def habitual(entities: int, seed: int = 0) -> tuple[Ints, tuple[Ints, Ints]]:
    """The entity of each row, 1 to 30 for each, and two columns of which it likes few values."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(entities), rng.integers(1, 31, entities))
    liked = rng.integers(0, 50, (entities, 4))
    place = np.minimum(rng.geometric(0.5, len(owner)) - 1, 3)
    home = rng.integers(0, 10, entities)[owner]
    return owner, (liked[owner, place], home)


def targets_of(owner: Ints, columns: tuple[Ints, ...]) -> list[Target]:
    entities = int(owner.max()) + 1
    return [
        Target(distinct_values(owner, each, entities), squares_of_rows(owner, each, entities))
        for each in columns
    ]


def misfit(owner: Ints, targets: list[Target], columns: list[Ints]) -> int:
    total = 0
    for target, column in zip(targets, columns, strict=True):
        found = distinct_values(owner, column, len(target.distinct))
        total += int(np.abs(found - target.distinct).sum())
    return total


def regrouped(entities: int, seed: int = 0) -> tuple[Ints, Ints, list[Target], list[Ints]]:
    """Sizes, the entities found for rows in random order, what is wanted of them, and columns."""
    owner, columns = habitual(entities, seed)
    order = np.random.default_rng(seed + 1).permutation(len(owner))
    shuffled = [column[order] for column in columns]
    sizes, targets = np.bincount(owner), targets_of(owner, columns)
    found = grouped(sizes, targets, shuffled, np.random.default_rng(seed + 2))
    return sizes, found, targets, shuffled


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(0, 3), st.integers(0, 2**32)
)
def test_every_entity_has_exactly_its_size(sizes: list[int], columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wanted = np.array(sizes)
    rows = int(wanted.sum())
    cells = [rng.integers(0, 6, rows) for _ in range(columns)]
    targets = [
        Target(np.minimum(rng.integers(1, 7, len(sizes)), wanted), wanted * 2 if i else None)
        for i in range(columns)
    ]
    owner = grouped(wanted, targets, cells, rng)
    assert owner.shape == (rows,)
    assert np.array_equal(np.bincount(owner, minlength=len(sizes)), wanted)


def test_the_misfit_is_a_small_part_of_that_of_random_entities() -> None:
    sizes, owner, targets, columns = regrouped(200)
    at_random = np.random.default_rng(9).permutation(np.repeat(np.arange(len(sizes)), sizes))
    assert misfit(owner, targets, columns) < 0.2 * misfit(at_random, targets, columns)


def test_rows_spread_over_values_as_they_are_to() -> None:
    sizes, owner, targets, columns = regrouped(200)
    at_random = np.random.default_rng(9).permutation(np.repeat(np.arange(len(sizes)), sizes))
    for target, column in zip(targets, columns, strict=True):
        assert target.squares is not None
        ours, random = (
            float(np.abs(squares_of_rows(each, column, len(sizes)) - target.squares).sum())
            for each in (owner, at_random)
        )
        assert ours < 0.4 * random


def test_a_seed_gives_the_same_entities_again() -> None:
    assert np.array_equal(regrouped(40)[1], regrouped(40)[1])


def test_rows_beyond_what_is_held_are_grouped_part_by_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignment, "ROWS_AT_ONCE", 300)
    sizes, owner, targets, columns = regrouped(120)
    assert np.array_equal(np.bincount(owner), sizes)
    at_random = np.random.default_rng(9).permutation(owner)
    assert misfit(owner, targets, columns) < 0.5 * misfit(at_random, targets, columns)


def test_random_rows_have_the_distinct_values_that_are_expected_of_them() -> None:
    counts = np.array([500, 300, 200])
    column = np.repeat(np.arange(3), counts)
    rng = np.random.default_rng(4)
    found = [len(np.unique(column[rng.integers(0, 1000, 3)])) for _ in range(20_000)]
    # 20,000 means of 0..3: a deviation of 0.02 is over 5 standard errors.
    assert np.mean(found) == pytest.approx(expected_distinct(counts, np.array([3]))[0], abs=0.02)


def test_rows_are_counted_by_entity_and_value() -> None:
    owner, column = np.array([0, 0, 0, 1, 1]), np.array([7, 7, 2, 2, 2])
    entity, rows = rows_of_values(owner, column)
    assert entity.tolist() == [0, 0, 1]
    assert rows.tolist() == [1, 2, 2]
    assert distinct_values(owner, column, 2).tolist() == [2, 1]
    assert squares_of_rows(owner, column, 2).tolist() == [5, 4]
