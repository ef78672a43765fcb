from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.grouping import Grouping
from app.engine.public.conditionals import (
    Comparison,
    Conditional,
    Link,
    Numbering,
    draw_chain,
    links,
    taken_in_turn,
)
from app.engine.public.rows import PublicRows
from app.engine.table import generator

TENS = Grouping.identity(10, 0)


def public(**columns: list[int]) -> PublicRows:
    codes = {name: np.array(values, dtype=np.int64) for name, values in columns.items()}
    rows = len(next(iter(codes.values())))
    return PublicRows(codes, np.arange(rows), rows)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=30))
def test_tuples_are_numbered_and_found_again(pairs: list[tuple[int, int]]) -> None:
    cells = [np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True)]
    numbering, number = Numbering.of(cells, [4, 10], len(pairs))
    assert numbering.count == len(set(pairs))
    assert len({*zip(number.tolist(), pairs, strict=True)}) == len(set(pairs))
    every = [np.repeat(np.arange(4), 10), np.tile(np.arange(10), 4)]
    found = numbering.find(every, 40)
    for pair, at in zip(zip(*(each.tolist() for each in every), strict=True), found, strict=True):
        assert (at >= 0) == (pair in pairs)
    assert np.array_equal(numbering.find(cells, len(pairs)), number)


def test_rows_agree_with_the_public_rows_that_they_are_drawn_from() -> None:
    rows = public(zone=[1, 1, 2], hour=[5, 6, 5], fare=[3, 4, 7])
    table = Conditional.of(rows, {"zone": TENS, "hour": TENS})
    drawn = table.draw({"zone": np.array([1, 2, 1, 2]), "hour": np.array([6, 5, 5, 6])}, 4, _rng())
    assert drawn.tolist() == [1, 2, 0, -1]


def test_a_given_column_is_compared_by_its_bin() -> None:
    rows = public(fare=[0, 4, 5, 9], tip=[1, 1, 2, 2])
    table = Conditional.of(rows, {"fare": Grouping((0, 5, 10), 0)})
    fares = np.array([3, 7])
    assert rows.codes["tip"][table.draw({"fare": fares}, 2, _rng())].tolist() == [1, 2]


def test_public_rows_are_taken_in_turn() -> None:
    starts, order = np.array([0, 3, 3, 5]), np.arange(5)
    group = np.array([0] * 7 + [2] * 4 + [-1])
    taken = taken_in_turn(starts, order, group, _rng())
    assert taken[-1] == -1
    times = np.bincount(taken[:-1], minlength=5)
    assert sorted(times[:3].tolist()) == [2, 2, 3]
    assert times[3:].tolist() == [2, 2]


def test_each_public_row_is_as_likely_as_any_other_of_its_group() -> None:
    rng, times = _rng(), np.zeros(3)
    for _ in range(6000):
        times[taken_in_turn(np.array([0, 3]), np.arange(3), np.array([0]), rng)] += 1
    # Standard deviation 36.5 for each; 5.2 of them: 6e-7 for the three.
    assert np.abs(times - 2000).max() < 190
    assert np.abs(times - 1500).max() > 190, "shares a quarter off are told apart"


def test_an_unseen_combination_falls_back_to_the_core_and_then_to_the_column_alone() -> None:
    rows = public(zone=[1, 1, 2], fare=[3, 4, 7], tip=[5, 6, 8])
    chain = links([("tip", ("zone", "fare"))], ("zone",))
    assert chain == (Link("tip", (("zone", "fare"), ("zone",), ())),)
    codes = {"zone": np.array([1, 1, 2, 9]), "fare": np.array([3, 7, 7, 3])}
    tens = Comparison({"zone": TENS, "fare": TENS})
    drawn = draw_chain(chain, rows, tens, codes, 4, _rng())["tip"]
    assert drawn[0] == 5, "the pair was seen"
    assert drawn[1] in (5, 6), "zone 1 was, this fare not"
    assert drawn[2] == 8
    assert drawn[3] in (5, 6, 8), "zone 9 was never seen"


def test_a_chain_draws_each_column_given_those_before_it() -> None:
    rows = public(zone=[0, 0, 1, 1], fare=[1, 2, 3, 4], tip=[1, 2, 3, 4], total=[2, 4, 6, 8])
    chain = links([("fare", ("zone",)), ("tip", ("zone", "fare")), ("total", ("fare", "tip"))], ())
    groupings = Comparison(dict.fromkeys(("zone", "fare", "tip"), TENS))
    codes = {"zone": np.array([0, 1] * 50)}
    drawn = draw_chain(chain, rows, groupings, codes, 100, _rng())
    assert np.array_equal(drawn["tip"], drawn["fare"])
    assert np.array_equal(drawn["total"], 2 * drawn["fare"])
    assert np.bincount(drawn["fare"], minlength=5).tolist() == [0, 25, 25, 25, 25]


def test_a_given_number_is_compared_by_value_then_by_its_bin_unless_bins_are_asked_for() -> None:
    rows = public(fare=[0, 4, 5, 9], tip=[1, 2, 3, 4])
    halves = Grouping((0, 5, 10), 0)
    codes = {"fare": np.array([4, 4, 9, 9, 8, 8])}
    chain = links([("tip", ("fare",))], ())
    by_value = draw_chain(chain, rows, Comparison({"fare": halves}), codes, 6, _rng())["tip"]
    assert by_value[:4].tolist() == [2, 2, 4, 4]
    assert set(by_value[4:].tolist()) == {3, 4}, "a fare of 8 was never seen"
    asked = Comparison({"fare": halves}, frozenset({"fare"}))
    by_bin = draw_chain(chain, rows, asked, codes, 6, _rng())["tip"]
    assert sorted(by_bin[:2].tolist()) == [1, 2]
    assert sorted(by_bin[2:].tolist()) == [3, 3, 4, 4]


def test_a_link_ends_with_the_columns_own_distribution() -> None:
    with pytest.raises(ValueError):
        Link("tip", (("zone",),))


def _rng() -> np.random.Generator:
    return generator(11)
