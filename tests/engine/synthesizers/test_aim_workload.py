from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.synthesizers.aim.workload import (
    MOST_CANDIDATES,
    Workload,
    candidates_of_degree,
    usual_degree,
)

NAMES = ("a", "b", "c", "d")


def triples(target: str | None = None, **weights: float) -> Workload:
    return Workload.of_degree(NAMES, 3, weights, target)


def test_all_triples_and_what_they_are_made_of_are_candidates() -> None:
    workload = triples()
    assert workload.marginals == tuple(combinations(NAMES, 3))
    assert workload.candidates == (*combinations(NAMES, 2), *combinations(NAMES, 3))
    assert workload.closure[:4] == (("a",), ("b",), ("c",), ("d",))


def test_fewer_columns_than_the_degree_are_one_marginal() -> None:
    assert Workload.of_degree(("a", "b"), 3, {}, None).marginals == (("a", "b"),)
    assert Workload.of_degree(("a",), 3, {}, None).candidates == ()


def test_relevance_sums_the_columns_shared_with_each_marginal_of_the_workload() -> None:
    # The triple abc shares 3 columns with itself and 2 with each of abd, acd and bcd: 9.
    # The pair ab shares 2 with abc and abd, and 1 with acd and bcd: 6.
    workload = triples()
    assert workload.relevance([("a", "b", "c"), ("a", "b")]).tolist() == [1.0, 6 / 9]


def test_a_weighted_column_lifts_the_marginals_that_hold_it() -> None:
    # abc, abd and acd hold a and weigh 2; bcd weighs 1. The pair ab shares 2, 2, 1 and 1
    # columns with them: 2 * 2 + 2 * 2 + 2 * 1 + 1 = 11; cd shares 1, 1, 2, 2: 2 + 2 + 4 + 2 = 10.
    workload = triples(a=2.0)
    assert workload.weights == (2.0, 2.0, 2.0, 1.0)
    assert workload.relevance([("a", "b"), ("c", "d")]).tolist() == [1.0, 10 / 11]


def test_the_target_counts_four_times() -> None:
    assert triples(target="a") == triples(a=4.0)
    assert triples(target="a", a=0.5) == triples(a=2.0)


def test_named_marginals_are_put_in_the_order_of_the_columns() -> None:
    workload = Workload.of(NAMES, [("c", "a"), ("d",)], [3.0, 1.0], {"d": 2.0}, None)
    assert workload.marginals == (("a", "c"), ("d",))
    assert workload.weights == (3.0, 2.0)
    assert workload.candidates == (("a", "c"),)


@given(st.lists(st.sets(st.sampled_from(NAMES), min_size=1, max_size=3), min_size=1, max_size=6))
def test_relevance_is_the_sum_that_it_is_said_to_be(marginals: list[set[str]]) -> None:
    weights = [1.0 + i for i in range(len(marginals))]
    named = [tuple(sorted(each)) for each in marginals]
    workload = Workload.of(NAMES, named, weights, {}, None)
    cliques = [part for size in (1, 2, 3) for part in combinations(NAMES, size)]
    sums = [
        sum(w * len(set(clique) & each) for w, each in zip(weights, marginals, strict=True))
        for clique in cliques
    ]
    expected = [each / max(sums) for each in sums]
    assert workload.relevance(cliques).tolist() == pytest.approx(expected)


def test_triples_are_usual_while_all_can_be_offered() -> None:
    assert usual_degree(35) == 3
    assert usual_degree(37) == 2
    assert candidates_of_degree(36, 3) == 36 + 630 + 7140 <= MOST_CANDIDATES
    assert candidates_of_degree(37, 3) > MOST_CANDIDATES
    assert candidates_of_degree(100, 2) <= MOST_CANDIDATES
