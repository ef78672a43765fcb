"""Functions, sums, tuples and quantiles: stated sensitivities against neighbouring tables.

Draws are coupled as in `test_sensitivity`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from privacy_tables import LOUD, session, table

from app.engine.privacy import bounding, tuples, units
from app.engine.privacy.bounding import bound_rows
from app.engine.privacy.contributions import exact_histograms
from app.engine.privacy.declared import Feature, FeatureClasses, MixtureMode, RowNumber
from app.engine.privacy.discovery import exact_keys
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.planning import Planner, QuantilePlan, QueryPlan
from app.engine.privacy.quantiles import QUANTILE_STEPS, quantile_scores
from app.engine.privacy.queries import (
    Count,
    Quantile,
    Query,
    QuestionRefused,
    Sum,
    TupleCount,
    TupleNumber,
    Tuples,
)
from app.engine.privacy.questions import CountQuestion, QuantileQuestion
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema

SIZES = {"a": 3, "b": 2}
RHO = PrivacyLoss.zcdp(10**12)
PAIRS = Tuples(("a", "b"), {}, np.array([[0, 3], [0, 4], [1, 3], [1, 4], [2, 4]], dtype=np.int32))
SINGLES = Tuples(("a", "b"), {}, np.array([[0], [2], [3], [4]], dtype=np.int32))
MIXTURE = MixtureMode(
    ("a", "b"), np.zeros(2), np.ones(2), np.ones(3) / 3, np.eye(3, 2) * 2, np.ones((3, 2))
)
CLASSES = FeatureClasses(
    (Feature("rows_per", "a"), Feature("top_share", "b")), ((1.2,), (0.6, 0.9)), (0, 1, 2, 1, 3, 0)
)
QUERIES: list[Query] = [
    Count.of_units(RowNumber(2)),
    Count.of_units(MIXTURE),
    Count.of_units(CLASSES),
    Sum("a", 0.0, 2.0),
    Sum("a", -3.0, 1.0, ("b",)),
    Sum("a", 1.0, 9.0, ("a", "b")),
    TupleCount(PAIRS, 1),
    TupleCount(PAIRS, 3),
    TupleCount(SINGLES, 2),
    TupleCount(SINGLES, 99),
]
QUANTILES = [
    Quantile(of, q, grid)
    for of, grid in [
        (RowNumber(4), (1.0, 2.0, 3.0, 4.0)),
        (TupleNumber(PAIRS), (0.0, 1.0, 2.0, 5.0)),
        ("a", (-1.0, 0.0, 1.0, 1.5, 2.0)),
    ]
    for q in (0.0, 0.3, 0.95)
]


def name_of(query: Query) -> str:
    if isinstance(query, TupleCount):
        return f"{query.limit} of {len(query.tuples)} tuples"
    return repr(query)[:50]


row = st.tuples(st.integers(0, 2), st.integers(0, 1))
entity = st.lists(row, min_size=1, max_size=6)
tables = st.lists(entity, max_size=4)


@contextmanager
def coupled_draws(seed: int) -> Iterator[None]:
    keys = np.random.default_rng(seed).integers(0, 2**63, 1000).astype(np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        for module in (bounding, units, tuples):
            patch.setattr(module, "random_keys", lambda count: keys[:count])
        yield


def source_of(entities: list[list[tuple[int, int]]], max_rows: int) -> ArraySource:
    rows = [row for rows in entities for row in rows]
    ids = [number for number, rows in enumerate(entities) for _ in rows]
    return table(SIZES, rows, ids, max_rows)


def planned(query: Query, max_rows: int) -> QueryPlan:
    planner = Planner(source_of([], 1).schema, PrivacyUnit("entity", "id", max_rows), "zcdp")
    plan = planner.plan(CountQuestion((query,), RHO))
    assert isinstance(plan, tuple)
    return plan[0]


def exact(query: Query, entities: list[list[tuple[int, int]]], max_rows: int) -> NDArray[np.int64]:
    source = source_of(entities, max_rows)
    return exact_histograms(source, bound_rows(source), [planned(query, max_rows).histogram])[0]


@pytest.mark.parametrize("query", QUERIES, ids=name_of)
@settings(max_examples=50, deadline=None)
@given(others=tables, entity=entity, max_rows=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_an_entity_moves_it_by_no_more_than_stated(
    query: Query,
    others: list[list[tuple[int, int]]],
    entity: list[tuple[int, int]],
    max_rows: int,
    seed: int,
) -> None:
    with coupled_draws(seed):
        without = exact(query, others, max_rows)
        change = exact(query, [*others, entity], max_rows) - without
    stated = planned(query, max_rows).unit
    assert np.abs(change).sum() <= stated.l1
    assert (change**2).sum() <= stated.l2_squared


@pytest.mark.parametrize("query", QUERIES[:-1], ids=name_of)
def test_the_stated_sensitivities_are_reached_by_some_entity(query: Query) -> None:
    rows = list(product(range(3), range(2)))
    units = [list(unit) for n in (1, 2) for unit in combinations_with_replacement(rows, n)]
    vectors = [exact(query, [unit], 2) for unit in units]
    stated = planned(query, 2).unit
    if isinstance(query, Sum) and query.high > 2:
        stated = planned(Sum("a", 0.0, 2.0), 2).unit  # no row reaches a bound beyond the column
    if isinstance(query, TupleCount) and query.limit == 3 and query.tuples is PAIRS:
        assert max(vector.sum() for vector in vectors) == 2  # two rows hold no third pair
        return
    if isinstance(query, Sum) and query.low < 0:
        assert stated.l1 == 6  # of a column without negative numbers no row reaches it
        return
    assert max(np.abs(vector).sum() for vector in vectors) == stated.l1
    assert max((vector**2).sum() for vector in vectors) == stated.l2_squared


@pytest.mark.parametrize("query", QUERIES, ids=name_of)
def test_a_row_moves_it_by_no_more_than_stated(query: Query) -> None:
    planner = Planner(source_of([], 1).schema, PrivacyUnit("row"), "zcdp")
    plan = planner.plan(CountQuestion((query,), RHO))
    assert isinstance(plan, tuple)
    stated, asked = plan[0].unit, [plan[0].histogram]
    rows = [(0, 1), (2, 0), (0, 1)]
    smaller = table(SIZES, rows)
    with coupled_draws(0):
        for extra in product(range(3), range(2)):
            larger = table(SIZES, [*rows, extra])
            change = (
                exact_histograms(larger, bound_rows(larger), asked)[0]
                - exact_histograms(smaller, bound_rows(smaller), asked)[0]
            )
            assert np.abs(change).sum() <= stated.l1
            assert (change**2).sum() <= stated.l2_squared


def plan_of(query: Quantile, max_rows: int) -> QuantilePlan:
    planner = Planner(source_of([], 1).schema, PrivacyUnit("entity", "id", max_rows), "zcdp")
    plan = planner.plan(QuantileQuestion(query, RHO))
    assert isinstance(plan, QuantilePlan)
    return plan


@pytest.mark.parametrize("query", QUANTILES, ids=lambda query: f"{repr(query.of)[:12]}-{query.q}")
@settings(max_examples=40, deadline=None)
@given(others=tables, entity=entity, max_rows=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_an_entity_moves_no_score_of_a_quantile_by_more_than_stated(
    query: Quantile,
    others: list[list[tuple[int, int]]],
    entity: list[tuple[int, int]],
    max_rows: int,
    seed: int,
) -> None:
    plan = plan_of(query, max_rows)
    found = []
    with coupled_draws(seed):
        for people in (others, [*others, entity]):
            source = source_of(people, max_rows)
            found.append(quantile_scores(source, bound_rows(source), query, plan.listed))
    assert np.abs(found[1] - found[0]).max() <= plan.sensitivity


@pytest.mark.parametrize("limit", [1, 2, 9])
@settings(max_examples=60, deadline=None)
@given(others=tables, entity=entity, max_rows=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_an_entity_moves_few_keys_by_one_and_brings_few_of_its_own(
    limit: int,
    others: list[list[tuple[int, int]]],
    entity: list[tuple[int, int]],
    max_rows: int,
    seed: int,
) -> None:
    found = []
    with coupled_draws(seed):
        for people in (others, [*others, entity]):
            source = source_of(people, max_rows)
            groupings = [source.schema.column(name).grouping for name in SIZES]
            keys, counts = exact_keys(source, bound_rows(source), tuple(SIZES), groupings, limit)
            found.append(dict(zip(map(tuple, keys.tolist()), counts.tolist(), strict=True)))
    smaller, larger = found
    assert set(smaller) <= set(larger)
    moved = [key for key in larger if larger[key] != smaller.get(key, 0)]
    assert len(moved) <= min(limit, max_rows)
    assert all(larger[key] - smaller.get(key, 0) == 1 for key in moved)


def test_the_sensitivity_of_a_quantile_is_reached() -> None:
    query = Quantile("a", 0.25, (0.0, 1.0))
    assert plan_of(query, 3).sensitivity == 3 * 0.75 * QUANTILE_STEPS
    source = [source_of([[(0, 0)]] * n, 3) for n in (4, 5)]
    most = source_of([[(0, 0)]] * 4 + [[(0, 1)] * 3], 3)
    scores = [quantile_scores(each, bound_rows(each), query, None) for each in (*source, most)]
    assert scores[1][1] - scores[0][1] == -0.75 * QUANTILE_STEPS
    assert scores[2][1] - scores[0][1] == -3 * 0.75 * QUANTILE_STEPS


def test_scores_are_distances_from_the_rank_asked_for() -> None:
    source = table(SIZES, [(0, 0), (0, 0), (1, 0), (2, 0)], [1, 2, 3, 4])
    scores = quantile_scores(
        source, bound_rows(source), Quantile("a", 0.5, (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0)), None
    )
    # below: 0 0 2 2 3 4; not above: 0 2 2 3 4 4; half of four is two
    assert (scores / QUANTILE_STEPS).tolist() == [-2, 0, 0, 0, -1, -2]


def test_a_loud_quantile_is_the_quantile() -> None:
    people = [[(2, 0)] * (1 + person % 4) for person in range(40)]
    asked = session(source_of(people, 4), LOUD)
    loss = PrivacyLoss.pure(10**14)
    assert asked.quantile(Quantile(RowNumber(9), 0.74, tuple(map(float, range(10)))), loss) == 3
    assert asked.quantile(Quantile("a", 0.5, (0.5, 1.5, 2.0, 2.5)), loss) == 2
    held = Quantile(TupleNumber(SINGLES), 0.5, (0.0, 1.0, 2.0, 3.0))
    assert asked.quantile(held, loss) == 2


LOUDER = PrivacyLoss.pure(2**61)
MONEY = Schema.parse(
    {
        "fields": [
            {
                "name": "fare",
                "type": "number",
                "step": 0.25,
                "special": [-1],
                "constraints": {"minimum": 0.1, "maximum": 20},
            },
            {"name": "size", "type": "integer", "constraints": {"enum": [10, 20, 50]}},
            {"name": "zone", "type": "string", "constraints": {"enum": ["x", "y"]}},
        ]
    }
)


def money(**codes: list[int]) -> Any:
    rows = len(next(iter(codes.values())))
    whole = {column.name: np.zeros(rows, dtype=np.int64) for column in MONEY.columns}
    arrays = {name: np.array(column) for name, column in codes.items()}
    return session(ArraySource(MONEY, PrivacyUnit("row"), {**whole, **arrays}), LOUDER)


def test_sums_are_of_clipped_numbers_in_steps_of_the_column() -> None:
    fare = MONEY.column("fare")
    special, null = fare.regular, fare.null_code
    assert null is not None
    asked = money(fare=[0, 1, 79, special, null], zone=[0, 0, 1, 1, 1])
    (answer,) = asked.sum([Sum("fare", -0.5, 15.0, ("zone",))], LOUDER)
    assert answer.step == 0.01
    assert answer.l1_sensitivity == answer.l2_sensitivity == 1500
    # 0.10 + 0.35; 19.85 clipped to 15, -1 to -0.5, null left out; cells of zone: x, y, null
    assert (answer.values * answer.step).tolist() == pytest.approx([0.45, 14.5, 0.0])


def test_sums_of_categories_are_of_their_values() -> None:
    asked = money(size=[0, 1, 2, 3, 2])
    (answer,) = asked.sum([Sum("size", 0, 45)], LOUDER)
    assert answer.step == 1
    assert answer.values.item() == 10 + 20 + 45 + 45


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Sum("zone", 0, 1), "numbers"),
        (Sum("nowhere", 0, 1), "dictionary"),
        (Sum("size", 41.2, 41.7), "grid"),
        (Sum("fare", 0, 1e12), "2\\^32"),
        (TupleCount(Tuples(("zone",), {}, np.array([[7]])), 1), "item"),
        (TupleCount(Tuples(("zone", "size"), {}, np.array([[4, 0]])), 1), "increasing"),
        (TupleCount(Tuples(("zone",), {}, np.array([[0], [0]])), 1), "twice"),
        (TupleCount(Tuples(("zone", "zone"), {}, np.array([[0]])), 1), "once"),
    ],
)
def test_what_does_not_fit_is_refused(query: Query, said: str) -> None:
    with pytest.raises(QuestionRefused, match=said):
        money(zone=[0]).count([query], LOUDER)


def test_quantiles_of_text_are_refused() -> None:
    with pytest.raises(QuestionRefused, match="numbers"):
        money(zone=[0]).quantile(Quantile("zone", 0.5, (0.0,)), LOUDER)
