"""Quantiles of a column's regular values: what is left out, and what one unit moves."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.privacy.bounding import bound_rows
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.planning import Planner, QuantilePlan
from app.engine.privacy.quantiles import QUANTILE_STEPS, quantile_scores
from app.engine.privacy.queries import Quantile
from app.engine.privacy.questions import QuantileQuestion
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema

RHO = PrivacyLoss.zcdp(10**12)
SCHEMA = Schema.parse(
    {
        "fields": [
            {"name": "id", "type": "string", "role": "entity"},
            {
                "name": "x",
                "type": "integer",
                "constraints": {"minimum": 0, "maximum": 3},
                "special": [2, -5],
                "other": 9,
            },
        ]
    }
)
CODES = SCHEMA.column("x").codes
GRID = (-5.0, 0.0, 1.0, 2.0, 3.0, 9.0)


def scores(entities: list[list[int]], q: float, max_rows: int) -> np.ndarray:
    unit = PrivacyUnit("entity", "id", max_rows)
    rows = np.array([code for each in entities for code in each], dtype=np.int64)
    ids = np.array([i for i, each in enumerate(entities) for _ in each], dtype=np.int64)
    source = ArraySource(SCHEMA, unit, {"x": rows}, ids)
    query = Quantile("x", q, GRID, regular_only=True)
    return quantile_scores(source, bound_rows(source), query, None)


def test_special_values_other_and_null_do_not_count() -> None:
    # 0, 1 and 3 are regular; the special 2 and -5, other and null are not.
    found = scores([[0, 1, 3], [4, 5, 6, 7], [7, 7]], 0.5, 5) / QUANTILE_STEPS
    # below: 0 0 1 2 2 3; not above: 0 1 2 2 3 3; half of three is one and a half.
    assert found.tolist() == [-1.5, -0.5, 0, -0.5, -0.5, -1.5]


entity = st.lists(st.integers(0, CODES - 1), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None)
@given(
    others=st.lists(entity, max_size=4),
    added=entity,
    q=st.sampled_from([0.0, 0.3, 0.5, 0.95]),
)
def test_an_entity_moves_no_score_by_more_than_stated(
    others: list[list[int]], added: list[int], q: float
) -> None:
    planner = Planner(SCHEMA, PrivacyUnit("entity", "id", 4), "zcdp")
    plan = planner.plan(QuantileQuestion(Quantile("x", q, GRID, regular_only=True), RHO))
    assert isinstance(plan, QuantilePlan)
    change = scores([*others, added], q, 4) - scores(others, q, 4)
    assert np.abs(change).max() <= plan.sensitivity
