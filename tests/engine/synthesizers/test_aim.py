from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from small_tables import EXACT, LIMITS, ROW, colours, digits, quiet, random_codes, session_on

from app.engine.method import Limits
from app.engine.method.model_file import ModelFormatError
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Candidate, Count, GridReference
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.aim import Aim
from app.engine.synthesizers.aim.bounds import BoundedModel
from app.engine.synthesizers.aim.params import AimParams
from app.engine.table import generator

HOUSEHOLD = PrivacyUnit("entity", "id", 3)
GAUSSIAN = PrivacyLoss.zcdp(10**12)
LAPLACE = PrivacyLoss.pure(2 * 10**13)
NO_BOUNDS = {"one_way": 1, "selection": 0.3, "marginals": 2.7, "bounds": 0}


def params(**form: object) -> AimParams:
    return AimParams.model_validate(form)


def tied(schema: Schema, rows: int = 3000) -> dict[str, np.ndarray]:
    """The size is the colour's number; a null colour has no fare."""
    codes = random_codes(schema, rows)
    codes["size"] = codes["colour"].copy()
    null = schema.column("fare").null_code
    assert null is not None
    codes["fare"][codes["colour"] == 3] = null
    return codes


def session(loss: PrivacyLoss = GAUSSIAN, unit: PrivacyUnit = ROW, rows: int = 3000) -> Recorded:
    entity = unit.kind == "entity"
    schema = colours(entity)
    entities = np.arange(rows) // 3 if entity else None
    return Recorded(session_on(schema, tied(schema, rows), loss, unit, entities))


class Recorded:
    """A session that keeps its answers, and what was asked for how much."""

    def __init__(self, inner: LocalSession) -> None:
        self.inner = inner
        self.schema, self.unit, self.allowance = inner.schema, inner.unit, inner.allowance
        self.answers: list[object] = []
        self.asked: list[tuple[str, int]] = []
        self.references: list[bytes] = []
        self.counted: list[tuple[str, ...]] = []

    @property
    def remaining(self) -> PrivacyLoss:
        return self.inner.remaining

    def _kept(self, kind: str, loss: PrivacyLoss, answer: object) -> object:
        self.asked.append((kind, loss.amount))
        self.answers.append(answer)
        return answer

    def count(
        self, queries: Sequence[Count], loss: PrivacyLoss, shares: Sequence[float] | None = None
    ) -> object:
        self.counted += [query.columns for query in queries]
        return self._kept("count", loss, self.inner.count(queries, loss, shares))

    def select(self, candidates: Sequence[Candidate], loss: PrivacyLoss) -> object:
        self._refer(candidates)
        return self._kept("select", loss, self.inner.select(candidates, loss))

    def scores(self, candidates: Sequence[Candidate], loss: PrivacyLoss) -> object:
        self._refer(candidates)
        return self._kept("scores", loss, self.inner.scores(candidates, loss))

    def _refer(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            assert isinstance(candidate.reference, GridReference)
            self.references.append(candidate.reference.steps.tobytes())


class Replaying(Recorded):
    """A session that gives a recorded run's answers again."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__(recorded.inner)
        self._left = recorded.allowance
        self._replayed = iter(recorded.answers)

    @property
    def remaining(self) -> PrivacyLoss:
        return self._left

    def _answer(self, kind: str, loss: PrivacyLoss) -> object:
        self._left -= loss
        return self._kept(kind, loss, next(self._replayed))

    def count(self, queries: object, loss: PrivacyLoss, shares: object = None) -> object:
        del queries, shares
        return self._answer("count", loss)

    def select(self, candidates: Sequence[Candidate], loss: PrivacyLoss) -> object:
        self._refer(candidates)
        return self._answer("select", loss)

    def scores(self, candidates: Sequence[Candidate], loss: PrivacyLoss) -> object:
        self._refer(candidates)
        return self._answer("scores", loss)


def fit(opened: Recorded, **form: object) -> BoundedModel:
    return Aim().fit(opened, params(**form), None, 7, quiet)  # type: ignore[arg-type]


def test_without_noise_tied_columns_stay_tied() -> None:
    table = fit(session(EXACT)).sample(None, generator(1))
    assert table.rows == 3000
    assert (table.codes["size"] == table.codes["colour"]).mean() > 0.97
    null_fare = colours().column("fare").null_code
    assert (table.codes["fare"][table.codes["colour"] == 3] == null_fare).mean() > 0.97


def test_without_noise_bounds_are_the_errors() -> None:
    model = fit(session(EXACT))
    codes = tied(colours())
    for error in model.expected_errors():
        (shares,) = model.table.marginals([error.columns])
        cells = tuple(
            model.table.axes.groupings[name].cell_of(codes[name]) for name in error.columns
        )
        exact = np.zeros(shares.shape)
        np.add.at(exact, cells, 1 / 3000)
        distance = np.abs(shares - exact).sum() / 2
        assert distance <= error.distance <= distance + 0.01


@pytest.mark.parametrize("unit", [ROW, HOUSEHOLD])
@pytest.mark.parametrize("loss", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("rule", [{"rule": "rows"}, {"rule": "distinct", "limit": 2}])
def test_every_unit_loss_and_rule_spends_all_and_gives_a_table_in_the_dictionary(
    loss: PrivacyLoss, unit: PrivacyUnit, rule: dict[str, object]
) -> None:
    opened = session(loss, unit)
    table = fit(opened, contribution=rule).sample(None, generator(3))
    assert opened.remaining.amount == 0
    assert sum(amount for _, amount in opened.asked) == loss.amount
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
    opened = session(GAUSSIAN, HOUSEHOLD)
    model = fit(opened, contribution={"rule": "clipped", "norm": 1.5})
    assert opened.remaining.amount == 0
    assert abs(model.table.size.rows - 3000) < 100


def test_the_budget_is_divided_as_asked() -> None:
    opened = session()
    shares = {"one_way": 2, "selection": 0.3, "marginals": 2.7, "bounds": 1}
    fit(opened, shares=shares)
    kinds = [kind for kind, _ in opened.asked]
    assert (kinds[0], kinds[-1]) == ("count", "scores")
    assert opened.asked[0][1] == pytest.approx(10**12 * 2 / 6)
    assert opened.asked[-1][1] == pytest.approx(10**12 / 6)
    choosing = sum(amount for kind, amount in opened.asked if kind == "select")
    assert choosing <= 10**12 * 0.3 / 6 + 10
    assert "select" in kinds


def test_more_noise_leaves_more_of_the_budget_to_the_columns() -> None:
    def share_of_columns(rho: int) -> float:
        opened = session(PrivacyLoss.zcdp(rho))
        fit(opened)
        return opened.asked[0][1] / rho

    assert share_of_columns(10**12) == pytest.approx(0.15, abs=0.001)
    assert 0.15 < share_of_columns(10**10) < 0.3
    assert share_of_columns(10**7) == pytest.approx(0.55, abs=0.001)


def test_no_bounds_are_stated_where_none_are_paid_for() -> None:
    opened = session()
    model = fit(opened, shares=NO_BOUNDS)
    assert model.expected_errors() == ()
    assert "scores" not in [kind for kind, _ in opened.asked]
    assert opened.remaining.amount == 0


def test_bounds_are_stated_for_every_marginal_of_the_workload_and_its_own() -> None:
    errors = fit(session()).expected_errors()
    assert [error.columns for error in errors] == [
        ("colour",), ("size",), ("fare",),
        ("colour", "size"), ("colour", "fare"), ("size", "fare"),
        ("colour", "size", "fare"),
    ]  # fmt: skip
    assert {error.confidence for error in errors} == {0.95}


def test_a_run_started_again_asks_the_same_and_gives_the_same_bytes() -> None:
    recorded = session()
    first = fit(recorded)
    replayed = Replaying(recorded)
    again = fit(replayed)
    assert replayed.asked == recorded.asked
    assert replayed.references == recorded.references
    assert again.dump() == first.dump()
    assert again.expected_errors() == first.expected_errors()


def test_one_column_needs_no_choice_and_two_no_more_than_one_measurement() -> None:
    alone = session()
    fit(alone, columns=["colour"])
    assert [kind for kind, _ in alone.asked] == ["count", "scores"]
    pair = session()
    model = fit(pair, columns=["colour", "size"])
    assert [kind for kind, _ in pair.asked] == ["count", "count", "scores"]
    assert alone.remaining.amount == pair.remaining.amount == 0
    assert [set(clique) for clique in model.graph.tree.cliques] == [{"colour", "size"}]


def test_where_no_marginal_fits_the_rest_goes_to_the_columns() -> None:
    opened = session()
    model = fit(opened, most_cells=4)
    columns = [("colour",), ("size",), ("fare",)]
    assert opened.counted == [*columns, (), *columns]
    assert opened.remaining.amount == 0
    assert max(map(len, model.graph.tree.cliques)) == 1


@pytest.mark.parametrize("loss", [GAUSSIAN, LAPLACE, PrivacyLoss.zcdp(10**6)])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_tables_of_next_to_no_rows_are_fitted(rows: int, loss: PrivacyLoss) -> None:
    opened = session(loss, rows=rows)
    model = fit(opened)
    assert opened.remaining.amount == 0
    assert model.sample(40, generator(5)).rows == 40
    assert all(error.distance <= 1 for error in model.expected_errors())


def test_columns_of_a_single_value_are_fitted() -> None:
    schema = digits({"a": 3, "b": 4, "c": 5})
    zeros = {name: np.zeros(500, dtype=np.int64) for name in "abc"}
    opened = Recorded(session_on(schema, zeros, GAUSSIAN))
    table = fit(opened).sample(500, generator(6))
    assert all((codes == 0).mean() > 0.9 for codes in table.codes.values())


def test_a_target_draws_measurements_to_itself() -> None:
    """Of pairs alike in strength, those with the target are measured."""
    rng = np.random.default_rng(1)
    names = [f"c{i}" for i in range(6)]
    shared = rng.integers(0, 3, 4000)
    codes = {
        name: np.where(rng.random(4000) < 0.5, shared, rng.integers(0, 3, 4000)) for name in names
    }
    opened = Recorded(session_on(digits(dict.fromkeys(names, 3)), codes, GAUSSIAN))
    fit(opened, target="c5", degree=2, shares=NO_BOUNDS)
    measured = [columns for columns in opened.counted if len(columns) == 2]
    assert sum("c5" in columns for columns in measured[:3]) == 3


def test_winners_of_a_round_share_at_most_a_column() -> None:
    rng = np.random.default_rng(2)
    names = [f"c{i}" for i in range(6)]
    codes = {name: rng.integers(0, 2, 1000) for name in names}
    opened = Recorded(session_on(digits(dict.fromkeys(names, 2)), codes, GAUSSIAN))
    fit(opened, winners=3)
    counts = [answer for answer in opened.answers if isinstance(answer, tuple)]
    rounds = [[m.columns for m in answer if hasattr(m, "columns")] for answer in counts[1:]]
    assert max(map(len, rounds)) == 3
    for together in rounds:
        for i, first in enumerate(together):
            assert all(len(set(first) & set(other)) < 2 for other in together[:i])


def test_a_stored_model_samples_as_before() -> None:
    model = fit(session(GAUSSIAN, HOUSEHOLD))
    loaded = Aim().load(colours(True), HOUSEHOLD, model.dump())
    assert loaded.dump() == model.dump()
    before, after = (each.sample(99, generator(4)) for each in (model, loaded))
    assert all(np.array_equal(before.codes[name], after.codes[name]) for name in before.codes)
    with pytest.raises(ModelFormatError):
        Aim().load(colours(True), HOUSEHOLD, b"no model")


def test_the_forecast_is_the_noise_of_the_first_round() -> None:
    preflight = Aim().check(colours(), ROW, params(shares=NO_BOUNDS), GAUSSIAN, None, LIMITS)
    # 2.7 of 4 parts of rho 1 over nine winners: sigma = 1 / sqrt(2 * 0.675 / 9).
    assert preflight.expected_error == pytest.approx((9 / 1.35) ** 0.5)
    assert preflight.problems == ()
    # 4 + 10 + 7 cells of columns, and nine times the triple's 280.
    assert preflight.cells == 21 + 9 * 280


@pytest.mark.parametrize(
    ("form", "loss", "pointer"),
    [
        ({"columns": []}, GAUSSIAN, "/params/columns"),
        ({"columns": ["size", "weight"]}, GAUSSIAN, "/params/columns/1"),
        ({"target": "weight"}, GAUSSIAN, "/params/target"),
        ({"target": ""}, GAUSSIAN, "/params/target"),
        ({"columns": ["size", "fare"], "target": "colour"}, GAUSSIAN, "/params/target"),
        ({"column_weights": {"a/b": 2}}, GAUSSIAN, "/params/column_weights/a~1b"),
        ({"workload": [{"columns": ["size", "x"]}]}, GAUSSIAN, "/params/workload/0/columns"),
        ({"workload": [{"columns": ["size", "size"]}]}, GAUSSIAN, "/params/workload/0/columns"),
        ({"workload": [{"columns": ["size"]}], "degree": 2}, GAUSSIAN, "/params/degree"),
        ({"contribution": {"rule": "clipped", "norm": 2}}, LAPLACE, "/params/contribution/rule"),
        ({}, PrivacyLoss.pure(10), "/guarantee"),
    ],
)
def test_what_cannot_run_is_told_before_it_is_charged(
    form: dict[str, object], loss: PrivacyLoss, pointer: str
) -> None:
    preflight = Aim().check(colours(True), HOUSEHOLD, params(**form), loss, None, LIMITS)
    assert pointer in [problem.pointer for problem in preflight.problems]


def test_a_named_workload_is_measured_and_bounded() -> None:
    opened = session()
    model = fit(opened, workload=[{"columns": ["fare", "colour"]}, {"columns": ["size"]}])
    assert {columns for columns in opened.counted if len(columns) > 1} == {("colour", "fare")}
    assert {error.columns for error in model.expected_errors()} == {
        ("colour",), ("size",), ("fare",), ("colour", "fare"),
    }  # fmt: skip


@pytest.mark.parametrize(("columns", "degree"), [(36, 3), (100, 2), (125, 2)])
def test_wide_tables_are_answered_in_pairs_where_triples_are_too_many(
    columns: int, degree: int
) -> None:
    wide = digits({f"c{i}": 8 for i in range(columns)})
    limits = Limits(max_total_rows=200_000, rows=None, memory_bytes=2**31, time_s=600.0)
    assert Aim().check(wide, ROW, params(), GAUSSIAN, None, limits).problems == ()
    preflight = Aim().check(wide, ROW, params(degree=degree + 1), GAUSSIAN, None, limits)
    assert [problem.pointer for problem in preflight.problems] == ["/params/degree"]


def test_more_columns_than_pairs_can_be_offered_of_are_told() -> None:
    wide = digits({f"c{i}": 2 for i in range(126)})
    preflight = Aim().check(wide, ROW, params(), GAUSSIAN, None, LIMITS)
    assert [problem.pointer for problem in preflight.problems] == ["/params/columns"]


def test_the_time_of_choosing_among_many_is_told() -> None:
    wide = digits({f"c{i}": 2 for i in range(64)})
    preflight = Aim().check(wide, ROW, params(), GAUSSIAN, None, LIMITS)
    assert "choosing among 2016 marginals" in preflight.problems[0].message
    patient = dataclasses.replace(LIMITS, time_s=120.0)
    assert Aim().check(wide, ROW, params(), GAUSSIAN, None, patient).problems == ()


def test_memory_and_time_are_told_from_public_facts() -> None:
    small = Limits(max_total_rows=10_000, rows=None, memory_bytes=2**27, time_s=1.0)
    preflight = Aim().check(
        digits(dict.fromkeys("abcdef", 90)), ROW, params(), GAUSSIAN, None, small
    )
    assert len(preflight.problems) == 2
