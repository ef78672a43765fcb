from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from small_tables import EXACT, LIMITS, ROW, colours, digits, quiet, random_codes, session_on

from app.engine.columns.axes import Axes, choose_axes
from app.engine.columns.table_size import SizeEstimate
from app.engine.graphical.preparation import PreparedTable, one_way_errors
from app.engine.graphical.table_model import TableModel
from app.engine.grouping import Grouping
from app.engine.method import Limits, PublicFacts
from app.engine.method.model_file import ModelFormatError
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import (
    Candidate,
    Contribution,
    Count,
    GridReference,
    Measurement,
    Scored,
)
from app.engine.privacy.references import counts_of
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.synthesizers.mst import Mst, MstParams
from app.engine.synthesizers.swift import Swift
from app.engine.synthesizers.swift.budget import (
    MostCells,
    PairBudget,
    budget_weights,
    possible_shares,
    rows_loss,
    usual_shares,
)
from app.engine.synthesizers.swift.needs import MOST_SCORED_CELLS, most_pair_cells, prior_cells
from app.engine.synthesizers.swift.params import Shares, SwiftParams
from app.engine.table import PublicTable, Table, generator

HOUSEHOLD = PrivacyUnit("entity", "id", 3)
GAUSSIAN = PrivacyLoss.zcdp(10**12)
LAPLACE = PrivacyLoss.pure(10**13)


def params(**form: object) -> SwiftParams:
    return SwiftParams.model_validate(form)


def tied(schema: Schema, rows: int = 3000) -> dict[str, np.ndarray]:
    """The size is the colour's number; a null colour has no fare."""
    codes = random_codes(schema, rows)
    codes["size"] = codes["colour"].copy()
    null_code = schema.column("fare").null_code
    assert null_code is not None
    codes["fare"][codes["colour"] == 3] = null_code
    return codes


def session(loss: PrivacyLoss = EXACT, unit: PrivacyUnit = ROW, rows: int = 3000) -> LocalSession:
    entity = unit.kind == "entity"
    schema = colours(entity)
    entities = np.arange(rows) // 3 if entity else None
    return session_on(schema, tied(schema, rows), loss, unit, entities)


def fitted(asked: Any, form: SwiftParams | None = None) -> TableModel:
    model = Swift().fit(asked, form or params(), None, 7, quiet)
    assert isinstance(model, TableModel)
    return model


def fit(
    form: SwiftParams | None = None, loss: PrivacyLoss = EXACT, unit: PrivacyUnit = ROW
) -> TableModel:
    open_session = session(loss, unit)
    model = fitted(open_session, form)
    assert open_session.remaining.amount <= 10, "all is spent but what rounding down leaves"
    return model


class Recorded:
    """A session that keeps its questions and answers, or gives recorded ones again."""

    def __init__(self, inner: LocalSession, told: Sequence[object] = ()) -> None:
        self.inner = inner
        self.schema, self.unit, self.allowance = inner.schema, inner.unit, inner.allowance
        self.remaining = inner.allowance
        self.told = list(told)
        self.asked: list[tuple[str, object, PrivacyLoss]] = []
        self.answers: list[object] = []

    def _answer(self, kind: str, question: object, loss: PrivacyLoss, ask: object) -> object:
        self.asked.append((kind, question, loss))
        self.remaining -= loss
        answer = self.told.pop(0) if self.told else ask()  # type: ignore[operator]
        self.answers.append(answer)
        return answer

    def count(
        self, queries: Sequence[Count], loss: PrivacyLoss, shares: Sequence[float] | None = None
    ) -> tuple[Measurement, ...]:
        question = (tuple(queries), tuple(shares or ()))
        return self._answer(  # type: ignore[return-value]
            "count", question, loss, lambda: self.inner.count(queries, loss, shares)
        )

    def scores(self, candidates: Sequence[Candidate], loss: PrivacyLoss) -> Scored:
        references = [
            counts_of(each.reference).tolist()
            if isinstance(each.reference, GridReference)
            else [factor.tolist() for factor in each.reference]
            for each in candidates
        ]
        question = (tuple(c.count for c in candidates), references)
        return self._answer(  # type: ignore[return-value]
            "scores", question, loss, lambda: self.inner.scores(candidates, loss)
        )


def recorded(
    form: SwiftParams | None = None, loss: PrivacyLoss = GAUSSIAN, told: Sequence[object] = ()
) -> tuple[Recorded, TableModel]:
    asked = Recorded(session(loss), told)
    return asked, fitted(asked, form)


def test_without_noise_tied_columns_stay_tied() -> None:
    table = fit().sample(None, generator(1))
    assert table.rows == 3000
    assert (table.codes["size"] == table.codes["colour"]).mean() > 0.99
    null_fare = colours().column("fare").null_code
    of_null_colour = table.codes["fare"][table.codes["colour"] == 3]
    assert (of_null_colour == null_fare).mean() > 0.99


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
    model = fit(params(contribution={"rule": "clipped", "norm": 1.5}), GAUSSIAN, HOUSEHOLD)
    assert abs(model.size.rows - 3000) < 100
    assert model.graph.marginal(("colour",)).sum() == pytest.approx(1)


def test_the_three_questions_cost_what_they_are_given() -> None:
    asked, _ = recorded(params(shares={"one_way": 2, "scores": 1, "two_way": 1}))
    assert [kind for kind, _, _ in asked.asked] == ["count", "scores", "count"]
    losses = [loss.amount for _, _, loss in asked.asked]
    assert losses == [5 * 10**11, 25 * 10**10, 25 * 10**10]


def test_only_pairs_that_are_related_are_measured() -> None:
    asked, model = recorded()
    question: Any = asked.asked[-1][1]
    queries, shares = question
    pairs = {query.columns for query in queries}
    assert ("colour", "size") in pairs
    assert ("colour", "fare") in pairs
    assert sum(shares) == pytest.approx(1, abs=1e-4)
    assert sum(count > 1 for count in map(len, model.graph.tree.cliques)) >= 1


def test_independent_columns_are_left_alone() -> None:
    schema = digits({"a": 4, "b": 5, "c": 6})
    asked = Recorded(session_on(schema, random_codes(schema, 400), PrivacyLoss.zcdp(10**9)))
    model = Swift().fit(asked, params(), None, 7, quiet)  # type: ignore[arg-type]
    table = model.sample(1000, generator(0))
    assert {len(values) for values in table.codes.values()} == {1000}
    assert [kind for kind, _, _ in asked.asked] == ["count", "count", "scores", "count"]
    assert asked.remaining.amount <= 10


def test_the_same_answers_give_the_same_questions_and_bytes() -> None:
    first, model = recorded()
    again, same = recorded(told=first.answers)
    assert again.asked == first.asked
    assert same.dump() == model.dump()


def test_a_column_alone_and_two_need_no_scores() -> None:
    for names, kinds in ((["colour"], ["count"]), (["colour", "size"], ["count"] * 3)):
        asked, model = recorded(params(columns=names))
        assert [kind for kind, _, _ in asked.asked] == kinds
        assert asked.remaining.amount <= 10
        assert model.sample(None, generator(2)).rows == pytest.approx(3000, abs=50)


def test_a_pair_too_large_is_sampled_independently() -> None:
    model = fitted(session(), params(columns=["colour", "size"], most_cells=4))
    assert max(map(len, model.graph.tree.cliques)) == 1
    assert model.sample(100, generator(4)).rows == 100


def test_what_no_pair_is_worth_buys_the_columns_again() -> None:
    asked, _ = recorded(params(most_cells=4))
    question: Any = asked.asked[-1][1]
    queries, _ = question
    assert {len(query.columns) for query in queries} == {1}
    assert asked.remaining.amount <= 10


def test_weights_too_small_to_multiply_are_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal"):
        params(column_weights={"colour": 1e-200})


def test_distances_whose_noise_cannot_be_drawn_are_told() -> None:
    schema, unit = digits({f"c{i}": 4 for i in range(20)}), PrivacyUnit("entity", "id", 200)
    pointers = []
    for epsilon in (5 * 10**8, 2 * 10**9):
        loss = PrivacyLoss.pure(epsilon)
        checked = Swift().check(schema, unit, params(), loss, None, LIMITS)
        pointers.append([problem.pointer for problem in checked.problems])
    assert pointers == [["/guarantee"], []]


@pytest.mark.parametrize("loss", [GAUSSIAN, LAPLACE, EXACT])
def test_a_table_of_no_rows_is_fitted(loss: PrivacyLoss) -> None:
    model = Swift().fit(session(loss, rows=0), params(), None, 7, quiet)
    assert model.sample(40, generator(5)).rows == 40


def test_a_table_of_one_row_is_fitted() -> None:
    model = fitted(session(rows=1))
    assert model.size.rows == 1
    assert model.sample(None, generator(5)).rows == 1


def test_columns_of_one_cell_are_fitted() -> None:
    schema = digits({"a": 1, "b": 1, "c": 3})
    one = session_on(schema, random_codes(schema, 50), GAUSSIAN)
    table = Swift().fit(one, params(), None, 7, quiet).sample(30, generator(0))
    assert not table.codes["a"].any()


def test_a_stored_model_samples_as_before() -> None:
    model = fit(loss=GAUSSIAN, unit=HOUSEHOLD)
    loaded = Swift().load(colours(True), HOUSEHOLD, model.dump())
    assert loaded.dump() == model.dump()
    before, after = (each.sample(99, generator(3)) for each in (model, loaded))
    assert all(np.array_equal(before.codes[name], after.codes[name]) for name in before.codes)
    assert np.array_equal(before.entity, after.entity)  # type: ignore[arg-type]


def test_a_model_of_another_method_is_refused() -> None:
    other = Mst().fit(session(GAUSSIAN), MstParams(), None, 7, quiet)
    with pytest.raises(ModelFormatError):
        Swift().load(colours(), ROW, other.dump())


def prepared(
    rows: float, loss: PrivacyLoss = GAUSSIAN, cells: Sequence[int] = (4, 5, 6), k: int = 1
) -> PreparedTable:
    axes = Axes({f"c{i}": Grouping((0,), size) for i, size in enumerate(cells)})
    known = SizeEstimate(rows, 1.0, rows, 1.0)
    unit = ROW if k == 1 else PrivacyUnit("entity", "id", k)
    return PreparedTable(axes, Contribution(), UnitBudget(unit, loss), counted=known)


def test_columns_get_what_noise_would_take_of_them() -> None:
    """A quarter of rho 0.16 for 4 columns of 9 cells (96 % of it): sigma is sqrt(50 / 0.96)."""
    deviation = (4 / (2 * 0.25 * 0.16 * 0.96)) ** 0.5
    shares = usual_shares(prepared(400, PrivacyLoss.zcdp(16 * 10**10), [9] * 4))
    assert shares.one_way == pytest.approx(1.6 * 9 * deviation / 400, abs=6e-4)


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        (Contribution("clipped", norm=2), 100 * 16 * 2 / 8),
        (Contribution("clipped", norm=9), 1600),
        (Contribution("distinct", limit=2), 200),
        (Contribution("distinct", limit=9), 400),
        (Contribution("one"), 100),
    ],
)
def test_columns_are_as_poor_as_what_a_rule_counts(rule: Contribution, counts: float) -> None:
    """Hundred entities of 16 rows each, taken to have 4 distinct values and a norm of 8."""
    start = prepared(1600, PrivacyLoss.zcdp(10**12), k=50)
    start = replace(start, contribution=rule, counted=SizeEstimate(1600, 1.0, 100, 1.0))
    quarter = start.budget.split((1, 3))[0]
    errors = one_way_errors(start.axes, rule, quarter)
    part = sum(min(c * e / counts, 1) for c, e in zip((4, 5, 6), errors, strict=False)) / 3
    assert usual_shares(start).one_way == pytest.approx(min(max(1.6 * part, 0.15), 0.75), abs=6e-4)


@given(
    rows=st.floats(-1e6, 1e9),
    amount=st.integers(1, 10**18),
    kind=st.sampled_from(["zcdp", "pure"]),
    cells=st.lists(st.integers(1, 10**5), min_size=2, max_size=40),
    k=st.integers(1, 1000),
    is_public=st.booleans(),
)
def test_shares_are_parts_of_the_loss_and_fall_with_the_rows(
    rows: float, amount: int, kind: Any, cells: list[int], k: int, is_public: bool
) -> None:
    loss = PrivacyLoss(kind, amount)
    shares, with_more = (
        usual_shares(prepared(each, loss, cells, k), has_public=is_public)
        for each in (rows, abs(rows) * 10)
    )
    _, least, most = possible_shares(has_public=is_public)
    assert least.one_way <= with_more.one_way <= shares.one_way <= most.one_way
    assert shares.one_way + shares.scores + shares.two_way == pytest.approx(1)
    assert shares.scores == (0.1 if is_public else 0.05)
    weights = budget_weights(shares, len(cells), is_named=is_public, is_read=is_public)
    parts = weights.split(loss)
    paid = (parts.one_way, parts.prior, parts.selection, parts.marginals, parts.reserve)
    assert sum(part.amount for part in paid) <= amount


@pytest.mark.parametrize("loss", [GAUSSIAN, LAPLACE])
def test_the_number_of_rows_is_asked_first_for_a_small_part(loss: PrivacyLoss) -> None:
    asked, _ = recorded(loss=loss)
    _, question, paid = asked.asked[0]
    assert question == ((Count(()),), ())
    assert paid == rows_loss(loss)
    assert 0 < paid.amount <= loss.amount / 50


def test_entities_tell_the_rows_so_that_none_are_asked_for_alone() -> None:
    asked = Recorded(session(GAUSSIAN, HOUSEHOLD))
    Swift().fit(asked, params(), None, 7, quiet)  # type: ignore[arg-type]
    questions: Any = [question for kind, question, _ in asked.asked if kind == "count"]
    assert (Count(()),) not in [queries for queries, _ in questions]


def test_poor_columns_are_measured_with_more() -> None:
    paid = []
    for rows in (100, 300_000):
        asked = Recorded(session(PrivacyLoss.zcdp(10**10), rows=rows))
        Swift().fit(asked, params(), None, 7, quiet)  # type: ignore[arg-type]
        paid.append(asked.asked[1][2].amount)
    assert paid[0] > 2 * paid[1]


def many(rows: int, loss: PrivacyLoss = GAUSSIAN) -> LocalSession:
    """Thirty columns, each the one before or, one time in five, anything."""
    schema = digits({f"c{i:02}": 3 for i in range(30)})
    rng = np.random.default_rng(0)
    values = rng.integers(0, 3, (30, rows))
    for i in range(1, 30):
        kept = rng.random(rows) < 0.8
        values[i, kept] = values[i - 1, kept]
    codes = {column.name: values[i] for i, column in enumerate(schema.columns)}
    return session_on(schema, codes, loss)


def test_25_to_50_columns_without_a_public_table_get_a_larger_tree() -> None:
    for columns, tree in ((24, 2_000_000), (25, 5_000_000), (50, 5_000_000), (51, 2_000_000)):
        assert MostCells.of(params(), columns, has_public=False) == MostCells(tree, 2_000_000)
    assert MostCells.of(params(), 30, has_public=True).tree == 2_000_000
    assert MostCells.of(params(most_cells=1000), 30, has_public=False) == MostCells(1000, 1000)


def test_pairs_of_many_columns_are_chosen_twice_and_none_is_counted_twice() -> None:
    asked = Recorded(many(3000))
    model = Swift().fit(asked, params(most_cells=2000), None, 7, quiet)  # type: ignore[arg-type]
    assert [kind for kind, _, _ in asked.asked] == ["count"] + ["count", "scores"] * 2 + ["count"]
    assert asked.remaining.amount <= 20
    first, last = ([query.columns for query in asked.asked[i][1][0]] for i in (3, 5))  # type: ignore[index]
    assert first
    assert not set(first) & set(last)
    again = Recorded(many(3000), asked.answers)
    same = Swift().fit(again, params(most_cells=2000), None, 7, quiet)  # type: ignore[arg-type]
    assert again.asked == asked.asked
    assert same.dump() == model.dump()


def test_shares_are_of_both_choices_together() -> None:
    weights = budget_weights(
        Shares(one_way=2, scores=1, two_way=1), 30, is_named=False, is_read=False
    )
    budget = weights.split(GAUSSIAN)
    assert budget.one_way.amount == 5 * 10**11
    of_pairs = PairBudget.of(budget, 30, has_public=False)
    for parts in (of_pairs.scored, of_pairs.measured):
        assert len(parts) == 2
        assert sum(part.amount for part in parts) == pytest.approx(25 * 10**10, abs=2)


@pytest.mark.parametrize(("columns", "is_public"), [(24, False), (101, False), (30, True)])
def test_few_columns_too_many_and_those_with_public_rows_are_chosen_of_once(
    columns: int, is_public: bool
) -> None:
    shares = Shares(one_way=2, scores=1, two_way=1)
    weights = budget_weights(shares, columns, is_named=is_public, is_read=is_public)
    of_pairs = PairBudget.of(weights.split(GAUSSIAN), columns, has_public=is_public)
    assert (of_pairs.first, of_pairs.second_scores) == (None, None)


def test_where_nothing_fits_a_first_choice_nothing_is_scored_again() -> None:
    asked = Recorded(many(3000))
    Swift().fit(asked, params(most_cells=100), None, 7, quiet)  # type: ignore[arg-type]
    assert [kind for kind, _, _ in asked.asked] == ["count", "count", "scores", "count"]
    assert asked.remaining.amount <= 20


def test_the_forecast_counts_what_may_be_measured() -> None:
    preflight = Swift().check(colours(), ROW, params(), GAUSSIAN, None, LIMITS)
    # One-ways have 4 + 10 + 7 cells; the three pairs 40, 28 and 70.
    assert preflight.cells == 21 + 138
    assert preflight.problems == ()
    least = Swift().check(colours(), ROW, params(most_cells=50), GAUSSIAN, None, LIMITS)
    assert least.cells == 21 + 50
    assert least.memory_bytes < preflight.memory_bytes


@pytest.mark.parametrize(
    ("form", "loss", "pointer"),
    [
        ({"columns": []}, GAUSSIAN, "/params/columns"),
        ({"columns": ["size", "weight"]}, GAUSSIAN, "/params/columns/1"),
        ({"target": "weight"}, GAUSSIAN, "/params/target"),
        ({"columns": ["size"], "target": "fare"}, GAUSSIAN, "/params/target"),
        ({"column_weights": {"a/b": 2}}, GAUSSIAN, "/params/column_weights/a~1b"),
        ({"contribution": {"rule": "clipped", "norm": 2}}, LAPLACE, "/params/contribution/rule"),
        ({}, PrivacyLoss.pure(100), "/guarantee"),
    ],
)
def test_what_cannot_run_is_told_before_it_is_charged(
    form: dict[str, object], loss: PrivacyLoss, pointer: str
) -> None:
    preflight = Swift().check(colours(True), HOUSEHOLD, params(**form), loss, None, LIMITS)
    assert pointer in [problem.pointer for problem in preflight.problems]


def test_a_hundred_columns_pass() -> None:
    wide = digits({f"c{i}": 2 + i % 90 for i in range(100)})
    limits = Limits(max_total_rows=200_000, rows=None, memory_bytes=3 * 2**30, time_s=600.0)
    preflight = Swift().check(wide, ROW, params(), GAUSSIAN, None, limits)
    assert preflight.problems == ()
    too_many = digits({f"c{i}": 2 for i in range(201)})
    refused = Swift().check(too_many, ROW, params(), GAUSSIAN, None, limits)
    assert [problem.pointer for problem in refused.problems] == ["/params/columns"]


def test_more_columns_than_time_to_choose_among_their_pairs_are_refused() -> None:
    limits = Limits(max_total_rows=1000, rows=None, memory_bytes=2**32, time_s=100.0)
    told = []
    for columns in (50, 200):
        schema = digits({f"c{i}": 3 for i in range(columns)})
        form = params(most_cells=2**16)
        told.append(Swift().check(schema, ROW, form, GAUSSIAN, None, limits).problems)
    assert told[0] == ()
    (refused,) = told[1]
    assert refused.pointer == "/params/columns"
    assert "choosing among the pairs of 200 columns" in refused.message
    assert "about 160 seconds" in refused.message


def test_pairs_are_limited_so_that_all_can_be_scored() -> None:
    axes_of = {f"c{i}": 3000 for i in range(20)}
    axes, _ = choose_axes(digits(axes_of), None, {})
    most = most_pair_cells(axes)
    assert 190 * most <= MOST_SCORED_CELLS < 190 * 2 * most


def test_target_and_column_weights_multiply() -> None:
    form = params(target="a", column_weights={"a": 2, "b": 0.5})
    assert form.weight(("a", "b")) == 3
    assert form.weight(("b", "c")) == 0.5
    assert form.weight(("c", "d")) == 1


def test_the_tree_that_is_fitted_counts_against_the_time_of_a_run() -> None:
    schema = digits({f"c{i}": 3 for i in range(10)})
    limits = Limits(max_total_rows=1000, rows=None, memory_bytes=2**34, time_s=40.0)
    assert Swift().check(schema, ROW, params(), GAUSSIAN, None, limits).problems == ()
    form = params(most_cells=5_000_000)
    told = Swift().check(schema, ROW, form, GAUSSIAN, None, limits).problems
    assert "fitting 5000030 cells would take about 25 seconds" in told[0].message


def test_one_column_is_not_held_to_the_noise_of_a_number_that_is_not_counted() -> None:
    schema, pair = digits({"a": 2}), digits({"a": 2, "b": 2})
    loss = PrivacyLoss.pure(100)
    assert Swift().check(schema, ROW, params(), loss, None, LIMITS).problems == ()
    assert Swift().check(pair, ROW, params(), loss, None, LIMITS).problems != ()


@pytest.mark.parametrize("public", [None, PublicFacts(colours(), 1000)])
def test_a_share_of_scores_that_comes_to_nothing_is_refused(public: PublicFacts | None) -> None:
    shares = {"one_way": 1, "scores": 1e-13, "two_way": 1}
    found = Swift().check(colours(), ROW, params(shares=shares), GAUSSIAN, public, LIMITS)
    assert [problem.pointer for problem in found.problems] == ["/guarantee"]


def test_the_less_noise_the_smaller_the_public_tree() -> None:
    sizes = [prior_cells(params(), noise) for noise in (1.0, 4e-4, 2e-4, 6e-5, 4e-5)]
    assert sizes == [500_000, 500_000, 250_000, 75_000, 1]


def test_a_small_tree_leaves_the_public_one_a_cell_however_little_noise_there_is() -> None:
    assert prior_cells(params(most_cells=4), 3e-4) == 1
    schema, codes = digits({"a": 2, "b": 2, "c": 2}), {}
    for place, name in enumerate("abc"):
        codes[name] = (np.arange(20_000) >> place) % 4 // 2
    public = PublicTable(schema, Table(codes, 20_000))
    loss = PrivacyLoss.zcdp(3 * 10**10)
    form = params(most_cells=4)
    facts = PublicFacts(schema, 20_000)
    assert Swift().check(schema, ROW, form, loss, facts, LIMITS).problems == ()
    asked = session_on(schema, codes, loss, ROW, None)
    assert Swift().fit(asked, form, public, 7, quiet).sample(10, generator(1)).rows == 10
