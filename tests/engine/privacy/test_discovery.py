"""Key discovery: its threshold against exact tails, and what is found of a table."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_tables import session, table

from app.engine.grouping import Grouping
from app.engine.privacy.bounding import bound_rows
from app.engine.privacy.discovery import exact_keys, gaussian_tail, key_threshold
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import BudgetExhausted, Keys, QuestionRefused

ONE = 10**12
SIZES = {"a": 3, "b": 2}


def plain_tail(scale: float, least: int) -> float:
    weights = [exp(-((x / scale) ** 2) / 2) for x in range(int(40 * scale) + 2)]
    return sum(weights[least:]) / (weights[0] + 2 * sum(weights[1:]))


@pytest.mark.parametrize("scale", [0.4, 1.0, 5.66, 40.0])
def test_tails_are_those_of_the_discrete_gaussian(scale: float) -> None:
    for least in (1, 2, round(3 * scale) + 1, round(7 * scale) + 1):
        assert gaussian_tail(scale, least) == pytest.approx(plain_tail(scale, least), rel=1e-8)
        assert gaussian_tail(scale, least) >= plain_tail(scale, least) * (1 - 1e-12)


def test_beyond_what_is_summed_the_tail_is_bounded_closely_from_above() -> None:
    summed = gaussian_tail(2000.0, 9000)
    bounded = gaussian_tail(2000.0001, 9000)
    assert summed <= bounded <= summed * 1.01


@settings(max_examples=60, deadline=None)
@given(
    scale=st.floats(0.3, 60),
    keys=st.integers(1, 500),
    delta=st.integers(1, 10**17),
)
def test_the_threshold_is_the_smallest_that_hides_what_one_unit_adds(
    scale: float, keys: int, delta: int
) -> None:
    def spent(threshold: int) -> float:
        hidden = 1 - Fraction(gaussian_tail(scale, threshold - 1))
        return float((1 - hidden**keys) * 10**18)

    threshold = key_threshold(scale, keys, delta)
    assert spent(threshold) <= delta
    assert threshold == 2 or spent(threshold - 1) > delta * (1 - 1e-8)


def test_a_larger_scale_has_a_larger_threshold() -> None:
    delta = 10**12  # 1e-6
    assert key_threshold(1.0, 1, delta) == 7  # P[Z >= 5] = 1.6e-6, P[Z >= 6] = 6e-9 of 1
    found = [key_threshold(scale, 1, delta) for scale in (1.0, 10.0, 100.0, 1e4, 1e6)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(4.75 * 1e6, rel=0.01)


def test_keys_are_counted_once_for_each_unit_and_sorted() -> None:
    rows = [(2, 1), (0, 1), (0, 1), (0, 1), (1, 0)]
    source = table(SIZES, rows, [1, 1, 1, 2, 2], max_rows=9)
    groupings = [source.schema.column(name).grouping for name in ("b", "a")]
    keys, counts = exact_keys(source, bound_rows(source), ("b", "a"), groupings, 9)
    assert keys.tolist() == [[0, 1], [1, 0], [1, 2]]
    assert counts.tolist() == [1, 2, 1]


def test_each_unit_enters_at_most_so_many_keys() -> None:
    rows = [(a, b) for _ in range(5) for a in range(3) for b in range(2)]
    ids = [person for person in range(5) for _ in range(6)]
    source = table(SIZES, rows, ids, max_rows=6)
    groupings = [source.schema.column(name).grouping for name in ("a", "b")]
    for limit in (1, 2, 6):
        _, counts = exact_keys(source, bound_rows(source), ("a", "b"), groupings, limit)
        assert counts.sum() == 5 * limit
        assert counts.min() >= 1


def test_one_unit_brings_no_more_keys_than_it_may_enter() -> None:
    rows = [(a, b) for a in range(3) for b in range(2)]
    source = table(SIZES, rows, [7] * 6, max_rows=6)
    groupings = [source.schema.column(name).grouping for name in ("a", "b")]
    keys, counts = exact_keys(source, bound_rows(source), ("a", "b"), groupings, 2)
    assert keys.shape == (2, 2)
    assert counts.tolist() == [1, 1]


def test_frequent_keys_are_found_in_a_domain_that_is_not_listed() -> None:
    rng = np.random.default_rng(0)
    width, columns = 2**16, [f"c{number}" for number in range(6)]
    row = rng.integers(0, width, 6)
    rows = rng.integers(0, width, (400, 6))
    rows[::2] = row
    asked = session(
        table(dict.fromkeys(columns, width), rows.tolist()), PrivacyLoss.zcdp(ONE, 10**12)
    )
    found = asked.discover(Keys(tuple(columns)), PrivacyLoss.zcdp(ONE, 10**12))
    assert found.keys.tolist() == [row.tolist()]
    assert abs(found.values[0] - 200) < 12 * found.scale
    assert found.scale == pytest.approx(0.5**0.5)
    assert asked.remaining == PrivacyLoss.zcdp(0, 0)


def test_keys_may_be_grouped() -> None:
    source = table(SIZES, [(0, 0)] * 30 + [(2, 1)] * 30)
    query = Keys(("a",), {"a": Grouping.identity(3, 0).merged((0, 1, 0))})
    loss = PrivacyLoss.zcdp(ONE, 10**12)
    found = session(source, loss).discover(query, loss)
    assert found.keys.tolist() == [[0]]


def test_an_empty_table_has_no_keys() -> None:
    loss = PrivacyLoss.zcdp(ONE, 10**12)
    for ids in (None, []):
        found = session(table(SIZES, [], ids), loss).discover(Keys(("a", "b")), loss)
        assert found.keys.shape == (0, 2)


@pytest.mark.parametrize(
    ("loss", "refusal"),
    [
        (PrivacyLoss.zcdp(ONE), QuestionRefused),
        (PrivacyLoss.pure(ONE), QuestionRefused),
        (PrivacyLoss.zcdp(ONE, 10**13), BudgetExhausted),
    ],
)
def test_discovery_needs_some_of_the_sessions_delta(
    loss: PrivacyLoss, refusal: type[Exception]
) -> None:
    allowance = PrivacyLoss.pure(ONE) if loss.kind == "pure" else PrivacyLoss.zcdp(ONE, 10**12)
    asked = session(table(SIZES, [(0, 0)]), allowance)
    with pytest.raises(refusal):
        asked.discover(Keys(("a",)), loss)
    assert asked.remaining == allowance
