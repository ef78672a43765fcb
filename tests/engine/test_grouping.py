"""Groupings send every stored code to one cell, and cells back to their codes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.grouping import Grouping


@st.composite
def groupings(draw: st.DrawFn) -> Grouping:
    widths = draw(st.lists(st.integers(1, 9), max_size=6))
    tail = draw(st.integers(0 if widths else 1, 3))
    edges = tuple(int(edge) for edge in np.cumsum([0, *widths]))
    plain = Grouping(edges, tail)
    if not draw(st.booleans()):
        return plain
    raw = draw(st.lists(st.integers(0, 3), min_size=plain.cells, max_size=plain.cells))
    numbers = {cell: place for place, cell in enumerate(dict.fromkeys(raw))}
    return plain.merged([numbers[cell] for cell in raw])


@given(groupings())
def test_widths_count_the_codes_of_each_cell(grouping: Grouping) -> None:
    cells = grouping.cell_of(np.arange(grouping.codes))
    assert np.bincount(cells, minlength=grouping.cells).tolist() == grouping.widths().tolist()
    assert grouping.widths().sum() == grouping.codes


@given(groupings(), st.integers(0, 2**32))
def test_an_expanded_cell_is_grouped_back_to_itself(grouping: Grouping, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, grouping.cells, 50)
    codes = grouping.expand(cells, rng)
    assert grouping.cell_of(codes).tolist() == cells.tolist()


@given(groupings())
def test_a_grouping_is_read_back_from_json(grouping: Grouping) -> None:
    assert Grouping.from_json(grouping.to_json()) == grouping


def test_expansion_is_uniform_over_the_codes_of_a_cell() -> None:
    grouping = Grouping((0, 4), 0)
    counts = np.bincount(grouping.expand(np.zeros(40_000, np.int64), np.random.default_rng(3)))
    # Each of 4 counts is binomial (40,000, 1/4), sigma 87; 6 sigma is a false alarm of 1e-8.
    assert np.abs(counts - 10_000).max() < 6 * 87


@pytest.mark.parametrize(
    ("edges", "tail", "merge"),
    [
        ((), 1, None),
        ((1, 2), 0, None),
        ((0, 2, 2), 0, None),
        ((0,), 0, None),
        ((0, 1), -1, None),
        ((0, 1, 2), 0, (0,)),
        ((0, 1, 2), 0, (0, 2)),
    ],
)
def test_what_is_no_grouping_is_refused(
    edges: tuple[int, ...], tail: int, merge: tuple[int, ...] | None
) -> None:
    with pytest.raises(ValueError):
        Grouping(edges, tail, merge)
