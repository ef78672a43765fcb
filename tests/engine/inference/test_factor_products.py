from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.inference import factor_products
from app.engine.inference.factor_products import Addition, additions
from app.engine.inference.junction_tree import cells_of

Factors = list[tuple[int, tuple[str, ...]]]

SHAPE = {"a": 1, "b": 1, "c": 1, "d": 2, "e": 2, "f": 3, "g": 4}
NAMES = tuple(SHAPE)


def rescanned(shape: Mapping[str, int], factors: Factors, start: int) -> list[Addition]:
    """Every pair is looked at anew for each addition."""
    waiting = {number: set(axes) for number, axes in factors}
    steps: list[Addition] = []

    def cells(pair: tuple[int, int]) -> int:
        return prod(shape[axis] for axis in waiting[pair[0]] | waiting[pair[1]])

    while len(waiting) > 1:
        first, second = min(combinations(waiting, 2), key=cells)
        number = start + len(steps)
        waiting[number] = waiting.pop(first) | waiting.pop(second)
        steps.append(Addition(number, first, second))
    return steps


def numbered(factors: Sequence[Iterable[str]]) -> Factors:
    return [(number, tuple(axes)) for number, axes in enumerate(factors)]


@given(st.lists(st.sets(st.sampled_from(NAMES), max_size=4), min_size=2, max_size=25))
def test_the_two_with_the_smallest_union_are_joined_and_of_equals_the_first(
    factors: list[set[str]],
) -> None:
    told = numbered(factors)
    steps, made = additions(SHAPE, NAMES, told, NAMES, 100)
    assert steps == rescanned(SHAPE, told, 100)
    tables = {number: set(axes) for number, axes in told}
    for step, axes in zip(steps, made, strict=True):
        tables[step.out] = tables[step.first] | tables[step.second]
        assert set(axes) == (set(NAMES) if step is steps[-1] else tables[step.out])
        assert axes == tuple(name for name in NAMES if name in axes)


def priced(monkeypatch: pytest.MonkeyPatch, shape: Mapping[str, int]) -> tuple[int, int]:
    """How many factors all pairs of columns make, and how often a union of two is priced."""
    asked = []

    def counted(told: Mapping[str, int], axes: Iterable[str]) -> int:
        asked.append(axes)
        return cells_of(told, axes)

    monkeypatch.setattr(factor_products, "cells_of", counted)
    factors = numbered(list(combinations(shape, 2)))
    additions(shape, tuple(shape), factors, tuple(shape), len(factors))
    return len(factors), len(asked)


def test_dozens_of_columns_of_one_cell_are_added_up_in_as_many_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    factors, unions = priced(monkeypatch, {f"c{i}": 1 for i in range(40)})
    assert factors == 780
    assert unions < 3 * factors


def test_a_pair_is_not_priced_again_for_each_addition(monkeypatch: pytest.MonkeyPatch) -> None:
    factors, unions = priced(monkeypatch, {f"c{i}": 2 for i in range(14)})
    assert factors == 91
    assert unions < 3 * factors**2
