from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tables import ROW, digits, quiet, session_on

from app.engine.columns import one_way
from app.engine.columns.axes import choose_axes
from app.engine.columns.contribution import expected_errors
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit
from app.engine.synthesizers.aim import Aim, bounds
from app.engine.synthesizers.aim.params import AimParams

CELLS = {"a": 3, "b": 4}
RHO = PrivacyLoss.zcdp(10**11)
EPSILON = PrivacyLoss.pure(10**11)
HOUSEHOLD = PrivacyUnit("entity", "id", 3)


def axes(cells: dict[str, int] = CELLS):  # type: ignore[no-untyped-def]
    return choose_axes(digits(cells), None, {})[0]


@given(st.floats(0.05, 30.0))
def test_a_discrete_gaussian_passes_its_bound_in_at_most_4_percent(steps: float) -> None:
    support = np.arange(-1000.0, 1001.0)
    weights = np.exp(-(support**2) / (2 * steps**2))
    z = bounds.score_error("gaussian", steps / 1024) * 1024
    missed = weights[support < -z].sum() / weights.sum()
    assert missed <= 0.04
    assert weights[support < -z + 3].sum() / weights.sum() > 0.04 or steps < 1


@given(st.floats(0.05, 30.0))
def test_a_discrete_laplace_passes_its_bound_in_at_most_4_percent(steps: float) -> None:
    support = np.arange(-2000.0, 2001.0)
    weights = np.exp(-np.abs(support) / steps)
    z = bounds.score_error("laplace", steps / 1024) * 1024
    assert weights[support < -z].sum() / weights.sum() <= 0.04
    assert weights[support < -z + 2].sum() / weights.sum() > 0.04 or steps < 1


def test_rows_are_as_sure_as_all_columns_together_make_them() -> None:
    rule = Contribution()
    found = bounds.rows_error(axes(), rule, UnitBudget(ROW, RHO))
    errors = expected_errors(
        one_way.questions(axes(), rule, ROW),
        one_way.weights(axes(), rule, UnitBudget(ROW, RHO)),
        UnitBudget(ROW, RHO),
    )
    precision = 1 / errors[2] ** 2 + 1 / (3 * errors[0] ** 2) + 1 / (4 * errors[1] ** 2)
    assert found == pytest.approx(math.sqrt(2 * math.log(200) / precision) + 1)


def test_rules_that_count_no_rows_leave_the_rows_less_sure() -> None:
    all_rows = bounds.rows_error(axes(), Contribution(), UnitBudget(ROW, RHO))
    assert (
        bounds.rows_error(axes(), Contribution("distinct", limit=1), UnitBudget(ROW, RHO))
        > all_rows / 2
    )
    of_entities = bounds.rows_error(axes(), Contribution(), UnitBudget(HOUSEHOLD, RHO))
    assert of_entities > 3 * all_rows - 3


@pytest.mark.parametrize("loss", [RHO, EPSILON])
@pytest.mark.parametrize("unit", [ROW, HOUSEHOLD])
def test_the_noisy_rows_are_within_their_error(loss: PrivacyLoss, unit: PrivacyUnit) -> None:
    """Of 200 runs 1 in 100 may fail; 14 do with a chance of 1e-8."""
    from small_tables import colours

    entity = unit.kind == "entity"
    schema = colours(entity)
    rows = 300
    codes = {
        column.name: np.zeros(rows, dtype=np.int64)
        for column in schema.columns
        if column.name != "id"
    }
    chosen, _ = choose_axes(schema, ["colour", "size"], {})
    error = bounds.rows_error(chosen, Contribution(), UnitBudget(unit, loss))
    entities = np.arange(rows) // 3 if entity else None
    missed = 0
    for _ in range(200):
        session = session_on(schema, codes, loss, unit, entities)
        measured = one_way.measure_one_ways(session, chosen, Contribution(), loss)
        missed += abs(measured.size.rows - rows) > error
    assert missed < 14


def test_small_marginals_are_bounded_before_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_BOUNDED_CELLS", 3 + 4 + 12)
    closure = (("a",), ("b",), ("a", "b"))
    assert bounds.bounded(axes(), closure) == closure
    monkeypatch.setattr(bounds, "MOST_BOUNDED_CELLS", 18)
    assert bounds.bounded(axes(), closure) == (("a",), ("b",))


def test_large_references_are_asked_in_parts_of_one_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    cells = {"a": 3, "b": 4, "c": 5}
    codes = {name: rng.integers(0, size, 400) for name, size in cells.items()}
    monkeypatch.setattr(bounds, "_CELLS_AT_ONCE", 60)
    session = session_on(digits(cells), codes, PrivacyLoss.zcdp(10**12))
    asked: list[tuple[int, PrivacyLoss]] = []
    scores = session.scores

    def recorded(candidates, loss):  # type: ignore[no-untyped-def]
        asked.append((len(candidates), loss))
        return scores(candidates, loss)

    monkeypatch.setattr(session, "scores", recorded)
    model = Aim().fit(session, AimParams(), None, 0, quiet)
    assert [number for number, _ in asked] == [6, 1]  # 3 + 4 + 5 + 12 + 15 + 20, and 60
    each = [loss.amount / number for number, loss in asked]
    assert each[0] == pytest.approx(each[1], rel=1e-6)
    assert session.remaining.amount == 0
    assert [error.columns for error in model.expected_errors()] == [
        ("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c"),
    ]  # fmt: skip
