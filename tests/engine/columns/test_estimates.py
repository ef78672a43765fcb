from __future__ import annotations

import numpy as np
import pytest
from small_tables import EXACT, colours, digits, random_codes, session_on

from app.engine.columns.axes import choose_axes
from app.engine.columns.estimates import ColumnEstimates, in_rows, ordered_cells
from app.engine.columns.one_way import measure_one_ways
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution
from app.engine.schema import PrivacyUnit, Schema

HOUSEHOLD = PrivacyUnit("entity", "id", 3)


def measured(
    schema: Schema,
    codes: dict[str, np.ndarray],
    loss: PrivacyLoss = EXACT,
    rare_below: float = 2.0,
) -> ColumnEstimates:
    axes, _ = choose_axes(schema, None, {})
    answers = measure_one_ways(session_on(schema, codes, loss), axes, Contribution(), loss)
    return ColumnEstimates.of(axes, schema, answers, rare_below)


def test_ranges_are_in_order_and_names_are_not() -> None:
    axes, _ = choose_axes(colours(), None, {"fare": 4})
    assert ordered_cells(axes, colours()) == (0, 10, 4)


def test_without_noise_counts_stand_and_empty_cells_are_merged() -> None:
    schema = digits({"a": 4, "b": 30})
    codes = {"a": np.repeat([0, 3], [60, 40]), "b": np.arange(100) % 25}
    columns = measured(schema, codes)
    assert columns.size.rows == 100
    assert columns.shape == {"a": 3, "b": 26}
    assert columns.counts["a"].tolist() == pytest.approx([60, 0, 40], abs=0.01)
    assert columns.counts["b"] == pytest.approx([4] * 25 + [0], abs=0.1)
    assert columns.shares["a"].sum() == pytest.approx(1)


def test_long_ordered_columns_are_smoothed_and_short_ones_are_not() -> None:
    schema = digits({"a": 19, "b": 40})
    codes = random_codes(schema, 20_000)
    columns = measured(schema, codes, PrivacyLoss.zcdp(2 * 10**8))
    answers = columns.estimates
    assert np.unique(answers[0].variances).size == 1
    assert np.median(answers[1].variances) < answers[0].variances[0] / 4
    assert np.abs(answers[1].means - 500).mean() < 40


def test_counts_lie_on_a_grid_and_have_one_total() -> None:
    schema = colours()
    columns = measured(schema, random_codes(schema, 500), PrivacyLoss.zcdp(10**10))
    for counts in columns.counts.values():
        assert (counts >= 0).all()
        assert (counts * 1024 == np.rint(counts * 1024)).all()
        assert counts.sum() == pytest.approx(columns.size.rows, abs=0.01)


def test_a_table_of_no_rows_has_shares_too() -> None:
    schema = colours()
    columns = measured(schema, random_codes(schema, 0), PrivacyLoss.zcdp(10**12))
    assert all(shares.sum() == pytest.approx(1) for shares in columns.shares.values())
    assert all((marginal.variance > 0).all() for marginal in columns.marginals)


def test_counts_that_are_not_of_rows_are_scaled_to_the_rows() -> None:
    schema = colours(entity=True)
    codes = {name: np.zeros(30, dtype=np.int64) for name in ("colour", "size", "fare")}
    session = session_on(schema, codes, EXACT, HOUSEHOLD, np.arange(30) // 3)
    axes, _ = choose_axes(schema, None, {})
    answers = measure_one_ways(session, axes, Contribution("distinct", limit=1), EXACT)
    marginal = in_rows(answers.answers[0], answers.size)
    assert marginal.values.tolist() == [30, 0, 0, 0]
