from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_tables import LOUD, schema, session, table

from app.engine.grouping import Grouping
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import open_session
from app.engine.privacy.loss import Guarantee, PrivacyLoss
from app.engine.privacy.queries import (
    BudgetExhausted,
    Candidate,
    Contribution,
    Count,
    KernelFailure,
    QuestionRefused,
)
from app.engine.privacy.questions import CountQuestion
from app.engine.schema import PrivacyUnit

ONE = 10**12
SIZES = {"a": 3, "b": 4}
ROWS = [(0, 1), (2, 3), (0, 1), (1, 0), (2, 2), (2, 3), (0, 0)]
ENTITIES = [7, 7, 7, 7, 8, 8, 9]
ONE_CELL = Contribution("one")


def exactly(source: Any, *queries: Count) -> list[np.ndarray[Any, Any]]:
    """The answers under a loss so large that the noise is 0."""
    allowance = PrivacyLoss.pure(2**61)
    answers = session(source, allowance).count(queries, allowance)
    return [answer.values for answer in answers]


def brute_force(rows: list[tuple[int, int]], *axes: int) -> np.ndarray[Any, Any]:
    counts = np.zeros([list(SIZES.values())[axis] for axis in axes], dtype=np.int64)
    for row in rows:
        counts[tuple(row[axis] for axis in axes)] += 1
    return counts


@pytest.mark.parametrize("chunk_size", [1, 2, 7, 100])
def test_histograms_are_counted_over_all_chunks(chunk_size: int) -> None:
    a, ba, total = exactly(
        table(SIZES, ROWS, chunk_size=chunk_size), Count(("a",)), Count(("b", "a")), Count(())
    )
    assert a.tolist() == brute_force(ROWS, 0).tolist()
    assert ba.tolist() == brute_force(ROWS, 1, 0).tolist()
    assert total.shape == ()
    assert total == 7


def test_a_grouping_replaces_that_of_the_dictionary() -> None:
    grouping = Grouping((0, 1, 4), 0)
    (b,) = exactly(table(SIZES, ROWS), Count(("b",), {"b": grouping}))
    assert b.tolist() == [2, 5]


def test_an_empty_table_counts_zero() -> None:
    a, total = exactly(table(SIZES, [], []), Count(("a",)), Count((), contribution=ONE_CELL))
    assert a.tolist() == [0, 0, 0]
    assert total == 0


def test_no_columns_count_rows_or_entities() -> None:
    rows, entities = exactly(
        table(SIZES, ROWS, ENTITIES, max_rows=2), Count(()), Count((), contribution=ONE_CELL)
    )
    assert rows == 2 + 2 + 1
    assert entities == 3


def test_an_entity_counts_in_its_most_frequent_cell() -> None:
    (a,) = exactly(table(SIZES, ROWS, ENTITIES, max_rows=4), Count(("a",), contribution=ONE_CELL))
    assert a.tolist() == [2, 0, 1]


def test_an_entity_counts_once_in_each_of_its_cells() -> None:
    source = table(SIZES, ROWS, ENTITIES, max_rows=4)
    everything, one = exactly(
        source,
        Count(("a",), contribution=Contribution("distinct", limit=9)),
        Count(("a",), contribution=Contribution("distinct", limit=1)),
    )
    assert everything.tolist() == [2, 1, 2]
    assert one.sum() == 3


def test_clipped_counts_come_back_in_counts() -> None:
    rows = [(0, 0)] * 30 + [(1, 0)] * 40
    source = table(SIZES, rows, [1] * 70, max_rows=100)
    allowance = PrivacyLoss.zcdp(2**61)
    (answer,) = session(source, allowance).count(
        [Count(("a",), contribution=Contribution("clipped", norm=25.0))], allowance
    )
    assert np.abs(answer.values - [15, 20, 0]).max() <= 1
    assert answer.l2_sensitivity == 25.0
    assert answer.l1_sensitivity == pytest.approx(25 * 3**0.5, abs=0.001)
    assert answer.standard_error >= 12**-0.5


def test_bounded_rows_are_the_same_for_every_question() -> None:
    rows = [(index % 3, index % 4) for index in range(60)]
    source = table(SIZES, rows, [1] * 60, max_rows=5)
    opened = session(source, PrivacyLoss.pure(2**61))
    loss = PrivacyLoss.pure(2**58)
    first, second = (opened.count([Count(("a", "b"))], loss)[0].values for _ in range(2))
    (coarse,) = opened.count([Count(("a",))], loss)
    assert first.tolist() == second.tolist()
    assert coarse.values.tolist() == first.sum(axis=1).tolist()
    assert first.sum() == 5


def test_a_batch_is_charged_once_and_divided_by_its_shares() -> None:
    opened = session(table(SIZES, ROWS), PrivacyLoss.zcdp(10 * ONE))
    one, three = opened.count(
        [Count(("a",)), Count(("b",))], PrivacyLoss.zcdp(4 * ONE), shares=[1, 3]
    )
    assert opened.remaining == PrivacyLoss.zcdp(6 * ONE)
    assert one.scale == pytest.approx(1 / 2**0.5)
    assert three.scale == pytest.approx(1 / 6**0.5)


def test_pure_sessions_use_laplace_noise_on_l1() -> None:
    opened = session(table(SIZES, ROWS, ENTITIES, max_rows=2), PrivacyLoss.pure(ONE))
    (answer,) = opened.count([Count(("a",))], PrivacyLoss.pure(ONE))
    assert (answer.noise, answer.l1_sensitivity) == ("laplace", 2.0)
    assert answer.scale == pytest.approx(2.0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5 * ONE), max_size=12), st.integers(0, 10 * ONE))
def test_no_sequence_of_questions_exceeds_the_allowance(costs: list[int], allowed: int) -> None:
    opened = session(table(SIZES, ROWS), PrivacyLoss.zcdp(allowed))
    charged = 0
    for cost in costs:
        before = opened.remaining
        try:
            opened.count([Count(("a",))], PrivacyLoss.zcdp(cost))
        except (BudgetExhausted, QuestionRefused):
            assert opened.remaining == before
            assert cost == 0 or charged + cost > allowed
            continue
        charged += cost
        assert opened.remaining.amount == allowed - charged
    assert charged <= allowed


def test_the_whole_allowance_can_be_spent_and_then_nothing_more() -> None:
    opened = session(table(SIZES, ROWS), PrivacyLoss.pure(ONE))
    opened.count([Count(("a",))], PrivacyLoss.pure(ONE))
    with pytest.raises(BudgetExhausted):
        opened.count([Count(("a",))], PrivacyLoss.pure(10**6))
    with pytest.raises(BudgetExhausted):
        opened.select([Candidate(Count(("a",)), (np.zeros(3),))], PrivacyLoss.pure(10**6))


REFUSED = {
    "an unknown column": Count(("nobody",)),
    "the id column": Count(("id",)),
    "a column twice": Count(("a", "a")),
    "a grouping of other codes": Count(("a",), {"a": Grouping.identity(4, 0)}),
    "a grouping with a tail": Count(("a",), {"a": Grouping.identity(2, 1)}),
    "a grouping of another column": Count(("a",), {"b": Grouping.identity(4, 0)}),
    "clipped in a pure session": Count(("a",), contribution=Contribution("clipped", norm=1.0)),
}


@pytest.mark.parametrize("query", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_question_changes_nothing(query: Count) -> None:
    opened = session(table(SIZES, ROWS, ENTITIES), LOUD)
    with pytest.raises(QuestionRefused):
        opened.count([query], PrivacyLoss.pure(ONE))
    with pytest.raises(QuestionRefused):
        opened.select([Candidate(query, (np.zeros(3),))], PrivacyLoss.pure(ONE))
    assert opened.remaining == LOUD
    assert len(opened.count([Count(("a",))], LOUD)) == 1


def test_too_many_cells_are_refused() -> None:
    source = table({"a": 2**14, "b": 2**14, "c": 2**10}, [(0, 0, 0)])
    opened = session(source, LOUD)
    for queries in ([Count(("a", "b"))], [Count(("a", "c"))] * 9):
        with pytest.raises(QuestionRefused):
            opened.count(queries, LOUD)


def test_a_clipping_norm_below_the_grid_is_refused() -> None:
    opened = session(table(SIZES, ROWS, ENTITIES), PrivacyLoss.zcdp(ONE))
    with pytest.raises(QuestionRefused):
        opened.count(
            [Count((), contribution=Contribution("clipped", norm=1e-9))], PrivacyLoss.zcdp(ONE)
        )


def test_noise_beyond_the_largest_scale_is_refused() -> None:
    opened = session(table(SIZES, ROWS, ENTITIES, max_rows=2**31 - 1), PrivacyLoss.pure(ONE))
    with pytest.raises(QuestionRefused):
        opened.count([Count(("a",))], PrivacyLoss.pure(10**6))


class Unreadable:
    """A table whose rows nobody may look at."""

    schema = schema(a=3)
    unit = PrivacyUnit("entity", "id", 2)

    def chunks(self, columns: Any) -> Any:
        raise PermissionError(f"the rows of {columns} hold a secret")

    def entities(self) -> Any:
        raise PermissionError("the ids hold a secret")


def test_admission_and_refusal_never_look_at_rows() -> None:
    kernel = Kernel(Unreadable(), PrivacyLoss.pure(ONE))
    assert kernel.admit(CountQuestion((Count(("a",)),), PrivacyLoss.pure(ONE))).loss.amount == ONE
    with pytest.raises(BudgetExhausted):
        kernel.admit(CountQuestion((Count(("a",)),), PrivacyLoss.pure(2 * ONE)))
    with pytest.raises(QuestionRefused):
        kernel.admit(CountQuestion((Count(("b",)),), PrivacyLoss.pure(ONE)))


def test_a_failure_reads_alike_stays_charged_and_ends_the_session() -> None:
    opened = session(Unreadable(), PrivacyLoss.pure(2 * ONE))
    for _ in range(2):
        with pytest.raises(KernelFailure) as failure:
            opened.count([Count(("a",))], PrivacyLoss.pure(ONE))
        assert "secret" not in str(failure.value)
    assert opened.remaining.amount == ONE


def test_a_code_outside_its_column_is_a_failure() -> None:
    source = table(SIZES, ROWS)
    source._codes["a"][3] = 200
    with pytest.raises(KernelFailure):
        exactly(source, Count(("a",)))


def test_selection_finds_the_table_that_differs_most() -> None:
    opened = session(table(SIZES, ROWS), PrivacyLoss.pure(2**61))
    candidates = [
        Candidate(Count(("a",)), (brute_force(ROWS, 0).astype(float),)),
        Candidate(Count(("a", "b")), (np.zeros(3), np.zeros(4))),
        Candidate(Count(("b",)), (brute_force(ROWS, 1) + 1.0,)),
    ]
    assert opened.select(candidates, PrivacyLoss.pure(2**60), winners=3) == (1, 2, 0)


def test_selection_weighs_and_adds_bias() -> None:
    opened = session(table(SIZES, ROWS), PrivacyLoss.pure(2**61))
    zeros = (np.zeros(3),)
    light = Candidate(Count(("a",)), zeros, weight=0.5)
    heavy = Candidate(Count(("a",)), zeros, weight=2.0, bias=-11.0)
    biased = Candidate(Count(("a",)), zeros, weight=0.0, bias=3.4)
    chosen = opened.select([light, heavy, biased], PrivacyLoss.pure(2**60), winners=3)
    assert chosen == (0, 2, 1)  # 3.5, 3.4 and 3


def test_a_reference_is_an_outer_product_or_a_whole_array() -> None:
    opened = session(table(SIZES, ROWS), PrivacyLoss.pure(2**61))
    exact = brute_force(ROWS, 0, 1).astype(float)
    candidates = [
        Candidate(Count(("a", "b")), (exact,)),
        Candidate(Count(("a", "b")), (np.array([1.0, 0, 0]), np.array([2.0, 0, 0, 0]))),
        Candidate(Count(()), (np.array(100.0),)),
    ]
    assert opened.select(candidates, PrivacyLoss.pure(2**60), winners=3) == (2, 1, 0)


def test_winners_are_paid_for_together() -> None:
    opened = session(table(SIZES, ROWS), PrivacyLoss.zcdp(ONE))
    candidates = [Candidate(Count(("a",)), (np.zeros(3),))] * 3
    opened.select(candidates, PrivacyLoss.zcdp(ONE), winners=3)
    assert opened.remaining.amount == 0


def test_a_trusted_call_hands_over_the_bounded_table() -> None:
    source = table(SIZES, ROWS, ENTITIES, max_rows=2)
    opened = session(source, PrivacyLoss.pure(ONE), trusted=True)
    handed = opened.trusted_call(PrivacyLoss.pure(ONE))
    assert opened.remaining.amount == 0
    assert handed.rows == 5
    assert handed.entity is not None
    assert np.bincount(handed.entity).tolist() == [2, 2, 1]
    pairs = set(zip(handed.codes["a"].tolist(), handed.codes["b"].tolist(), strict=True))
    assert pairs <= set(ROWS)


def test_a_trusted_call_on_a_row_unit_hands_over_every_row() -> None:
    opened = session(table(SIZES, ROWS), PrivacyLoss.pure(ONE), trusted=True)
    handed = opened.trusted_call(PrivacyLoss.pure(ONE))
    assert handed.entity is None
    assert np.stack([handed.codes["a"], handed.codes["b"]], 1).tolist() == [list(r) for r in ROWS]


def test_a_trusted_call_is_charged_and_guarded() -> None:
    with pytest.raises(QuestionRefused):
        session(table(SIZES, ROWS), LOUD).trusted_call(LOUD)
    with pytest.raises(BudgetExhausted):
        session(table(SIZES, ROWS), PrivacyLoss.pure(ONE), trusted=True).trusted_call(
            PrivacyLoss.pure(ONE + 1)
        )


@pytest.mark.parametrize(
    ("guarantee", "allowance"),
    [
        (Guarantee(epsilon=ONE), PrivacyLoss.pure(ONE)),
        (Guarantee(rho=ONE), PrivacyLoss.zcdp(ONE)),
        (Guarantee(epsilon=ONE, delta=10**12), PrivacyLoss.zcdp(24355970359)),
    ],
)
def test_a_session_opens_with_a_guarantee(guarantee: Guarantee, allowance: PrivacyLoss) -> None:
    opened = open_session({"a": np.zeros(3, int)}, schema(a=2), PrivacyUnit("row"), guarantee)
    assert opened.allowance == opened.remaining == allowance
