from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import EXACT, LIMITS, ROW, colours, digits, quiet, random_codes, session_on

from app.engine.graphical.table_model import TableModel
from app.engine.method.model_file import ModelFormatError
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count, Measurement
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.mst import Mst, MstParams
from app.engine.table import generator

HOUSEHOLD = PrivacyUnit("entity", "id", 3)
GAUSSIAN = PrivacyLoss.zcdp(10**12)
LAPLACE = PrivacyLoss.pure(10**13)


def params(**form: object) -> MstParams:
    return MstParams.model_validate(form)


def tied(schema: Schema, rows: int = 3000) -> dict[str, np.ndarray]:
    """The size is the colour's number, 7 and 8 on one row each; a null colour has no fare."""
    codes = random_codes(schema, rows)
    codes["size"] = codes["colour"].copy()
    codes["size"][:2] = [7, 8][:rows]
    codes["fare"][codes["colour"] == 3] = schema.column("fare").null_code
    return codes


def session(loss: PrivacyLoss = EXACT, unit: PrivacyUnit = ROW, rows: int = 3000) -> LocalSession:
    entity = unit.kind == "entity"
    schema = colours(entity)
    entities = np.arange(rows) // 3 if entity else None
    return session_on(schema, tied(schema, rows), loss, unit, entities)


def fit(
    form: MstParams | None = None, loss: PrivacyLoss = EXACT, unit: PrivacyUnit = ROW
) -> TableModel:
    open_session = session(loss, unit)
    model = Mst().fit(open_session, form or params(), None, 7, quiet)
    assert open_session.remaining.amount <= 5, "all is spent but what rounding down leaves"
    return model


def test_without_noise_tied_columns_stay_tied() -> None:
    table = fit().sample(None, generator(1))
    assert table.rows == 3000
    assert (table.codes["size"] == table.codes["colour"]).mean() > 0.99
    null_fare = colours().column("fare").null_code
    of_null_colour = table.codes["fare"][table.codes["colour"] == 3]
    assert (of_null_colour == null_fare).mean() > 0.99


def test_rare_values_are_merged_and_restored() -> None:
    model = fit(params(rare_below=6), GAUSSIAN)  # which noise passes with a chance of 1e-9
    sizes = model.compressions[1]
    assert {4, 5, 6, 9} <= set(sizes.rare.tolist())
    assert not {0, 1, 2, 3} & set(sizes.rare.tolist())
    restored = model.sample(None, generator(2)).codes["size"]
    assert np.bincount(restored, minlength=10)[:4].sum() > 2900


@pytest.mark.parametrize("unit", [ROW, HOUSEHOLD])
@pytest.mark.parametrize("loss", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("rule", [{"rule": "rows"}, {"rule": "distinct", "limit": 2}])
def test_every_unit_loss_and_rule_gives_a_table_in_the_dictionary(
    loss: PrivacyLoss, unit: PrivacyUnit, rule: dict[str, object]
) -> None:
    table = fit(params(contribution=rule), loss, unit).sample(None, generator(3))
    assert abs(table.rows - 3000) < 300
    for column in colours().columns:
        codes = table.codes[column.name]
        assert codes.shape == (table.rows,)
        assert 0 <= codes.min() <= codes.max() < column.codes
    assert (table.codes["size"] == table.codes["colour"]).mean() > 0.6
    if unit is HOUSEHOLD:
        assert table.entity is not None
        assert np.bincount(table.entity).max() <= 3


def test_clipped_counts_are_scaled_to_the_rows() -> None:
    form = params(contribution={"rule": "clipped", "norm": 1.5})
    model = fit(form, GAUSSIAN, HOUSEHOLD)
    assert abs(model.size.rows - 3000) < 100
    assert model.graph.marginal(("colour",)).sum() == pytest.approx(1)


def test_one_column_and_two_need_no_selection() -> None:
    alone = fit(params(columns=["colour"]), GAUSSIAN)
    assert alone.graph.tree.cliques == (("colour",),)
    pair = fit(params(columns=["colour", "size"]), GAUSSIAN)
    assert [set(clique) for clique in pair.graph.tree.cliques] == [{"colour", "size"}]


def test_a_pair_too_large_is_sampled_independently() -> None:
    form = params(columns=["colour", "size"], most_pair_cells=4)
    model = Mst().fit(session(), form, None, 7, quiet)
    assert max(map(len, model.graph.tree.cliques)) == 1
    assert model.sample(100, generator(4)).rows == 100


def test_a_table_of_no_rows_is_fitted() -> None:
    model = Mst().fit(session(GAUSSIAN, rows=0), params(), None, 7, quiet)
    assert model.sample(40, generator(5)).rows == 40


class Replaying:
    """A session that gives a recorded run's answers again."""

    def __init__(self, recorded: Recorded) -> None:
        self.schema, self.unit = recorded.schema, recorded.unit
        self.allowance, self.remaining = recorded.allowance, recorded.allowance
        self.answers = iter(recorded.answers)

    def _next(self, loss: PrivacyLoss) -> object:
        self.remaining -= loss
        return next(self.answers)

    def count(self, queries: object, loss: PrivacyLoss, shares: object = None) -> object:
        del queries, shares
        return self._next(loss)

    def select(self, candidates: object, loss: PrivacyLoss, winners: int = 1) -> object:
        del candidates, winners
        return self._next(loss)


class Recorded:
    """A session that keeps its answers, and how its loss was spent."""

    def __init__(self, inner: LocalSession) -> None:
        self.inner = inner
        self.schema, self.unit, self.allowance = inner.schema, inner.unit, inner.allowance
        self.answers: list[object] = []
        self.spent: list[tuple[str, int]] = []

    @property
    def remaining(self) -> PrivacyLoss:
        return self.inner.remaining

    def count(
        self, queries: list[Count], loss: PrivacyLoss, shares: list[float] | None = None
    ) -> tuple[Measurement, ...]:
        answer = self.inner.count(queries, loss, shares)
        self.answers.append(answer)
        self.spent.append(("count", loss.amount))
        return answer

    def select(self, candidates: list, loss: PrivacyLoss, winners: int = 1) -> tuple[int, ...]:  # type: ignore[type-arg]
        answer = self.inner.select(candidates, loss, winners)
        self.answers.append(answer)
        self.spent.append(("select", loss.amount))
        return answer


def test_the_same_answers_and_seed_give_the_same_bytes() -> None:
    recorded = Recorded(session(GAUSSIAN))
    first = Mst().fit(recorded, params(), None, 7, quiet).dump()  # type: ignore[arg-type]
    again = Mst().fit(Replaying(recorded), params(), None, 7, quiet).dump()  # type: ignore[arg-type]
    assert again == first


def test_the_budget_is_divided_as_asked_and_spent_once() -> None:
    recorded = Recorded(session(GAUSSIAN))
    shares = {"one_way": 2, "selection": 1, "two_way": 1}
    Mst().fit(recorded, params(shares=shares), None, 7, quiet)  # type: ignore[arg-type]
    kinds = [kind for kind, _ in recorded.spent]
    assert kinds == ["count", "select", "select", "count"]
    amounts = [amount for _, amount in recorded.spent]
    assert amounts == [5 * 10**11, 125 * 10**9, 125 * 10**9, 25 * 10**10]
    assert sum(amounts) == GAUSSIAN.amount


@given(st.integers(0, 2**63 - 1))
@settings(max_examples=5, deadline=None)
def test_a_stored_model_samples_as_before(seed: int) -> None:
    model = fit(loss=GAUSSIAN, unit=HOUSEHOLD)
    loaded = Mst().load(colours(True), HOUSEHOLD, model.dump())
    assert loaded.dump() == model.dump()
    before, after = (each.sample(99, generator(seed)) for each in (model, loaded))
    assert all(np.array_equal(before.codes[name], after.codes[name]) for name in before.codes)
    assert np.array_equal(before.entity, after.entity)  # type: ignore[arg-type]


def test_a_model_of_another_method_is_refused() -> None:
    model = dataclasses.replace(fit(loss=GAUSSIAN), method="swift")
    with pytest.raises(ModelFormatError):
        Mst().load(colours(), ROW, model.dump())


def test_the_forecast_is_the_worst_tree() -> None:
    preflight = Mst().check(colours(), ROW, params(), GAUSSIAN, None, LIMITS)
    # One-ways have 4 + 10 + 7 cells; the two largest pairs 70 and 40.
    assert preflight.cells == 21 + 110
    assert preflight.problems == ()
    # Half of rho 1 over two pairs: sigma = 1 / sqrt(2 / 4).
    assert preflight.expected_error == pytest.approx(2**0.5)


@pytest.mark.parametrize(
    ("form", "loss", "pointer"),
    [
        ({"columns": []}, GAUSSIAN, "/params/columns"),
        ({"columns": ["size", "weight"]}, GAUSSIAN, "/params/columns/1"),
        ({"contribution": {"rule": "clipped", "norm": 2}}, LAPLACE, "/params/contribution/rule"),
        ({"shares": {"selection": 1e-6, "one_way": 1e6}}, PrivacyLoss.pure(10**6), "/guarantee"),
    ],
)
def test_what_cannot_run_is_told_before_it_is_charged(
    form: dict[str, object], loss: PrivacyLoss, pointer: str
) -> None:
    preflight = Mst().check(colours(True), HOUSEHOLD, params(**form), loss, None, LIMITS)
    assert pointer in [problem.pointer for problem in preflight.problems]


def test_more_pairs_than_the_kernel_counts_at_once_are_told() -> None:
    wide = digits({f"c{i}": 1000 for i in range(20)})
    preflight = Mst().check(wide, ROW, params(), GAUSSIAN, None, LIMITS)
    assert "/params/most_pair_cells" in [problem.pointer for problem in preflight.problems]
    fewer = Mst().check(wide, ROW, params(most_pair_cells=10_000), GAUSSIAN, None, LIMITS)
    assert fewer.problems == ()


@pytest.mark.parametrize(
    "cells",
    [{f"c{i}": 3000 for i in range(20)}, {"a": 400_000, "b": 2} | {f"c{i}": 2 for i in range(20)}],
)
def test_what_a_child_could_not_hand_over_is_told(cells: dict[str, int]) -> None:
    preflight = Mst().check(digits(cells), ROW, params(), GAUSSIAN, None, LIMITS)
    assert "sent at once" in " ".join(problem.message for problem in preflight.problems)


def test_more_columns_than_a_selection_offers_are_told() -> None:
    wide = digits({f"c{i}": 2 for i in range(201)})
    preflight = Mst().check(wide, ROW, params(), GAUSSIAN, None, LIMITS)
    assert [problem.pointer for problem in preflight.problems] == ["/params/columns"]


def test_one_column_more_than_none_is_forecast() -> None:
    preflight = Mst().check(colours(), ROW, params(columns=["size"]), GAUSSIAN, None, LIMITS)
    assert preflight.cells == 10
    assert preflight.problems == ()
