"""Values that many rows share: found by counts of finer and finer cells, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_tables import quiet, session_on

from app.engine.columns.frequent_codes import (
    always_offered,
    counts_of,
    most_counted,
    where_rows_are,
)
from app.engine.columns.private_bins import PLACED_POINTS
from app.engine.privacy.accounting import rho_for
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Contribution, Count, Measurement
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.histogram import Histogram, HistogramParams
from app.engine.synthesizers.independent import Independent, IndependentParams
from app.engine.table import generator

ONE = 10**12
ROWS = 20_000
Codes = np.ndarray[Any, Any]


def numbers(low: int, high: int, bins: object = "quantiles", **more: object) -> Schema:
    field = {
        "name": "x",
        "type": "integer",
        "constraints": {"minimum": low, "maximum": high, "required": True},
        "bins": bins,
    }
    return Schema.parse({"fields": [field | more]})


DAYS = numbers(0, 0, type="date", constraints={
    "minimum": "1990-01-01", "maximum": "2029-12-31", "required": True,
})  # fmt: skip


def guaranteed(epsilon: float) -> PrivacyLoss:
    """The loss of (epsilon, 1e-6)."""
    return PrivacyLoss.zcdp(rho_for(int(epsilon * ONE), ONE))


def money(rng: np.random.Generator) -> Codes:
    """0 in 11 % of rows, 0.1 % below it, the rest log-normal; codes from -100,000."""
    amounts = np.rint(rng.lognormal(10, 1, ROWS)).astype(np.int64)
    kind = rng.random(ROWS)
    amounts[kind < 0.11] = 0
    losses = kind > 0.999
    amounts[losses] = -np.rint(rng.lognormal(8, 1, int(losses.sum()))).astype(np.int64)
    return np.clip(amounts, -100_000, 10_000_000) + 100_000


def five_values(rng: np.random.Generator) -> Codes:
    values = np.array([120, 5000, 5001, 77_777, 900_000])
    return values[rng.choice(5, ROWS, p=[0.3, 0.25, 0.2, 0.15, 0.1])]


def few_dates(rng: np.random.Generator) -> Codes:
    return rng.choice(14_000, 12, replace=False)[rng.integers(0, 12, ROWS)]


def released(
    schema: Schema, codes: Codes, epsilon: float, method: Any = None, params: Any = None
) -> Codes:
    session = session_on(schema, {"x": codes}, guaranteed(epsilon))
    method, params = method or Independent(), params or IndependentParams()
    model = method.fit(session, params, None, 1, quiet)
    drawn: Codes = model.sample(ROWS, generator(2)).codes["x"]
    return drawn


@pytest.mark.parametrize("epsilon", [1, 10, 100])
@pytest.mark.parametrize(("method", "params"), [
    (Independent(), IndependentParams()), (Histogram(), HistogramParams()),
])  # fmt: skip
def test_zero_in_a_ninth_of_the_rows_stays_there_and_negative_values_stay_few(
    epsilon: float, method: Any, params: Any
) -> None:
    codes = money(np.random.default_rng(1))
    drawn = released(numbers(-100_000, 10_000_000), codes, epsilon, method, params)
    # At epsilon 1 the noise of the cell of 0 is some 7 rows, that of one bin's quantile some 100.
    assert np.mean(drawn == 100_000) == pytest.approx(np.mean(codes == 100_000), abs=0.02)
    assert np.mean(drawn < 100_000) < 0.01


@pytest.mark.parametrize("epsilon", [1, 10, 100])
@pytest.mark.parametrize(
    ("schema", "table"),
    [(numbers(0, 1_000_000), five_values), (DAYS, few_dates)],
    ids=["five values", "twelve dates of forty years"],
)
def test_a_few_values_that_hold_all_rows_are_all_there_is(
    schema: Schema, table: Callable[[np.random.Generator], Codes], epsilon: float
) -> None:
    codes = table(np.random.default_rng(2))
    drawn = released(schema, codes, epsilon)
    real, shares = np.unique(codes, return_counts=True)
    got = np.array([np.sum(drawn == value) for value in real])
    assert np.abs(got - shares).sum() / 2 / ROWS < 0.05


def test_more_dates_than_bins_are_found_within_the_bins() -> None:
    rng = np.random.default_rng(3)
    codes = rng.choice(14_000, 60, replace=False)[rng.integers(0, 60, ROWS)]
    drawn = released(DAYS, codes, 10)
    assert np.mean(np.isin(drawn, codes)) > 0.9


def test_no_value_is_frequent_in_a_smooth_table() -> None:
    """Nor does noise make one: the counts hold at most a thousandth of a false one in all."""
    schema = numbers(0, 10_000_000)
    column = schema.column("x")
    rng = np.random.default_rng(4)
    spread = np.clip(np.rint(rng.lognormal(10, 1, ROWS)), 0, 10_000_000).astype(np.int64)
    for loss in (PrivacyLoss.zcdp(ONE // 1000), PrivacyLoss.zcdp(ONE), PrivacyLoss.pure(ONE)):
        allowance = PrivacyLoss(loss.kind, 9 * loss.amount)
        found = where_rows_are(
            session_on(schema, {"x": spread}, allowance), column, loss, PLACED_POINTS
        )
        assert not [each for each in found.frequent if each.share > 0.01]
        median = np.mean(spread < found.low), np.mean(spread < found.end)
        assert median[0] - 0.1 < 0.5 < median[1] + 0.1


class Recorded:
    """A session that keeps its questions."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.counts: list[tuple[Count, PrivacyLoss]] = []

    def count(self, queries: list[Count], loss: PrivacyLoss) -> tuple[Measurement, ...]:
        (query,) = queries
        self.counts.append((query, loss))
        answers: tuple[Measurement, ...] = self.session.count(queries, loss)
        return answers


@pytest.mark.parametrize("regular", [1, 2, 3, 4, 300, 14_610, 10**6, 2**32 - 1])
@pytest.mark.parametrize("table", ["one value", "ten dense stretches", "everywhere", "nothing"])
def test_counts_are_as_many_and_as_long_as_foretold(regular: int, table: str) -> None:
    """Rows between dense cells must not be cut as finely as these."""
    schema = numbers(0, regular - 1)
    rng = np.random.default_rng(5)
    stretches = rng.integers(0, regular, 10)[:, None] + np.arange(3000)
    codes = {
        "one value": np.full(ROWS, regular // 3),
        "ten dense stretches": np.minimum(stretches.ravel(), regular - 1),
        "everywhere": rng.integers(0, regular, 5 * ROWS),
        "nothing": np.zeros(0, np.int64),
    }[table]
    loss = PrivacyLoss.zcdp(100 * ONE)
    session: Any = Recorded(
        session_on(schema, {"x": codes}, PrivacyLoss.zcdp(100 * ONE * counts_of(2**32)))
    )
    found = where_rows_are(session, schema.column("x"), loss, PLACED_POINTS)
    assert len(session.counts) <= counts_of(regular)
    cells = [query.groupings["x"].cells for query, _ in session.counts]
    assert sum(cells) <= most_counted(regular)
    assert {spent for _, spent in session.counts} <= {loss}
    assert found.end - found.low <= max(PLACED_POINTS, 1) or not len(codes)
    if table == "one value" and regular > 3:
        assert found.frequent[0].code == regular // 3
        assert found.frequent[0].share == pytest.approx(1, abs=0.01)


def test_zero_and_the_ends_are_offered_wherever_they_lie() -> None:
    assert always_offered(numbers(-5, 10).column("x")) == (0, 5, 15)
    assert always_offered(numbers(0, 10).column("x")) == (0, 10)
    assert always_offered(numbers(3, 10).column("x")) == (0, 7)
    assert always_offered(numbers(3, 3).column("x")) == (0,)
    assert always_offered(DAYS.column("x")) == (0, 14_609)
    halves = numbers(-1, 1, type="number", step=0.5).column("x")
    assert always_offered(halves) == (0, 2, 4)


@pytest.mark.parametrize("kind", ["pure", "zcdp"])
def test_cells_however_many_are_moved_by_a_unit_as_one_histogram(kind: Any) -> None:
    """One entity more, of k rows, moves each count by at most k in L1: cells are disjoint. The
    noise of every count is what that costs at its loss."""
    schema = Schema.parse(
        {
            "fields": [
                *numbers(0, 10**6).to_wire()["fields"],
                {"name": "id", "type": "string", "role": "entity"},
            ]
        }
    )
    unit = PrivacyUnit("entity", "id", 3)
    rng = np.random.default_rng(6)
    codes = np.concatenate([np.full(3000, 77), rng.integers(0, 10**6, 3000), [1, 77, 5 * 10**5]])
    ids = np.arange(len(codes)) // 3
    loss = PrivacyLoss(kind, ONE)

    def session(rows: int, allowance: PrivacyLoss) -> LocalSession:
        source = ArraySource(schema, unit, {"x": codes[:rows]}, ids[:rows])
        return LocalSession(Kernel(source, allowance))

    opened: Any = Recorded(session(len(codes), PrivacyLoss(kind, 3 * ONE)))
    where_rows_are(opened, schema.column("x"), loss, PLACED_POINTS)
    assert len(opened.counts) >= 2
    for query, _ in opened.counts:
        assert query.contribution == Contribution("rows")
        quiet_loss = PrivacyLoss(kind, 2**60)
        both = [
            session(rows, quiet_loss).count([query], quiet_loss)[0].values
            for rows in (len(codes), len(codes) - 3)
        ]
        assert 0 < np.abs(both[0] - both[1]).sum() <= 3
    answers = opened.session.remaining.amount
    assert answers == 3 * ONE - len(opened.counts) * ONE
    (again,) = session(len(codes), loss).count([opened.counts[-1][0]], loss)
    assert again.scale == pytest.approx(3 if kind == "pure" else 3 / 2**0.5)


def test_what_is_not_counted_is_left_to_later_questions() -> None:
    """Even rows over a wide range: no cell can hold a frequent value, so the search ends."""
    schema = numbers(0, 10**9)
    codes = np.random.default_rng(7).integers(0, 10**9, 2000)
    loss = PrivacyLoss.zcdp(ONE // 1000)
    session = session_on(schema, {"x": codes}, PrivacyLoss.zcdp(ONE))
    where_rows_are(session, schema.column("x"), loss, PLACED_POINTS)
    assert counts_of(10**9 + 1) == 4
    assert session.remaining.amount == ONE - 3 * loss.amount  # three find the median
