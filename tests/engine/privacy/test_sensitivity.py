"""Every stated sensitivity, searched for a counterexample among neighbouring tables.

The random draws of a table and its neighbour are coupled as in the proofs: every other
entity keeps its keys. The entity that is taken away sits last, in rows and in ids, so that
a stream of keys that always begins alike does exactly that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations_with_replacement
from math import isqrt, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from privacy_tables import table

from app.engine.privacy import bounding, tuples, units
from app.engine.privacy.bounding import bound_rows
from app.engine.privacy.contributions import Histogram, exact_histograms
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.planning import Planner, ScorePlan
from app.engine.privacy.queries import Candidate, Contribution, Count
from app.engine.privacy.questions import ScoreQuestion
from app.engine.privacy.selection import contenders
from app.engine.privacy.sensitivity import GRID, sensitivity
from app.engine.schema import PrivacyUnit

SIZES = {"a": 3, "b": 2}
RULES = [
    Contribution(),
    Contribution("distinct", limit=1),
    Contribution("distinct", limit=2),
    Contribution("distinct", limit=9),
    Contribution("one"),
    Contribution("clipped", norm=0.4),
    Contribution("clipped", norm=1.7),
    Contribution("clipped", norm=50.0),
]

row = st.tuples(st.integers(0, 2), st.integers(0, 1))
entity = st.lists(row, min_size=1, max_size=6)
tables = st.lists(entity, max_size=4)


@contextmanager
def coupled_draws(seed: int) -> Iterator[None]:
    """Makes every stream of keys begin alike."""
    keys = np.random.default_rng(seed).integers(0, 2**63, 1000).astype(np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        for module in (bounding, units, tuples):
            patch.setattr(module, "random_keys", lambda count: keys[:count])
        yield


def histogram(columns: tuple[str, ...], contribution: Contribution) -> Histogram:
    column = table(SIZES, []).schema.column
    return Histogram(columns, tuple(column(name).grouping for name in columns), contribution)


def histogram_of(
    entities: list[list[tuple[int, int]]], asked: Histogram, max_rows: int
) -> NDArray[np.int64]:
    rows = [row for rows in entities for row in rows]
    ids = [number for number, rows in enumerate(entities) for _ in rows]
    source = table(SIZES, rows, ids, max_rows)
    return exact_histograms(source, bound_rows(source), [asked])[0]


@pytest.mark.parametrize("contribution", RULES, ids=str)
@settings(max_examples=60, deadline=None)
@given(
    others=tables,
    entity=entity,
    columns=st.sampled_from([(), ("a",), ("a", "b")]),
    max_rows=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_an_entity_moves_a_histogram_by_no_more_than_stated(
    contribution: Contribution,
    others: list[list[tuple[int, int]]],
    entity: list[tuple[int, int]],
    columns: tuple[str, ...],
    max_rows: int,
    seed: int,
) -> None:
    with coupled_draws(seed):
        asked = histogram(columns, contribution)
        without = histogram_of(others, asked, max_rows)
        change = histogram_of([*others, entity], asked, max_rows) - without
    stated = sensitivity(contribution, max_rows, asked.cells)
    assert np.abs(change).sum() <= stated.l1
    assert (change**2).sum() <= stated.l2_squared


@pytest.mark.parametrize("max_rows", [1, 2, 3])
@pytest.mark.parametrize("contribution", RULES, ids=str)
def test_the_stated_sensitivities_are_reached_by_some_entity(
    contribution: Contribution, max_rows: int
) -> None:
    asked = histogram(("a", "b"), contribution)
    stated = sensitivity(contribution, max_rows, asked.cells)
    cells = [(a, b) for a in range(3) for b in range(2)]
    vectors = [
        histogram_of([list(rows)], asked, max_rows)
        for count in range(1, max_rows + 1)
        for rows in combinations_with_replacement(cells, count)
    ]
    largest_l1 = max(int(vector.sum()) for vector in vectors)
    largest_l2 = max(int((vector**2).sum()) for vector in vectors)
    slack = 0 if contribution.rule != "clipped" else asked.cells
    assert stated.l1 - slack <= largest_l1 <= stated.l1
    assert isqrt(stated.l2_squared) - slack <= sqrt(largest_l2) <= sqrt(stated.l2_squared)


@pytest.mark.parametrize("contribution", RULES, ids=str)
def test_a_row_moves_a_histogram_by_no_more_than_stated(contribution: Contribution) -> None:
    asked = histogram(("a", "b"), contribution)
    stated = sensitivity(contribution, 1, asked.cells)
    rows = [(0, 1), (2, 0), (0, 1)]
    smaller = table(SIZES, rows)
    for extra in [(a, b) for a in range(3) for b in range(2)]:
        larger = table(SIZES, [*rows, extra])
        change = (
            exact_histograms(larger, bound_rows(larger), [asked])[0]
            - exact_histograms(smaller, bound_rows(smaller), [asked])[0]
        )
        assert np.abs(change).sum() <= stated.l1
        assert (change**2).sum() <= stated.l2_squared


@pytest.mark.parametrize("contribution", RULES, ids=str)
@settings(max_examples=40, deadline=None)
@given(
    others=tables,
    entity=entity,
    reference=st.lists(st.floats(-20, 20), min_size=3, max_size=3),
    weight=st.floats(0.001, 30),
    seed=st.integers(0, 2**32),
)
def test_an_entity_moves_a_score_by_no_more_than_stated(
    contribution: Contribution,
    others: list[list[tuple[int, int]]],
    entity: list[tuple[int, int]],
    reference: list[float],
    weight: float,
    seed: int,
) -> None:
    asked = histogram(("a",), contribution)
    unit = sensitivity(contribution, 3, asked.cells)
    candidates = [
        Candidate(Count(("a",)), (np.array(reference),), weight, 3.5),
        Candidate(Count(("a",)), (np.zeros(3),), 30.0),
    ]
    with coupled_draws(seed):
        without = histogram_of(others, asked, 3)
        with_it = histogram_of([*others, entity], asked, 3)
    for entered in contenders(candidates, [asked, asked], [unit, unit]):
        assert abs(entered.score(with_it) - entered.score(without)) <= entered.sensitivity


@settings(max_examples=80, deadline=None)
@given(
    others=tables,
    entity=entity,
    asked=st.lists(
        st.tuples(
            st.sampled_from(RULES),
            st.lists(st.floats(-20, 20), min_size=3, max_size=3),
            st.floats(0.1, 30),
        ),
        min_size=1,
        max_size=5,
    ),
    max_rows=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_an_entity_moves_all_distances_by_no_more_than_their_noise_is_for(
    others: list[list[tuple[int, int]]],
    entity: list[tuple[int, int]],
    asked: list[tuple[Contribution, list[float], float]],
    max_rows: int,
    seed: int,
) -> None:
    candidates = tuple(
        Candidate(Count(("a",), contribution=rule), (np.array(reference),), weight)
        for rule, reference, weight in asked
    )
    planner = Planner(table(SIZES, []).schema, PrivacyUnit("entity", "id", max_rows), "zcdp")
    plan = planner.plan(ScoreQuestion(candidates, PrivacyLoss.zcdp(10**12)))
    assert isinstance(plan, ScorePlan)
    with coupled_draws(seed):
        moved = np.array(
            [
                distance.measured(histogram_of([*others, entity], distance.histogram, max_rows))
                - distance.measured(histogram_of(others, distance.histogram, max_rows))
                for distance in plan.distances
            ]
        )
    for change, distance in zip(moved, plan.distances, strict=True):
        assert abs(int(change)) <= distance.sensitivity
    assert (moved**2 / (2 * np.array(plan.scales) ** 2)).sum() <= 1
    weighted = np.abs(moved) * np.array(plan.weights) / GRID
    assert weighted.sum() <= plan.l1 * (1 + 1e-12)
    assert math.hypot(*weighted) <= plan.l2 * (1 + 1e-12)


def test_an_entity_can_move_every_distance_as_far_as_stated() -> None:
    candidates = tuple(
        Candidate(Count(("a",), contribution=rule), (np.zeros(3),)) for rule in RULES[:5]
    )
    planner = Planner(table(SIZES, []).schema, PrivacyUnit("entity", "id", 3), "zcdp")
    plan = planner.plan(ScoreQuestion(candidates, PrivacyLoss.zcdp(10**12)))
    assert isinstance(plan, ScorePlan)
    rows = [(0, 0), (1, 0), (2, 0)]
    moved = [
        distance.measured(histogram_of([rows], distance.histogram, 3))
        for distance in plan.distances
    ]
    assert moved == [distance.sensitivity for distance in plan.distances]
    assert sum(moved) / GRID == plan.l1


def test_clipped_vectors_are_scaled_to_the_norm() -> None:
    rows = [(0, 0)] * 3 + [(1, 0)] * 4
    asked = histogram(("a",), Contribution("clipped", norm=2.5))
    vector = histogram_of([rows], asked, 7)
    assert vector.tolist() == [int(1.5 * GRID), 2 * GRID, 0]
    unclipped = histogram(("a",), Contribution("clipped", norm=5.0))
    assert histogram_of([rows], unclipped, 7).tolist() == [3 * GRID, 4 * GRID, 0]
